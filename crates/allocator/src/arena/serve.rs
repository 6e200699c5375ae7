//! Where a request goes: to its planned address, on mapped memory, on new memory, or on memory that is remapped.

use std::ops::Range;

use stalloc_device::{Device, Stream};

use super::memory::OverBudget;
use super::place::Block;
use super::{Arena, KeyRequest};
use crate::script::Guess;
use crate::statistics::{ServedBy, Statistics};

/// Whose addresses are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Those that no other stream used last: nothing has to be waited for.
    Own,
    /// Others' too.
    All,
}

/// How a place is looked for.
#[derive(Clone, Copy, Debug)]
enum Try {
    /// On memory that is mapped.
    Mapped(Of),
    /// Where it fits best, on new memory as far as it may be had.
    New(Of, OverBudget),
}

/// In this order, where no other stream allocates;
const ALONE: [Try; 2] = [Try::Mapped(Of::Own), Try::New(Of::Own, OverBudget::Refuse)];

/// where others do: new memory before a wait, and more of it than is held else;
const WITH_ROOM: [Try; 5] = [
    Try::Mapped(Of::Own),
    Try::New(Of::Own, OverBudget::Refuse),
    Try::New(Of::Own, OverBudget::Raise),
    Try::Mapped(Of::All),
    Try::New(Of::All, OverBudget::Refuse),
];

/// and where the device itself has little: a wait before new memory.
const SCARCE: [Try; 4] = [
    Try::Mapped(Of::Own),
    Try::Mapped(Of::All),
    Try::New(Of::Own, OverBudget::Refuse),
    Try::New(Of::All, OverBudget::Refuse),
];

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
        self.serve_best_fit(request)
    }

    /// Serves a request that is not a planned one.
    pub(super) fn serve_open(&mut self, guess: Guess, request: KeyRequest, stream: Stream) -> Option<(u32, ServedBy)> {
        self.ledger.count(1, |Statistics { unplanned, .. }| match guess {
            Guess::WithoutOffset => &mut unplanned.without_offset,
            Guess::NotInPlan | Guess::Planned(_) => &mut unplanned.not_in_plan,
            Guess::Unknown => &mut unplanned.position_unknown,
        });
        if guess != Guess::WithoutOffset && self.place.has_plan() && !self.has_departed() {
            self.ledger.departed(self.place.expected(), request.key, stream);
        }
        self.serve_best_fit(request)
    }

    /// The tightest fit above the planned addresses; where that would need more
    /// memory than may be held, one on mapped memory; where there is none either, memory is remapped.
    fn serve_best_fit(&mut self, request: KeyRequest) -> Option<(u32, ServedBy)> {
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

    /// A place in the `first` addresses; where there is none, on mapped memory among its `own`, or memory is remapped there.
    fn claim_within(&mut self, first: Range<u32>, own: Range<u32>, request: KeyRequest) -> Option<u32> {
        let (is_scarce, is_alone) = (self.memory.is_scarce(&self.ledger), self.order.is_alone(request.key.stream()));
        let tries: &[Try] = match (is_alone, is_scarce) {
            (true, _) => &ALONE,
            (false, true) => &SCARCE,
            (false, false) => &WITH_ROOM,
        };
        tries
            .iter()
            .find_map(|&one| self.claim_by(one, &first, request))
            .or_else(|| if first == own { None } else { self.claim_by(Try::Mapped(Of::All), &own, request) })
            .or_else(|| self.claim_remapped(&own, request, is_scarce))
    }

    fn claim_by(&mut self, one: Try, window: &Range<u32>, request: KeyRequest) -> Option<u32> {
        let (owners, key) = (self.order.search(), request.key);
        let (start, over_budget) = match one {
            Try::Mapped(of) => {
                let start = self.place.on_mapped(self.memory.frames(), owners, window, key, of == Of::All)?;
                (start, OverBudget::Refuse)
            }
            Try::New(of, over_budget) => {
                (self.place.tightest(owners, window.clone(), key, of == Of::All)?, over_budget)
            }
        };
        self.claim_found(start, request, over_budget)
    }

    /// Where the fewest pages have to be remapped; where the device has little, in the tightest gap.
    fn claim_remapped(&mut self, own: &Range<u32>, request: KeyRequest, is_scarce: bool) -> Option<u32> {
        let (place, frames, owners, key) = (&mut self.place, self.memory.frames(), self.order.search(), request.key);
        let mut find = |others| {
            let cheapest = if is_scarce { None } else { place.cheapest(frames, owners, own.clone(), key, others) };
            cheapest.or_else(|| place.tightest(owners, own.clone(), key, others))
        };
        let start = find(false).or_else(|| find(true))?;
        self.claim_found(start, request, OverBudget::Remap)
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
