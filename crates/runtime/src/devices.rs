//! The devices of a process: each has an arena behind a lock, and addresses tell which they belong to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stalloc_allocator::{Error, Freed, LiveBlock, PoolId, Served, Statistics};
use stalloc_device::{Address, Stream};
use stalloc_plan::Plan;

use crate::counters::Counters;
use crate::exports::{Export, Exports};
use crate::messages::say;
use crate::serving::Serving;
use crate::{fork, pinned};

/// How often memory that lies idle is looked for, where a step begins.
const IDLE: Duration = Duration::from_secs(30);

/// What an arena and its fallback did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaReport {
    /// What the arena did.
    pub arena: Statistics,
    /// Device memory that the fallback holds now, as last told.
    pub fallback_reserved: u64,
    /// The most device memory that arena and fallback held at once.
    pub peak_reserved: u64,
    /// The most bytes that tensors used of both at once, whatever peaks the program resets.
    pub peak_allocated: u64,
}

const SHARED: &str = "is shared with another process, which has its memory, so that it cannot be given back: delete shared tensors first";

/// Opens the arena for a plan.
pub type Open = fn(&Plan) -> Result<Box<dyn Serving>, Error>;

/// Where an arena stands.
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

/// The arena of one device behind its lock. Its range of addresses is read without the lock.
pub struct LockedArena {
    state: Mutex<Inner>,
    /// Whether there is anything behind the lock: what is not planned costs one load.
    active: AtomicBool,
    /// The open arena's address range; 0, 0 before. A free finds its arena by these.
    start: AtomicU64,
    end: AtomicU64,
}

struct Inner {
    state: State,
    counters: Counters,
    fallback_reserved: u64,
    fallback_allocated: u64,
    peak_reserved: u64,
    peak_allocated: u64,
    departed: bool,
    /// When idle memory was looked for last.
    looked: Option<Instant>,
    /// Devices that may use the arena's memory, one bit each.
    peers: u64,
    /// Blocks that other processes may open, if there are any.
    exports: Option<Box<Exports>>,
}

impl Inner {
    #[inline]
    fn note_reserved(&mut self, arena: u64) {
        self.counters.set_reserved(arena);
        self.peak_reserved = self.peak_reserved.max(arena + self.fallback_reserved);
    }

    /// Counts a block that was handed out.
    #[inline]
    fn note_served(&mut self, served: &Served, requested: u64) {
        self.note_reserved(served.reserved);
        self.counters.add(served.bytes, requested);
        self.note_allocated();
    }

    #[inline]
    fn note_allocated(&mut self) {
        let allocated = self.counters.all.bytes.current + self.fallback_allocated;
        self.peak_allocated = self.peak_allocated.max(allocated);
    }
}

impl LockedArena {
    /// An arena without a plan.
    pub const fn new() -> Self {
        let inner = Inner {
            state: State::Empty,
            counters: Counters::new(),
            fallback_reserved: 0,
            fallback_allocated: 0,
            peak_reserved: 0,
            peak_allocated: 0,
            departed: false,
            looked: None,
            peers: 0,
            exports: None,
        };
        LockedArena {
            state: Mutex::new(inner),
            active: AtomicBool::new(false),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
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

    /// Takes back a plan that was not begun with: another is to be followed.
    pub fn unprepare(&self) {
        let mut inner = self.lock();
        if matches!(inner.state, State::Prepared(..)) {
            inner.state = State::Empty;
            self.active.store(false, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what should never panic. A fault costs the job memory, not its life: nothing more is served from here, and
    /// what is live stays where it is.
    #[inline]
    fn guarded<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() && self.active.swap(false, Ordering::AcqRel) {
            say("internal error; the job goes on with PyTorch's allocator for new memory");
        }
        done
    }

    /// Serves nothing more, after a fault around it: what is live stays where it is. Takes no lock.
    pub fn retire(&self) {
        self.active.store(false, Ordering::Release);
    }

    /// Whether an address lies in its arena.
    #[inline]
    pub fn owns(&self, address: Address) -> bool {
        let (start, end) = (self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        (start..end).contains(&address)
    }

    /// Whether it has an arena. Takes no lock.
    pub fn is_open(&self) -> bool {
        self.end.load(Ordering::Acquire) > 0
    }

    /// Serves a request, or leaves it to the fallback. Also says whether the program left the plan here for the first
    /// time.
    #[inline]
    pub fn serve(&self, size: u64, stream: Stream) -> (Option<Served>, bool) {
        if !self.active.load(Ordering::Acquire) {
            return (None, false);
        }
        let inner = &mut *self.lock();
        if let State::Prepared(..) = inner.state {
            self.open(inner);
        }
        let State::Open(arena) = &mut inner.state else { return (None, false) };
        let done = self.guarded(|| match arena.serve(size, stream) {
            Some(served) => (Some(served), served.departed, served.reserved),
            None => (None, arena.has_departed(), arena.reserved()),
        });
        let Some((served, departed, reserved)) = done else { return (None, false) };
        match &served {
            Some(served) => inner.note_served(served, size),
            None => inner.note_reserved(reserved),
        }
        let first = departed && !inner.departed;
        inner.departed |= first;
        (served, first)
    }

    /// A graph holds a pool from now on; false if there are no pools here.
    pub fn pool_begin(&self, id: PoolId) -> bool {
        if !self.active.load(Ordering::Acquire) {
            return false;
        }
        let inner = &mut *self.lock();
        if let State::Prepared(..) = inner.state {
            self.open(inner);
        }
        let State::Open(arena) = &mut inner.state else { return false };
        self.guarded(|| arena.pool_begin(id)).unwrap_or(false)
    }

    /// Serves a request from a pool, or leaves it to the fallback.
    pub fn pool_serve(&self, id: PoolId, size: u64, stream: Stream) -> Option<Served> {
        if !self.active.load(Ordering::Acquire) {
            return None;
        }
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let served = self.guarded(|| arena.pool_serve(id, size, stream))??;
        inner.note_served(&served, size);
        Some(served)
    }

    /// Makes other blocks live in a pool: what was freed, and what is live.
    pub fn pool_restore(&self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return Default::default() };
        let Some((freed, live)) = self.guarded(|| arena.pool_restore(id, blocks)) else { return Default::default() };
        freed.iter().for_each(|block| inner.counters.remove(block.size, block.requested));
        live.iter().for_each(|block| inner.counters.add(block.size, block.requested));
        inner.note_allocated();
        (freed, live)
    }

    #[cold]
    fn open(&self, inner: &mut Inner) {
        let State::Prepared(plan, open) = &inner.state else { return };
        let peers = (0..u64::BITS).filter(|peer| inner.peers >> peer & 1 == 1);
        let opened = self.guarded(|| -> Result<_, Error> {
            let mut arena = open(plan)?;
            peers.into_iter().try_for_each(|peer| arena.allow_peer(peer))?;
            Ok(arena)
        });
        let Some(opened) = opened else {
            inner.state = State::Off;
            return;
        };
        match opened {
            Ok(arena) => {
                let range = arena.addresses();
                self.start.store(range.start, Ordering::Release);
                self.end.store(range.end, Ordering::Release);
                inner.state = State::Open(arena);
            }
            Err(error) => {
                say(&format!("{error}; this job runs with PyTorch's allocator"));
                inner.state = State::Off;
                self.active.store(false, Ordering::Release);
            }
        }
    }

    /// Takes a block back and says what it was; `None` if no live block begins at the address.
    #[inline]
    pub fn free(&self, address: Address) -> Option<Freed> {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let block = self.guarded(|| arena.free(address))??;
        inner.counters.remove(block.size, block.requested);
        if inner.exports.is_some() {
            Self::forget_export(inner, address);
        }
        Some(block)
    }

    /// The same, for who wants to know all of the block: whether another stream has not done with it, too.
    pub fn free_told(&self, address: Address) -> Option<LiveBlock> {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let block = self.guarded(|| arena.free_told(address))??;
        inner.counters.remove(block.size, block.requested);
        Self::forget_export(inner, address);
        Some(block)
    }

    #[cold]
    fn forget_export(inner: &mut Inner, address: Address) {
        let Some(exports) = &mut inner.exports else { return };
        exports.forget(address);
        if exports.is_empty() {
            inner.exports = None;
        }
    }

    /// Lets other processes open the live block that begins at an address; `None` if there is none.
    pub fn share(&self, address: Address) -> Option<Result<Export, String>> {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let mut exports = inner.exports.take().unwrap_or_default();
        let shared = self.guarded(|| {
            let block = arena.block_around(address).filter(|block| block.address == address && !block.pending)?;
            Some(exports.share(arena.as_mut(), &block))
        });
        inner.exports = Some(exports).filter(|exports| !exports.is_empty());
        shared?
    }

    /// Does something with the arena if it may sleep now; `None` if there is none. What other processes have open is theirs, too: it
    /// cannot be given back.
    pub fn when_it_may_sleep<T>(
        &self,
        act: impl FnOnce(&mut dyn Serving) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let shared = inner.exports.as_ref().and_then(|exports| exports.first());
        let refused =
            arena.can_sleep().err().or(shared.map(|at| Error::Sleep(format!("the tensor at {at:#x} {SHARED}"))));
        if let Some(error) = refused {
            return Some(Err(error));
        }
        let (done, reserved) = self.guarded(|| (act(arena.as_mut()), arena.reserved()))?;
        inner.note_reserved(reserved);
        Some(done)
    }

    /// Another device may use the arena's memory, now or once it is open; false if that cannot be had.
    pub fn allow_peer(&self, peer: u32) -> bool {
        let inner = &mut *self.lock();
        if peer >= u64::BITS {
            return false;
        }
        inner.peers |= 1 << peer;
        let State::Open(arena) = &mut inner.state else { return true };
        self.guarded(|| arena.allow_peer(peer).is_ok()).unwrap_or(false)
    }

    /// The program begins a step.
    pub fn step_begin(&self) {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return };
        let is_due = inner.looked.get_or_insert_with(Instant::now).elapsed() >= IDLE;
        let begin = || {
            if is_due {
                // What cannot be given back stays.
                let _ = arena.give_back_idle();
            }
            arena.step_begin();
            arena.reserved()
        };
        let Some(reserved) = self.guarded(begin) else { return };
        inner.note_reserved(reserved);
        if is_due {
            inner.looked = Some(Instant::now());
        }
    }

    /// Does something with the open arena.
    pub fn with<T>(&self, act: impl FnOnce(&mut dyn Serving) -> T) -> Option<T> {
        let inner = &mut *self.lock();
        let State::Open(arena) = &mut inner.state else { return None };
        let (result, reserved) = self.guarded(|| (act(arena.as_mut()), arena.reserved()))?;
        inner.note_reserved(reserved);
        Some(result)
    }

    /// What is counted of its arena; then peaks and totals begin again, those that are to.
    pub fn counters(&self, peaks: bool, totals: bool) -> Counters {
        let counters = &mut self.lock().counters;
        let read = *counters;
        if peaks {
            counters.restart_peaks();
        }
        if totals {
            counters.restart_totals();
        }
        read
    }

    /// The fallback holds this much device memory now, and tensors use so many bytes of it.
    pub fn set_fallback(&self, reserved: u64, allocated: u64) {
        let mut inner = self.lock();
        (inner.fallback_reserved, inner.fallback_allocated) = (reserved, allocated);
        let arena = inner.counters.reserved.current;
        inner.note_reserved(arena);
        inner.note_allocated();
    }

    /// What it did so far; `None` before it served anything.
    pub fn report(&self) -> Option<ArenaReport> {
        let inner = self.lock();
        let State::Open(arena) = &inner.state else { return None };
        let Inner { fallback_reserved, peak_reserved, peak_allocated, .. } = *inner;
        Some(ArenaReport { arena: arena.statistics(), fallback_reserved, peak_reserved, peak_allocated })
    }
}

/// The device number of host memory.
pub const HOST: i32 = -1;

/// GPUs that a process can see, at most.
const MOST_GPUS: usize = 64;

/// Arenas of a process: its GPUs and host memory.
pub(crate) const MOST: usize = MOST_GPUS + 1;

static ARENAS: [LockedArena; MOST] = [const { LockedArena::new() }; MOST];

/// Arenas up to here have been given a plan: a free looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn index(device: i32) -> Option<usize> {
    usize::try_from(device.checked_sub(HOST)?).ok().filter(|&index| index < ARENAS.len())
}

/// None in a forked child, which must not touch its lock.
#[inline]
pub(crate) fn of(device: i32) -> Option<&'static LockedArena> {
    if fork::is_child() { None } else { ARENAS.get(index(device)?) }
}

pub(crate) fn used() -> &'static [LockedArena] {
    &ARENAS[..USED.load(Ordering::Acquire)]
}

/// Does something with the arena of a device; `None` if there is none.
pub(crate) fn with<T>(device: i32, act: impl FnOnce(&mut dyn Serving) -> T) -> Option<T> {
    of(device)?.with(act)
}

/// See [`of`].
#[inline]
pub(crate) fn owner(address: Address) -> Option<(i32, &'static LockedArena)> {
    let device = device_of(address)?;
    Some((device, of(device)?))
}

/// The device of the arena that an address lies in, live or not. Takes no lock, so that a forked child may ask.
pub fn device_of(address: Address) -> Option<i32> {
    let index = used().iter().position(|locked| locked.owns(address))?;
    Some(index as i32 + HOST)
}

/// Every arena that may be open, with its device.
pub(crate) fn all() -> impl Iterator<Item = (i32, &'static LockedArena)> {
    used().iter().enumerate().map(|(index, locked)| (index as i32 + HOST, locked))
}

/// No arena serves anything more, after a fault around them. Takes no lock.
pub(crate) fn retire() {
    pinned::retire();
    used().iter().for_each(LockedArena::retire);
}

/// Whether an arena is open on a device. Takes no lock.
pub(crate) fn is_open(device: i32) -> bool {
    index(device).is_some_and(|index| ARENAS[index].is_open())
}

/// Gives the arena at an index a plan to follow, and says how to open it; false if it has a plan already.
pub(crate) fn prepare(index: usize, plan: Plan, open: Open) -> bool {
    let prepared = ARENAS[index].prepare(plan, open);
    USED.fetch_max(index + 1, Ordering::AcqRel);
    prepared
}

#[cfg(test)]
mod tests;
