//! Addresses for requests that have none of their own: the lowest free ones.

use std::ops::Range;

use stalloc_device::{Device, Stream};

use super::memory::Pressure;
use super::{Arena, Served};
use crate::cursor::Guess;
use crate::gaps::Place;
use crate::script::{GRANULE, Key};
use crate::statistics::{Departure, Source};
use crate::tuning::FOREIGN_RANGES;

impl<D: Device> Arena<D> {
    /// Serves a planned request whose address is taken, or finds no memory.
    #[cold]
    pub(super) fn serve_displaced(&mut self, range: Range<u32>, key: Key) -> Option<Served> {
        let misses = &mut self.statistics.misses;
        if self.taken.is_free(range.start as usize, range.end as usize) {
            misses.device += 1;
        } else {
            misses.taken += 1;
        }
        self.serve_lowest(key)
    }

    /// Serves a request that is not a planned one.
    pub(super) fn serve_open(&mut self, guess: Guess, key: Key, stream: Stream) -> Option<Served> {
        let unplanned = &mut self.statistics.unplanned;
        match guess {
            Guess::Open => unplanned.open += 1,
            Guess::NotInPlan | Guess::Planned(_) => unplanned.not_in_plan += 1,
            Guess::Unknown => unplanned.position_unknown += 1,
        }
        if guess != Guess::Open {
            self.note_departure(key, stream);
        }
        self.serve_lowest(key)
    }

    fn note_departure(&mut self, key: Key, stream: Stream) {
        if self.statistics.departure.is_none() && !self.script.is_empty() {
            let bytes = |key: Key| u64::from(key.granules()) * GRANULE;
            let expected = self.cursor.expected(&self.script);
            self.statistics.departure = Some(Departure {
                request: self.statistics.requests,
                expected: expected.map(|entry| (bytes(entry.key), entry.key.stream().into())),
                seen: (bytes(key), stream),
            });
        }
    }

    /// The lowest free address (while the program follows its plan: above the planned ones); where that would need more
    /// memory than there is, the lowest on mapped memory; where there is none either, memory is remapped.
    fn serve_lowest(&mut self, key: Key) -> Option<Served> {
        if self.planned_only {
            return None;
        }
        self.poll_all_if_pending();
        self.update_gaps();
        // A block among planned addresses would push planned ones away in every step that it lives.
        let above = if self.cursor.is_following() { self.script.granules } else { 0 };
        let start = self
            .claim_first(
                key,
                |arena, key, after_others| arena.lowest_in(above..arena.end(), key, after_others),
                Pressure::Refuse,
            )
            .or_else(|| self.claim_first(key, Self::lowest_mapped, Pressure::Refuse))
            .or_else(|| self.claim_first(key, Self::lowest, Pressure::Remap))?;
        Some(self.served(start, Source::Open))
    }

    /// Claims what a search finds: without a wait for another stream if it can be.
    fn claim_first(
        &mut self,
        key: Key,
        find: impl Fn(&mut Self, Key, bool) -> Option<Place>,
        pressure: Pressure,
    ) -> Option<u32> {
        let place = find(self, key, false).or_else(|| find(self, key, true))?;
        let range = place.start..place.start + key.granules();
        self.claim(&range, key.stream(), Some(place), pressure).then_some(place.start)
    }

    /// The lowest free address; only where no other stream was last, unless `after_others`.
    fn lowest(&mut self, key: Key, after_others: bool) -> Option<Place> {
        self.lowest_in(0..self.end(), key, after_others)
    }

    /// One past the last granule.
    fn end(&self) -> u32 {
        self.taken.len() as u32
    }

    /// See [`Self::lowest`]; within a window.
    pub(super) fn lowest_in(&mut self, mut window: Range<u32>, key: Key, after_others: bool) -> Option<Place> {
        for _ in 0..FOREIGN_RANGES {
            let place = self.gaps.first_fit(window.clone(), key.granules())?;
            if after_others {
                return Some(place);
            }
            let range = place.start..place.start + key.granules();
            let Some((_, end)) = self.owners.foreign(range, key.stream()) else { return Some(place) };
            window.start = end.min(window.end);
        }
        None
    }

    /// Cuts the blocks at planned addresses out of the gaps. They are not cut when they are claimed, since most die
    /// before anything is searched: each costs this once at most.
    fn update_gaps(&mut self) {
        for start in std::mem::take(&mut self.uncut) {
            if let Some(block) = self.blocks.get_mut(&start)
                && !block.in_gaps
            {
                block.in_gaps = true;
                self.gaps.take_range(start..start + block.granules);
            }
        }
    }

    /// Forgets which planned blocks are not cut out of the gaps, of those that are gone: as many as there are blocks
    /// stay at most.
    #[cold]
    pub(super) fn shrink_uncut(&mut self) {
        let blocks = &self.blocks;
        self.uncut.sort_unstable();
        self.uncut.dedup();
        self.uncut.retain(|start| blocks.get(start).is_some_and(|block| !block.in_gaps));
        self.most_uncut = (2 * self.uncut.len()).max(super::LEAST_UNCUT);
    }

    fn poll_all_if_pending(&mut self) {
        if !self.pending.is_empty() {
            self.poll_all();
        }
    }

    /// Whether a range is free once the events that other streams' blocks wait for are asked.
    #[cold]
    pub(super) fn is_free_after_polling(&mut self, range: &Range<u32>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.poll_all();
        self.taken.is_free(range.start as usize, range.end as usize)
    }
}
