//! Where a request goes: to its planned address, on mapped memory, on new memory, or on memory that is remapped.

use std::ops::Range;

use stalloc_device::{Device, Stream};

use super::memory::OverBudget;
use super::place::Block;
use super::{Arena, KeyRequest};
use crate::script::Guess;
use crate::statistics::{ServedBy, Statistics};

impl<D: Device> Arena<D> {
    #[inline]
    pub(super) fn serve_planned(&mut self, start: u32, request: KeyRequest) -> Option<(u32, ServedBy)> {
        let range = start..start + request.key.granules();
        if (self.place.is_free(&range) || self.is_free_after_polling(&range))
            && self.claim(start, request, false, OverBudget::Remap)
        {
            return Some((start, ServedBy::Planned));
        }
        self.serve_displaced(&range, request)
    }

    /// Whether a range is free once the events that other streams' blocks wait for are asked.
    #[cold]
    fn is_free_after_polling(&mut self, range: &Range<u32>) -> bool {
        self.poll();
        self.place.is_free(range)
    }

    /// Serves a planned request whose address is taken, or finds no memory.
    #[cold]
    fn serve_displaced(&mut self, range: &Range<u32>, request: KeyRequest) -> Option<(u32, ServedBy)> {
        let is_taken = !self.place.is_free(range);
        self.ledger.count(1, |Statistics { misses, .. }| if is_taken { &mut misses.taken } else { &mut misses.device });
        self.serve_fitting(request)
    }

    /// Serves a request that is not a planned one.
    pub(super) fn serve_best_fit(
        &mut self,
        guess: Guess,
        request: KeyRequest,
        stream: Stream,
    ) -> Option<(u32, ServedBy)> {
        self.ledger.count(1, |Statistics { unplanned, .. }| match guess {
            Guess::WithoutOffset => &mut unplanned.without_offset,
            Guess::NotInPlan | Guess::Planned(_) => &mut unplanned.not_in_plan,
            Guess::Unknown => &mut unplanned.position_unknown,
        });
        if guess != Guess::WithoutOffset && self.place.has_plan() && !self.has_departed() {
            self.ledger.departed(self.place.expected(), request.key, stream);
        }
        self.serve_fitting(request)
    }

    /// The tightest fit above the planned addresses; where that would need more
    /// memory than may be held, one on mapped memory; where there is none either, memory is remapped.
    fn serve_fitting(&mut self, request: KeyRequest) -> Option<(u32, ServedBy)> {
        if self.planned_only {
            return None;
        }
        self.poll();
        if self.ledger.statistics().steps == 0 && self.memory.owes() {
            self.review();
        }
        // A block among planned addresses would push planned ones away in every step that it lives. That the addresses above
        // are others costs nothing: memory is where blocks are.
        let all = 0..self.place.len();
        let own = self.place.region(request.key);
        let first = if own.start == 0 { self.place.planned()..own.end } else { own.clone() };
        let start = self.claim_within(first, own.clone(), request);
        // Where there is no other place, one among the others.
        let start = start.or_else(|| if own == all { None } else { self.claim_within(all.clone(), all, request) })?;
        Some((start, ServedBy::BestFit))
    }

    /// A place in the `first` addresses on mapped memory; where there is none, on new memory; where that would be too much, on mapped
    /// memory among its `own`, or memory is remapped there. Memory of other streams, for which this one has to wait, comes after new
    /// memory, unless the device itself has little.
    fn claim_within(&mut self, first: Range<u32>, own: Range<u32>, request: KeyRequest) -> Option<u32> {
        let (is_scarce, is_alone) = (self.memory.is_scarce(&self.ledger), self.order.is_alone(request.key.stream()));
        let mapped = |arena: &mut Self, others| arena.claim_mapped(&first, request, others);
        let new_with = |arena: &mut Self, others, over_budget| {
            let start = arena.place.tightest(arena.order.search(), first.clone(), request.key, others)?;
            arena.claim_found(start, request, over_budget)
        };
        let new = |arena: &mut Self, others| new_with(arena, others, OverBudget::Refuse);
        let unwaited = |arena: &mut Self| if is_alone { None } else { new_with(arena, false, OverBudget::Raise) };
        let of_others = |arena: &mut Self| if is_alone { None } else { mapped(arena, true) };
        let claimed = mapped(self, false).or_else(|| {
            if is_scarce {
                of_others(self).or_else(|| new(self, false))
            } else {
                new(self, false).or_else(|| unwaited(self)).or_else(|| of_others(self))
            }
        });
        claimed
            .or_else(|| if is_alone { None } else { new(self, true) })
            .or_else(|| if first == own { None } else { self.claim_mapped(&own, request, true) })
            .or_else(|| {
                let mut find = |others| {
                    let (place, frames, owners) = (&mut self.place, self.memory.frames(), self.order.search());
                    let (key, own) = (request.key, || own.clone());
                    let cheapest = if is_scarce { None } else { place.cheapest(frames, owners, own(), key, others) };
                    cheapest.or_else(|| place.tightest(owners, own(), key, others))
                };
                let start = find(false).or_else(|| find(true))?;
                self.claim_found(start, request, OverBudget::Remap)
            })
    }

    /// A place on mapped memory.
    fn claim_mapped(&mut self, window: &Range<u32>, request: KeyRequest, allow_others: bool) -> Option<u32> {
        let (frames, owners) = (self.memory.frames(), self.order.search());
        let start = self.place.on_mapped(frames, owners, window, request.key, allow_others)?;
        self.claim_found(start, request, OverBudget::Refuse)
    }

    /// Claims what a search found.
    fn claim_found(&mut self, start: u32, request: KeyRequest, over_budget: OverBudget) -> Option<u32> {
        self.claim(start, request, true, over_budget).then_some(start)
    }

    /// Makes a free range a block: behind an event if another stream used it last, with memory behind it. If the
    /// device refuses, it stays free and the answer is `false`. `found`: by a search of the gaps, which are up to date.
    #[inline]
    fn claim(&mut self, start: u32, request: KeyRequest, found: bool, over_budget: OverBudget) -> bool {
        let range = start..start + request.key.granules();
        // What is free is decided by the taken ranges alone, however a place was found.
        if found && !self.place.is_free(&range) {
            debug_assert!(false, "the gaps hold {range:?}, which is taken");
            return false;
        }
        if self.mapper().ensure_mapped(&range, request.key.stream(), over_budget).is_err() {
            return false;
        }
        match self.order.take_over(&mut self.device, &range, request.key.stream()) {
            Ok(false) => {}
            Ok(true) => self.memory.note_wait(&self.ledger),
            Err(_) => return false,
        }
        self.place.take(start, Block::new(request.key, request.padding), found);
        self.ledger.alloc(start, request.key);
        true
    }
}
