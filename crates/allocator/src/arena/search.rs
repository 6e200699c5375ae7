//! Addresses for requests that have none of their own: where they fit best.

use std::ops::Range;

use stalloc_device::{Device, Stream};
use stalloc_gaps::{Fits, Gaps};

use super::memory::{Remaps, SEARCH_LIMIT, own_part};
use super::{Arena, Served};
use crate::cursor::Guess;
use crate::script::{GRANULE, Key};
use crate::statistics::{Departure, Source};
use crate::streams::{Owners, bit};
use crate::tuning::{above_plan, best_fit, medium, small};

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
        self.serve_fitting(key)
    }

    /// Serves a request that is not a planned one.
    pub(super) fn serve_best_fit(&mut self, guess: Guess, key: Key, stream: Stream) -> Option<Served> {
        let unplanned = &mut self.statistics.unplanned;
        match guess {
            Guess::WithoutOffset => unplanned.without_offset += 1,
            Guess::NotInPlan | Guess::Planned(_) => unplanned.not_in_plan += 1,
            Guess::Unknown => unplanned.position_unknown += 1,
        }
        if guess != Guess::WithoutOffset {
            self.note_departure(key, stream);
        }
        self.serve_fitting(key)
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

    /// The tightest fit above the planned addresses; where that would need more
    /// memory than may be held, one on mapped memory; where there is none either, memory is remapped.
    fn serve_fitting(&mut self, key: Key) -> Option<Served> {
        if self.planned_only {
            return None;
        }
        if !self.pending.is_empty() {
            self.poll();
        }
        if self.statistics.steps == 0 && self.budget.owes() {
            self.review();
        }
        // A block among planned addresses would push planned ones away in every step that it lives. That the addresses above
        // are others costs nothing: memory is where blocks are.
        let above = if above_plan() { self.script.granules } else { 0 };
        let end = self.taken.len() as u32;
        let own = self.region(key);
        let first = if own.start == 0 { above..own.end } else { own.clone() };
        let start = self.claim_within(first, own.clone(), key);
        // Where there is no other place, one among the others.
        let start = start.or_else(|| if own == (0..end) { None } else { self.claim_within(0..end, 0..end, key) })?;
        Some(self.served(start, Source::BestFit))
    }

    /// The addresses for blocks of a size.
    fn region(&self, key: Key) -> Range<u32> {
        let is_of = |limit: u32| key.granules() <= limit / GRANULE as u32;
        let region = if is_of(small()) { 2 } else { usize::from(is_of(medium())) };
        let own = self.regions[region]..self.regions[region + 1];
        if own.is_empty() { self.regions[0]..self.regions[1] } else { own }
    }

    /// A place in the `first` addresses on mapped memory; where there is none, on new memory; where that would be too much, on mapped
    /// memory among its `own`, or memory is remapped there. Memory of other streams, for which this one has to wait, comes after new
    /// memory, unless the device itself has little.
    fn claim_within(&mut self, first: Range<u32>, own: Range<u32>, key: Key) -> Option<u32> {
        let (is_scarce, is_alone) = (self.is_scarce(), self.owners.is_alone(key.stream()));
        let mapped = |arena: &mut Self, others| arena.claim_mapped(&first, key, others);
        let new = |arena: &mut Self, others| {
            arena.owners.begin_search();
            let start = arena.tightest(first.clone(), key, others)?;
            arena.claim_at(start, key, Remaps::Few)
        };
        let of_others = |arena: &mut Self| if is_alone { None } else { mapped(arena, true) };
        let claimed = mapped(self, false).or_else(|| {
            if is_scarce {
                of_others(self).or_else(|| new(self, false))
            } else {
                new(self, false).or_else(|| of_others(self))
            }
        });
        claimed
            .or_else(|| if is_alone { None } else { new(self, true) })
            .or_else(|| if first == own { None } else { self.claim_mapped(&own, key, true) })
            .or_else(|| {
                let mut find = |others| {
                    self.owners.begin_search();
                    let cheapest = if is_scarce { None } else { self.fit_cheapest(own.clone(), key, others) };
                    cheapest.or_else(|| self.tightest(own.clone(), key, others))
                };
                let start = find(false).or_else(|| find(true))?;
                self.claim_at(start, key, Remaps::Any)
            })
    }

    /// A place on mapped memory: the tightest, or the lowest that is mapped.
    fn claim_mapped(&mut self, window: &Range<u32>, key: Key, allow_others: bool) -> Option<u32> {
        self.owners.begin_search();
        let tightest = self.tightest(window.clone(), key, allow_others);
        let start = tightest.filter(|&start| self.frames.is_backed(&(start..start + key.granules())));
        let start = start.or_else(|| self.fit_on_mapped(window.clone(), key, allow_others));
        self.claim_at(start?, key, Remaps::Few)
    }

    /// Claims what a search found.
    fn claim_at(&mut self, start: u32, key: Key, remaps: Remaps) -> Option<u32> {
        self.claim(&(start..start + key.granules()), key.stream(), true, remaps).then_some(start)
    }

    /// Where a request fits best; only where no other stream was last, unless `allow_others`.
    pub(super) fn tightest(&mut self, window: Range<u32>, key: Key, allow_others: bool) -> Option<u32> {
        if window.start < self.script.granules {
            self.update_gaps();
        }
        if window.end.saturating_sub(window.start) < key.granules() {
            return None;
        }
        let (width, owners) = (key.granules(), &mut self.owners);
        if !best_fit() {
            let within = |gap: Range<u32>| gap.start.max(window.start)..gap.end.min(window.end);
            let mut lowest =
                self.gaps.of_width(width).map(within).filter(|gap| gap.end.saturating_sub(gap.start) >= width);
            return lowest.find_map(|gap| if allow_others { Some(gap.start) } else { own_part(owners, gap, key) });
        }
        // Those of others alone last: most of them are in use still.
        let may_hide = !allow_others && !owners.is_alone(key.stream());
        let own = if may_hide { own_gap(&self.gaps, &window, owners, key) } else { None };
        own.or_else(|| first(self.gaps.fits(window.clone(), width), owners, key, allow_others)).or_else(|| {
            // Other streams' gaps may hide where nobody has been yet.
            let region = self.regions[1..3].iter().filter(|&&start| window.start >= start && start > 0).count();
            let untouched = self.untouched[region.min(2)].max(window.start);
            (!allow_others && window.end.min(self.regions[region.min(2) + 1]).saturating_sub(untouched) >= width)
                .then_some(untouched)
        })
    }

    /// Cuts the blocks at planned addresses out of the gaps. They are not cut when they are claimed, since most die before anything is
    /// searched among planned addresses: each costs this once at most.
    pub(super) fn update_gaps(&mut self) {
        while let Some(start) = self.uncut.pop() {
            if let Some(block) = self.blocks.get_mut(&start)
                && !block.in_gaps
            {
                block.in_gaps = true;
                self.gaps.take(start..start + block.granules);
            }
        }
    }

    /// Whether a range is free once the events that other streams' blocks wait for are asked.
    #[cold]
    pub(super) fn is_free_after_polling(&mut self, range: &Range<u32>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.poll();
        self.taken.is_free(range.start as usize, range.end as usize)
    }
}

/// Where the first of some free ranges begins of which no useless rest is left, or else the first; only where no other stream was
/// last, unless `allow_others`.
fn first(mut fits: Fits<'_>, owners: &mut Owners, key: Key, allow_others: bool) -> Option<u32> {
    let mut wasteful = None;
    for _ in 0..SEARCH_LIMIT {
        let Some(gap) = fits.next() else { break };
        let width = gap.end - gap.start;
        let found = if allow_others { Ok(gap.start) } else { owners.own(gap, key.granules(), key.stream()) };
        match found {
            Ok(start) if is_useless(width - key.granules(), key.granules()) => {
                wasteful.get_or_insert(start);
            }
            Ok(start) => return Some(start),
            Err(users) => fits.narrow(users),
        }
    }
    wasteful
}

/// Whether what a large block would leave of a gap is much of it and yet too little for any other large block: small ones have addresses
/// of their own, so it would be lost for as long as the block lives.
fn is_useless(rest: u32, granules: u32) -> bool {
    let medium = medium() / GRANULE as u32;
    granules > medium && (1..=medium).contains(&rest) && rest > granules / 8
}

/// Where the first gap begins of which the request's stream used a part.
fn own_gap(gaps: &Gaps, window: &Range<u32>, owners: &mut Owners, key: Key) -> Option<u32> {
    first(gaps.fits(window.clone(), key.granules()).used_by(bit(key.stream())), owners, key, false)
}
