//! Our arena that learns while the program runs: what `runtime` does in a thread of its own, done between two requests.

use stalloc_allocator::{Allocator, Error, PlannedAllocator};
use stalloc_caching::Rivals;
use stalloc_device::{Address, Device, Stream};
use stalloc_learning::Learning;

use crate::PlacedBy;
use crate::serve::Serve;

/// Requests between two thoughts where the program marks no steps.
const UNMARKED: u32 = 4096;

/// An arena without a plan at the start, and what it has learned.
pub(crate) struct Auto<D: Device, F> {
    served: PlannedAllocator<D, F>,
    learning: Learning,
    rivals: Rivals,
    /// Requests until it is thought again: a step has begun with the last one, or nobody says where steps begin.
    until: u32,
}

impl<D: Device, F: Allocator> Auto<D, F> {
    /// `room`: bytes that the device has.
    pub fn new(mut served: PlannedAllocator<D, F>, room: u64) -> Self {
        served.arena_mut().keep_journal();
        Auto { served, learning: Learning::default(), rivals: Rivals::new(room), until: UNMARKED }
    }

    /// Takes into account what happened, and changes the plan if that is due.
    fn learn(&mut self) {
        let arena = self.served.arena_mut();
        let is_whole = arena.take_journal(self.learning.journal());
        self.rivals.hear(self.learning.journal(), is_whole);
        self.rivals.now().inspect(|now| arena.rivals_hold(now.least, now.given_back));
        self.learning.hear(is_whole);
        let mut proposed = self.learning.think(&arena.statistics());
        while let Some(proposal) = proposed {
            drop(arena.take_retired());
            let (is_plan, frames) = (proposal.is_plan(), proposal.frames(arena.frame_bytes()));
            let accepted = arena.propose(proposal.script, &frames);
            proposed = self.learning.answered(is_plan, accepted);
        }
    }
}

impl<D: Device, F: Allocator> Allocator for Auto<D, F> {
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        self.served.malloc(size, stream)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.served.free(address)
    }

    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        self.served.record_stream(address, stream)
    }

    fn step_begin(&mut self) {
        self.served.step_begin();
        self.until = 1;
    }

    fn allocated(&self) -> u64 {
        self.served.allocated()
    }

    fn reserved(&self) -> u64 {
        self.served.reserved()
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.served.empty_cache()
    }
}

impl<D: Device, F: Allocator> Serve for Auto<D, F>
where
    PlannedAllocator<D, F>: Serve,
{
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, PlacedBy), Error> {
        let served = Serve::serve(&mut self.served, size, stream);
        self.until -= 1;
        if self.until == 0 {
            self.learn();
            self.until = UNMARKED;
        }
        served
    }

    fn remaps(&self) -> Option<(u64, u64)> {
        self.served.remaps()
    }

    fn planned(&self) -> Option<u64> {
        self.served.planned()
    }
}
