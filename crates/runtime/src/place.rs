//! One device's arena, and the lock around it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stalloc_allocator::{Arena, Error, LiveBlock, Served, Statistics};
use stalloc_device::{Address, Device, Stream};
use stalloc_plan::Plan;

/// What an arena can do, whatever device it is on.
pub trait Serving: Send {
    /// See [`Arena::serve`].
    fn serve(&mut self, size: u64, stream: Stream) -> Option<Served>;
    /// See [`Arena::free`].
    fn free(&mut self, address: Address) -> Result<(), Error>;
    /// See [`Arena::record_stream`].
    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error>;
    /// See [`Arena::set_capturing`].
    fn set_capturing(&mut self, capturing: bool);
    /// See [`Arena::step_begin`].
    fn step_begin(&mut self);
    /// See [`Arena::give_back`].
    fn give_back(&mut self, bytes: u64) -> Result<u64, Error>;
    /// See [`Arena::block`].
    fn block(&self, address: Address) -> Option<LiveBlock>;
    /// See [`Arena::block_around`].
    fn block_around(&self, address: Address) -> Option<LiveBlock>;
    /// See [`Arena::blocks`].
    fn blocks(&self) -> Vec<LiveBlock>;
    /// See [`Arena::addresses`].
    fn addresses(&self) -> Range<Address>;
    /// See [`Arena::statistics`].
    fn statistics(&self) -> Statistics;
}

impl<D: Device + Send> Serving for Arena<D>
where
    D::Event: Send,
{
    fn serve(&mut self, size: u64, stream: Stream) -> Option<Served> {
        self.serve(size, stream)
    }
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.free(address)
    }
    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        self.record_stream(address, stream)
    }
    fn set_capturing(&mut self, capturing: bool) {
        self.set_capturing(capturing);
    }
    fn step_begin(&mut self) {
        self.step_begin();
    }
    fn give_back(&mut self, bytes: u64) -> Result<u64, Error> {
        self.give_back(bytes)
    }
    fn block(&self, address: Address) -> Option<LiveBlock> {
        self.block(address)
    }
    fn block_around(&self, address: Address) -> Option<LiveBlock> {
        self.block_around(address)
    }
    fn blocks(&self) -> Vec<LiveBlock> {
        self.blocks()
    }
    fn addresses(&self) -> Range<Address> {
        self.addresses()
    }
    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}

/// What a place did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What the arena did.
    pub arena: Statistics,
    /// Device memory that the fallback holds now, as last told.
    pub fallback_reserved: u64,
    /// The most device memory that arena and fallback held at once.
    pub peak_reserved: u64,
}

/// Opens the arena for a plan.
pub type Open = fn(&Plan) -> Result<Box<dyn Serving>, Error>;

/// Where a place stands.
enum State {
    /// No plan.
    Empty,
    /// A plan, and nothing asked for yet.
    Prepared(Box<Plan>, Open),
    /// Serving.
    Open(Box<dyn Serving>),
    /// Given up, after one warning.
    Off,
}

/// The arena of one device.
pub struct Place {
    state: Mutex<Inner>,
    /// Whether there is anything behind the lock: what is not planned costs one load.
    active: AtomicBool,
    /// The open arena's address range; 0, 0 before. A free finds its place by these.
    start: AtomicU64,
    end: AtomicU64,
    departed: AtomicBool,
}

struct Inner {
    state: State,
    fallback_reserved: u64,
    peak_reserved: u64,
}

impl Place {
    /// A place without a plan.
    pub const fn new() -> Self {
        Place {
            state: Mutex::new(Inner { state: State::Empty, fallback_reserved: 0, peak_reserved: 0 }),
            active: AtomicBool::new(false),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            departed: AtomicBool::new(false),
        }
    }

    /// Gives it a plan to follow from the first request on; false if it has one already.
    pub fn prepare(&self, plan: Plan, open: Open) -> bool {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Empty) {
            return false;
        }
        inner.state = State::Prepared(Box::new(plan), open);
        self.active.store(true, Ordering::Release);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address lies in its arena.
    pub fn owns(&self, address: Address) -> bool {
        let (start, end) = (self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        (start..end).contains(&address)
    }

    /// Serves a request, or leaves it to the fallback. Also says whether the program left the plan here for the first
    /// time.
    pub fn serve(&self, size: u64, stream: Stream) -> (Option<(Served, u64)>, bool) {
        if !self.active.load(Ordering::Acquire) {
            return (None, false);
        }
        let mut inner = self.lock();
        self.open(&mut inner);
        let State::Open(arena) = &mut inner.state else { return (None, false) };
        // A fault in here must cost the job memory, not its life.
        let Ok(served) = catch_unwind(AssertUnwindSafe(|| arena.serve(size, stream))) else {
            eprintln!("stalloc: an internal fault; nothing more is served from the plan");
            self.active.store(false, Ordering::Release);
            return (None, false);
        };
        let statistics = arena.statistics();
        let bytes = served.and_then(|served| arena.block(served.address)).map_or(0, |block| block.size);
        inner.peak_reserved = inner.peak_reserved.max(statistics.reserved + inner.fallback_reserved);
        drop(inner);
        let departed = statistics.departure.is_some() && !self.departed.swap(true, Ordering::Relaxed);
        (served.map(|served| (served, bytes)), departed)
    }

    fn open(&self, inner: &mut Inner) {
        let State::Prepared(plan, open) = &inner.state else { return };
        match open(plan) {
            Ok(arena) => {
                let range = arena.addresses();
                self.start.store(range.start, Ordering::Release);
                self.end.store(range.end, Ordering::Release);
                inner.state = State::Open(arena);
            }
            Err(error) => {
                eprintln!("stalloc: {error}; this job runs without its plan");
                inner.state = State::Off;
                self.active.store(false, Ordering::Release);
            }
        }
    }

    /// Does something with the open arena.
    pub fn with<T>(&self, act: impl FnOnce(&mut dyn Serving) -> T) -> Option<T> {
        match &mut self.lock().state {
            State::Open(arena) => Some(act(arena.as_mut())),
            _ => None,
        }
    }

    /// The fallback holds this much device memory now.
    pub fn set_fallback_reserved(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.fallback_reserved = bytes;
        let arena = match &inner.state {
            State::Open(arena) => arena.statistics().reserved,
            _ => 0,
        };
        inner.peak_reserved = inner.peak_reserved.max(arena + bytes);
    }

    /// What it did so far; `None` before it served anything.
    pub fn report(&self) -> Option<Report> {
        let inner = self.lock();
        let State::Open(arena) = &inner.state else { return None };
        let (fallback_reserved, peak_reserved) = (inner.fallback_reserved, inner.peak_reserved);
        Some(Report { arena: arena.statistics(), fallback_reserved, peak_reserved })
    }
}
