//! Places for requests that the plan has none for.
//!
//! A dynamic request goes where its group is in no planned request's way. What else comes while the program follows
//! the plan goes beyond the planned part. While it does not follow the plan, any free place is as good as another.

use std::ops::Range;
use std::slice;

use stalloc_device::{Device, Stream};

use super::memory::{REQUESTS_PER_MOVE, SHARE_OF_A_MOVE, SLACK};
use super::{Arena, Served};
use crate::cursor::Guess;
use crate::script::{GRANULE, Key};
use crate::statistics::{Departure, Source};

/// Blocks up to this size do not go where planned ones may be expected later: one that is kept for long, such as a
/// metric, would push a large planned block out of its place in every step. Granules (1 MiB).
const SMALL: u32 = (1 << 20) / GRANULE as u32;

/// Obstacles that one search gets around before it gives up.
pub(super) const MAX_OBSTACLES: usize = 64;

/// After this many requests, a plan that served less than one in a hundred is another program's.
const FAIR_TRIAL: u64 = 1000;

impl<D: Device> Arena<D> {
    /// Serves a planned request whose place is taken, or has no memory.
    #[cold]
    pub(super) fn serve_displaced(&mut self, range: Range<u32>, key: Key) -> Option<Served> {
        if self.is_short(key) && self.is_free(&range) {
            let elsewhere = self.place_with_memory(key);
            if elsewhere.is_none() && self.claim(&range, key.stream(), None) {
                return Some(self.served(range.start, Source::Planned));
            }
            self.statistics.misses.device += 1;
            return elsewhere.map(|start| self.served(start, Source::Dynamic));
        }
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
        let known = statistics.planned + statistics.unplanned.dynamic;
        // One that began as planned is the plan's program with other steps: the arena serves those too.
        let has_begun = known >= self.script.beginning;
        if !statistics.switched_off && !has_begun && statistics.requests >= trial && known < statistics.requests / 100 {
            statistics.switched_off = true;
            self.left_over = self.statistics.allocated;
            // The memory is better in the fallback's hands.
            let _ = self.give_back(u64::MAX);
        }
    }

    /// Gives back the memory of blocks that outlived the plan, now and then, and whenever it has become much.
    fn give_back_what_was_left(&mut self) {
        let (mapped, live) = (self.frames.mapped(), self.statistics.allocated);
        let now_and_then = self.statistics.requests.is_multiple_of(REQUESTS_PER_MOVE);
        let is_much = self.left_over.saturating_sub(live) > mapped / SHARE_OF_A_MOVE;
        if (now_and_then || is_much) && !self.capturing && mapped.saturating_sub(live) > mapped / SLACK {
            self.left_over = live;
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

    /// A place in the first window that has one.
    fn search(&mut self, windows: &[Range<u32>], key: Key) -> Option<Served> {
        if self.planned_only {
            return None;
        }
        let with_memory = if self.is_short(key) { self.place_with_memory(key) } else { None };
        let start = with_memory.or_else(|| self.place(windows, key))?;
        Some(self.served(start, Source::Dynamic))
    }

    /// The first window with a place, the lowest place in it. Memory that another stream used last is taken only if
    /// there is no other, since it costs a wait.
    fn place(&mut self, windows: &[Range<u32>], key: Key) -> Option<u32> {
        let mut place = |after_others| windows.iter().find_map(|window| self.place_in(window, key, after_others));
        place(false).or_else(|| place(true))
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

    /// Cuts the planned blocks in a range out of the gaps. Each block costs this once, when it is first in the way, so
    /// planned requests need not keep the gaps up to date.
    pub(super) fn avoid(&mut self, range: &Range<u32>) {
        let mut from = range.start;
        while let Some(unit) = self.taken.first(from as usize, range.end as usize)
            && let Some(start) = self.starts.last(unit).map(|start| start as u32)
            && let Some(block) = self.blocks.get_mut(&start)
        {
            let cut = block.range(start);
            from = cut.end.max(unit as u32 + 1);
            if !block.in_gaps {
                block.in_gaps = true;
                self.gaps.take_range(cut);
            }
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
