//! Places for requests that the plan has none for.
//!
//! A dynamic request goes where its group is in no planned request's way. What else comes while the program follows
//! the plan goes beyond the planned part. While it does not follow the plan, any free place is as good as another.

use std::ops::Range;
use std::slice;

use stalloc_device::{Device, Stream};

use super::{Arena, REQUESTS_PER_MOVE, SLACK, Served};
use crate::cursor::Guess;
use crate::script::{GRANULE, Key};
use crate::statistics::{Departure, Source};

/// Blocks up to this size do not go where planned ones may be expected later: one that is kept for long, such as a
/// metric, would push a large planned block out of its place in every step. Granules (1 MiB).
const SMALL: u32 = (1 << 20) / GRANULE as u32;

/// Obstacles that one search gets around before it gives up.
const MAX_OBSTACLES: usize = 64;

/// After this many requests, a plan that served less than one in a hundred is another program's.
const FAIR_TRIAL: u64 = 1000;

impl<D: Device> Arena<D> {
    /// Finds a place for a planned request that cannot have its own.
    #[cold]
    pub(super) fn serve_displaced(&mut self, range: Range<u32>, key: Key) -> Option<Served> {
        let misses = &mut self.statistics.misses;
        match self.taken.first(range.start as usize, range.end as usize) {
            None => misses.device += 1,
            Some(unit) => {
                let block = self.starts.last(unit).and_then(|start| self.blocks.get(&(start as u32)));
                match block {
                    Some(block) if block.pending => misses.pending += 1,
                    _ => misses.occupied += 1,
                }
            }
        }
        self.search(slice::from_ref(&self.beyond_plan()), key)
    }

    /// Serves a request that is not a planned one.
    pub(super) fn serve_unplanned(&mut self, guess: Guess, key: Key, stream: Stream) -> Option<Served> {
        self.judge_plan(guess);
        if self.statistics.switched_off {
            self.statistics.unplanned.refused += 1;
            self.give_back_what_was_left();
            return None;
        }
        let (planned, beyond) = (0..self.script.granules, self.beyond_plan());
        match guess {
            Guess::Dynamic(group) => {
                self.statistics.unplanned.dynamic += 1;
                self.search_group(group, key).or_else(|| self.search(slice::from_ref(&beyond), key))
            }
            Guess::Extra | Guess::Slot { .. } => {
                self.statistics.unplanned.extra += 1;
                self.note_departure(key, stream);
                self.search(slice::from_ref(&beyond), key)
            }
            Guess::Lost => {
                self.statistics.unplanned.lost += 1;
                self.note_departure(key, stream);
                if key.granules() <= SMALL {
                    self.search(&[beyond, planned], key)
                } else {
                    self.search(slice::from_ref(&(planned.start..beyond.end)), key)
                }
            }
        }
    }

    /// The range that no planned request has a place in.
    fn beyond_plan(&self) -> Range<u32> {
        self.script.granules..self.taken.len() as u32
    }

    /// Switches the plan off if the program is another one, and on again if it was not.
    fn judge_plan(&mut self, guess: Guess) {
        let statistics = &mut self.statistics;
        if let Guess::Slot { .. } = guess {
            self.fits_in_a_row += 1;
            if self.fits_in_a_row >= FAIR_TRIAL {
                statistics.switched_off = false;
            }
            return;
        }
        self.fits_in_a_row = 0;
        let trial = FAIR_TRIAL.max(2 * self.script.slots as u64);
        if !statistics.switched_off
            && statistics.requests >= trial
            && statistics.planned + statistics.unplanned.dynamic < statistics.requests / 100
        {
            statistics.switched_off = true;
            // The memory is better in the fallback's hands.
            let _ = self.give_back(u64::MAX);
        }
    }

    /// Gives back the memory of blocks that outlived the plan, now and then.
    fn give_back_what_was_left(&mut self) {
        let empty = self.frames.mapped().saturating_sub(self.statistics.allocated);
        let due = self.statistics.requests.is_multiple_of(REQUESTS_PER_MOVE);
        if due && !self.capturing && empty > self.frames.mapped() / SLACK {
            // If the device refuses, the next time will do.
            let _ = self.unmap_cold(u64::MAX, 0..0);
        }
    }

    fn note_departure(&mut self, key: Key, stream: Stream) {
        if self.statistics.departure.is_none() {
            let expected = self.cursor.expected(&self.script).filter(|entry| entry.slot().is_some());
            let bytes = |key: Key| u64::from(key.granules()) * GRANULE;
            self.statistics.departure = Some(Departure {
                request: self.statistics.requests,
                expected: expected.map(|entry| (bytes(entry.key), entry.key.stream().into())),
                seen: (bytes(key), stream),
            });
        }
    }

    /// Searches where a group's blocks are in nobody's way.
    fn search_group(&mut self, group: u32, key: Key) -> Option<Served> {
        let windows = std::mem::take(&mut self.script.groups[group as usize].places);
        let served = self.search(&windows, key);
        self.script.groups[group as usize].places = windows;
        served
    }

    /// The first window with a place, the lowest place in it. Memory that another stream used last is taken only if
    /// there is no other, since it costs a wait.
    fn search(&mut self, windows: &[Range<u32>], key: Key) -> Option<Served> {
        if self.planned_only {
            return None;
        }
        let mut search = |after_others| windows.iter().find_map(|window| self.place_in(window, key, after_others));
        let start = search(false).or_else(|| search(true))?;
        Some(self.served(start, Source::Dynamic))
    }

    fn place_in(&mut self, window: &Range<u32>, key: Key, after_others: bool) -> Option<u32> {
        let mut window = window.clone();
        for _ in 0..MAX_OBSTACLES {
            let place = self.gaps.first_fit(window.clone(), key.granules())?;
            let range = place.start..place.start + key.granules();
            if !self.is_free(&range) {
                self.avoid(&range);
            } else if let (false, Some((_, end))) = (after_others, self.owners.foreign(range.clone(), key.stream())) {
                window.start = end.min(window.end);
            } else {
                return self.claim(&range, key.stream(), Some(place)).then_some(place.start);
            }
        }
        None
    }

    /// Cuts the first planned block in a range out of the gaps. Each block costs this once, when it is first in the
    /// way, so planned requests need not keep the gaps up to date.
    fn avoid(&mut self, range: &Range<u32>) {
        let Some(unit) = self.taken.first(range.start as usize, range.end as usize) else { return };
        let Some(start) = self.starts.last(unit).map(|start| start as u32) else { return };
        if let Some(block) = self.blocks.get_mut(&start)
            && !block.in_gaps
        {
            block.in_gaps = true;
            self.gaps.take_range(block.range(start));
        }
    }

    /// Whether a range is free once the events that other streams' blocks wait for are asked.
    #[cold]
    pub(super) fn is_free_after_polling(&mut self, range: &Range<u32>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.poll_all();
        self.is_free(range)
    }
}
