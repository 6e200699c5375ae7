//! Our arena that learns while the program runs: what `runtime` does in a thread of its own, done between two requests.

use stalloc_allocator::{Allocator, Error, Event, GRANULE, PlannedAllocator, Script};
use stalloc_device::{Address, Device, Stream};
use stalloc_synthesizer::Learner;

use crate::Source;
use crate::run::Serve;

/// An arena without a plan at the start, and what it has learned.
pub(crate) struct Auto<D: Device, F> {
    served: PlannedAllocator<D, F>,
    learner: Learner,
    events: Vec<Event>,
    /// A step has begun that the learner has not been asked about.
    has_begun: bool,
    /// A plan was proposed, and none without offsets after it.
    has_plan: bool,
}

impl<D: Device, F: Allocator> Auto<D, F> {
    pub fn new(mut served: PlannedAllocator<D, F>) -> Self {
        served.arena_mut().keep_journal();
        Auto { served, learner: Learner::new(), events: Vec::new(), has_begun: false, has_plan: false }
    }

    /// Tells the learner what happened, and makes a plan if one is due.
    fn learn(&mut self) {
        if !self.served.arena_mut().take_journal(&mut self.events) {
            self.learner = Learner::new();
        }
        for event in &self.events {
            match *event {
                Event::Alloc { start, granules, stream } => {
                    self.learner.alloc(start.into(), u64::from(granules) * GRANULE, stream.into());
                }
                Event::Free { start } => self.learner.free(start.into()),
                Event::StepBegin => self.learner.step_begin(),
            }
        }
        if self.learner.is_draft_due() {
            let plan = self.learner.draft().plan(|start| Some(start * GRANULE));
            // Without a plan the open arena goes on.
            if let Some(script) = plan.ok().and_then(|plan| Script::new(&plan).ok()) {
                self.has_plan |= self.propose(script);
            }
        } else if self.has_plan && !self.learner.repeats_now() {
            self.has_plan = !self.propose(Script::default());
        }
    }

    fn propose(&mut self, script: Script) -> bool {
        let arena = self.served.arena_mut();
        drop(arena.take_retired());
        let frames = arena.frame_bytes().map_or_else(Default::default, |size| script.frames(size));
        arena.propose(script, &frames)
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
        self.has_begun = true;
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
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, Source), Error> {
        let served = Serve::serve(&mut self.served, size, stream);
        if std::mem::take(&mut self.has_begun) {
            self.learn();
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
