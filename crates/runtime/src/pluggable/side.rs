//! One device as `CUDAPluggableAllocator` sees it: the arena first, then the fallback, and the books of both.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stalloc_allocator::Error;
use stalloc_caching::Settings;
use stalloc_device::{Address, Gpu, Host, Stream};

use super::exception::Kind;
use super::fallback::{CachingFallback, Counts, Fallback, PoolId};
use super::figures::Figures;
use super::history::{self, Action, Entry, History, Level, Memory, Stack, Subject};
use super::message::{Holdings, out_of_memory};
use super::snapshot::{self, Snapshot};
use super::{is_caching, profiler};
use crate::fork;
use crate::messages::say;
use crate::order;
use crate::places::{self, HOST};
use crate::segments;

/// Host memory that may be taken, bytes: what the operating system allows is found when pages are touched.
const HOST_BYTES: u64 = 1 << 40;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exception to raise.
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// What observers of memory that ran out are told: bytes allowed and bytes free. `None` if they are not.
    pub memory: Option<(u64, u64)>,
}

impl Refusal {
    /// A failure that has nothing to do with how much memory there is.
    pub fn other(text: String) -> Self {
        Refusal { kind: Kind::Other, text, memory: None }
    }
}

/// Larger requests PyTorch's own allocator refuses without a look at the device, bytes.
const LARGEST: u64 = 1 << 60;

/// One device.
pub struct Side {
    inner: Mutex<Inner>,
    /// Whether there is a fallback: where there is none, no lock is needed to see that an address is not its.
    opened: AtomicBool,
    /// Private pools that are being allocated to: the arena serves nothing then.
    redirected: AtomicUsize,
    /// A history is kept.
    remembers: AtomicBool,
    /// Of what it keeps call stacks: a [`Level`].
    level: AtomicU8,
    /// A capture has ended, and what waited for that has not been done.
    capture_ended: AtomicBool,
}

struct Inner {
    fallback: Option<Box<dyn Fallback>>,
    settings: Option<Settings>,
    /// The share of the device that may be reserved.
    fraction: f64,
    figures: Figures,
    counts: Counts,
    /// The counts when they were last reset.
    counts_before: Counts,
    /// The fallback's live bytes and device memory.
    allocated: u64,
    reserved: u64,
    /// The live bytes that the arena's place was last told.
    told: u64,
    history: History,
    /// When memory was last noted in the history: changes of the arena's, and the fallback's counts.
    noted: (u64, (u64, u64, u64)),
}

/// Everything that PyTorch's statistics hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// What is counted as it happens.
    pub figures: Figures,
    /// What the fallback counts.
    pub counts: Counts,
    /// `max_split_size` in bytes, if there is one.
    pub max_split_size: Option<u64>,
}

/// Device memory behind the arena, bytes.
fn arena_reserved(device: i32) -> u64 {
    places::arena(device).map_or(0, |(_, reserved)| reserved)
}

/// What the arena's memory is to the history.
fn kind_of_arena(device: i32) -> Memory {
    if places::is_solid(device) { Memory::Solid } else { Memory::Arena }
}

fn open(device: i32, settings: Settings) -> Result<Box<dyn Fallback>, Error> {
    fork::in_use();
    if device == HOST {
        return Ok(Box::new(CachingFallback::new(Host::new(HOST_BYTES), settings)));
    }
    let ordinal = u32::try_from(device).unwrap_or(u32::MAX);
    let gpu = match Gpu::cuda(ordinal) {
        Ok(gpu) => gpu,
        Err(cuda) => Gpu::hip(ordinal).map_err(|_| cuda)?,
    };
    Ok(Box::new(CachingFallback::new(gpu, settings)))
}

impl Side {
    /// A device that nobody has asked for memory.
    pub const fn new() -> Self {
        Side {
            inner: Mutex::new(Inner {
                fallback: None,
                settings: None,
                fraction: 1.0,
                figures: Figures::ZERO,
                counts: Counts::new(),
                counts_before: Counts::new(),
                allocated: 0,
                reserved: 0,
                told: 0,
                history: History::new(),
                noted: (0, (0, 0, 0)),
            }),
            opened: AtomicBool::new(false),
            redirected: AtomicUsize::new(0),
            remembers: AtomicBool::new(false),
            level: AtomicU8::new(Level::Never as u8),
            capture_ended: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the fallback behaves, from its first request on.
    pub fn set_settings(&self, settings: Settings) {
        self.lock().settings = Some(settings);
    }

    /// Serves `size` bytes on a stream; 0 for 0 bytes, as PyTorch's own allocator does.
    pub fn malloc(&self, device: i32, size: u64, stream: Stream) -> Result<Address, Refusal> {
        if size == 0 {
            return Ok(0);
        }
        if size >= LARGEST {
            let text = "CUDA out of memory. Tried to allocate more than 1EB memory.".to_owned();
            return Err(Refusal { kind: Kind::OutOfMemory, text, memory: None });
        }
        self.settle(device);
        let stack = self.stack(Level::State);
        if self.redirected.load(Ordering::Acquire) == 0
            && is_caching()
            // No lock is held: the arena may call back.
            && let Some(served) = places::serve(device, size, stream)
        {
            let mut inner = self.lock();
            inner.figures.add(served.bytes, size);
            inner.reserve(served.reserved);
            let told = inner.allocated(device, Subject { address: served.address, size, stream }, served.bytes, stack);
            drop(inner);
            tell(device, told);
            return Ok(served.address);
        }
        self.opened.store(true, Ordering::Release);
        let mut inner = self.lock();
        match inner.malloc(device, size, stream) {
            Ok(address) => {
                let bytes =
                    inner.fallback.as_ref().and_then(|fallback| fallback.held(address)).map_or(0, |held| held.size);
                order::handed_out(device, address, bytes, stream);
                let told = inner.allocated(device, Subject { address, size, stream }, bytes, stack);
                drop(inner);
                tell(device, told);
                Ok(address)
            }
            Err(Error::OutOfMemory { .. } | Error::Device(stalloc_device::Error::OutOfMemory { .. })) => {
                Err(inner.refuse(device, size, stream, stack))
            }
            Err(error) => Err(Refusal::other(format!("stalloc: GPU {device}: {error}"))),
        }
    }

    /// Takes a block back that the arena did not hand out.
    pub fn free(&self, device: i32, address: Address) {
        self.settle(device);
        let stack = self.stack(Level::All);
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(held) = inner.fallback.as_ref().and_then(|fallback| fallback.held(address))
            && !held.uncached
        {
            inner.history.leave(Subject { address, size: held.requested, stream: held.stream }, stack.clone());
        }
        order::given_back(device, address);
        let freed =
            catch_unwind(AssertUnwindSafe(|| inner.fallback.as_mut().and_then(|fallback| fallback.free(address))));
        match freed {
            Ok(Some(held)) if !held.uncached => {
                inner.figures.remove(held.size, held.requested);
                inner.allocated = inner.allocated.saturating_sub(held.size);
                inner.recount(device);
                inner.complete();
                inner.note_memory(device, stack.as_ref());
                let told = inner.told_of(address, -(held.size as i64));
                drop(guard);
                tell(device, told);
            }
            Ok(_) => {}
            Err(_) => inner.give_up(),
        }
    }

    /// A block of the arena is about to be given back. It is noted now: once it is free, another thread may get it.
    pub fn leave(&self, address: Address) {
        if !self.remembers.load(Ordering::Acquire) {
            return;
        }
        if let Some(block) = places::block_around(address)
            && block.address == address
            && !block.pending
        {
            let stack = self.stack(Level::All);
            self.lock().history.leave(Subject { address, size: block.requested, stream: block.stream }, stack);
        }
    }

    /// A block of the arena was given back.
    pub fn freed(&self, device: i32, address: Address, size: u64, requested: u64) {
        let mut inner = self.lock();
        inner.figures.remove(size, requested);
        inner.complete();
        let told = inner.told_of(address, -(size as i64));
        drop(inner);
        tell(device, told);
    }

    /// The program says something of a block that it holds; false if it is none of this device.
    pub fn annotate(&self, address: Address, text: &str) -> bool {
        let stack = self.stack(Level::Alloc);
        let mut inner = self.lock();
        let held = inner.fallback.as_ref().and_then(|fallback| fallback.held(address));
        let of_arena = || places::block_around(address).map(|block| (block.address, block.requested, block.stream));
        let held = held.map(|held| (address, held.requested, held.stream)).or_else(of_arena);
        let Some((address, size, stream)) = held else { return false };
        inner.history.annotate(Subject { address, size, stream }, text, stack);
        true
    }

    /// Another stream uses a block that is not the arena's.
    pub fn record_stream(&self, address: Address, stream: Stream) -> bool {
        if !self.opened.load(Ordering::Acquire) {
            return false;
        }
        let mut inner = self.lock();
        let Some(fallback) = &mut inner.fallback else { return false };
        let known = fallback.held(address).is_some();
        // A stream's handle says which one it is, but for the default stream, which no block needs to be recorded for.
        order::used_on(0, address, stream);
        fallback.record_stream(address, stream);
        known
    }

    /// Start and length of a block that is not the arena's.
    pub fn block(&self, address: Address) -> Option<(Address, u64)> {
        if !self.opened.load(Ordering::Acquire) {
            return None;
        }
        let held = self.lock().fallback.as_ref()?.held(address)?;
        Some((address, held.size))
    }

    /// Gives back what nobody uses.
    pub fn empty_cache(&self, device: i32) {
        self.settle(device);
        let stack = self.stack(Level::All);
        if self.redirected.load(Ordering::Acquire) == 0 {
            places::trim(device);
        }
        let mut inner = self.lock();
        if let Some(fallback) = &mut inner.fallback {
            // A device that refuses keeps its memory; nothing else is lost.
            let _ = fallback.empty_cache();
        }
        inner.figures.waits += 1;
        inner.recount(device);
        inner.reserve(arena_reserved(device));
        inner.note_memory(device, stack.as_ref());
    }

    /// Reserve no more than this share of the device, arena and fallback together.
    pub fn set_fraction(&self, device: i32, fraction: f64) {
        let mut inner = self.lock();
        inner.fraction = fraction;
        // Without a device there is no arena either.
        let _ = inner.open(device);
        let limit = inner.limit().unwrap_or(u64::MAX);
        places::set_limit(device, limit);
        // What is held beyond it and not in use goes back now: it would be served from without a question.
        if arena_reserved(device) > limit {
            places::trim(device);
        }
    }

    /// See [`Side::set_fraction`].
    pub fn fraction(&self) -> f64 {
        self.lock().fraction
    }

    /// A graph is about to be captured, its memory from a pool.
    pub fn begin_pool(&self, device: i32, pool: PoolId) {
        self.settle(device);
        let mut inner = self.lock();
        if inner.open(device).is_ok()
            && let Some(fallback) = &mut inner.fallback
        {
            fallback.begin_pool(pool);
        }
        drop(inner);
        self.redirected.fetch_add(1, Ordering::AcqRel);
        places::set_capturing(device, true);
    }

    /// It has been captured.
    pub fn end_pool(&self, pool: PoolId) {
        if let Some(fallback) = &mut self.lock().fallback {
            fallback.end_pool(pool);
        }
        let ended = self.redirected.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        if ended == Ok(1) {
            self.capture_ended.store(true, Ordering::Release);
        }
    }

    /// A graph that used a pool is gone.
    pub fn release_pool(&self, device: i32, pool: PoolId) {
        self.settle(device);
        let mut inner = self.lock();
        if let Some(fallback) = &mut inner.fallback {
            fallback.release_pool(pool);
        }
        inner.recount(device);
    }

    /// Does what waited for the end of a capture. PyTorch says that it no longer allocates to a pool, not that the
    /// capture is over: by the next call it is.
    fn settle(&self, device: i32) {
        if self.capture_ended.load(Ordering::Acquire) && self.capture_ended.swap(false, Ordering::AcqRel) {
            places::set_capturing(device, false);
            if let Some(fallback) = &mut self.lock().fallback {
                fallback.end_capture();
            }
        }
    }

    /// The statistics. O(blocks): some of them are found by looking.
    pub fn books(&self, device: i32) -> Books {
        let segments = self.segments(device);
        let mut inner = self.lock();
        inner.recount(device);
        inner.reserve(arena_reserved(device));
        let (active, split) = snapshot::tally(&segments);
        inner.figures.look(active, split);
        let max_split_size = inner.settings.as_ref().and_then(|settings| settings.max_split_size);
        let figures = inner.figures.with_small(segments::small_bytes(&segments));
        Books { figures, counts: inner.counts.since(inner.counts_before), max_split_size }
    }

    /// Every segment; while no history is kept, those of the arena by pool.
    pub fn snapshot(&self, device: i32) -> Snapshot {
        let segments = self.segments(device);
        if self.lock().history.is_kept() { segments } else { segments::by_pool(segments) }
    }

    /// Every segment, the arena's one for each part that is mapped.
    fn segments(&self, device: i32) -> Snapshot {
        let arena = segments::of_arena(device);
        let inner = self.lock();
        let fallback =
            inner.fallback.as_ref().map(|fallback| snapshot::of_fallback(fallback.as_ref())).unwrap_or_default();
        fallback.into_iter().chain(arena).collect()
    }

    /// Peaks start again from what is now.
    pub fn reset_peaks(&self) {
        self.lock().figures.restart_peaks();
    }

    /// What was added and taken away is counted from 0 again.
    pub fn reset_accumulated(&self) {
        let mut inner = self.lock();
        inner.figures.restart_totals();
        inner.counts_before = inner.counts;
    }

    /// After a fault around it, starts again with nothing: see [`Inner::give_up`].
    pub fn give_up(&self) {
        self.lock().give_up();
    }

    /// Keeps a history of up to `most` entries; 0 ends it.
    pub fn keep_history(&self, device: i32, most: usize, level: Level, clear: bool, skipped: &[String]) {
        let mut inner = self.lock();
        self.remembers.store(most > 0, Ordering::Release);
        self.level.store(level as u8, Ordering::Release);
        if clear {
            inner.history.clear();
        }
        if most > 0 && !inner.history.is_kept() {
            inner.look_at_memory(device);
        }
        inner.history.keep(most, level, skipped);
    }

    /// The call stack of this thread, if the history keeps such. No lock is held.
    fn stack(&self, least: Level) -> Option<Stack> {
        let wanted = self.remembers.load(Ordering::Acquire) && self.level.load(Ordering::Acquire) >= least as u8;
        if wanted { history::stack() } else { None }
    }

    /// From where the live block at an address was asked for.
    pub fn stack_of(&self, address: Address) -> Option<Stack> {
        if self.remembers.load(Ordering::Acquire) { self.lock().history.stack_of(address) } else { None }
    }

    /// The history, oldest first.
    pub fn history(&self) -> Vec<Entry> {
        let mut inner = self.lock();
        inner.complete();
        inner.history.entries()
    }
}

/// What the profiler is told: where, how many bytes, and bytes in use and held after it.
type Told = Option<(Address, i64, u64, u64)>;

/// No lock is held: the profiler is foreign code.
#[inline]
fn tell(device: i32, told: Told) {
    if let Some((address, bytes, allocated, reserved)) = told {
        profiler::report(device, address, bytes, allocated, reserved);
    }
}

impl Inner {
    fn open(&mut self, device: i32) -> Result<(), Error> {
        if self.fallback.is_none() {
            self.fallback = Some(open(device, self.settings.get_or_insert_default().clone())?);
        }
        Ok(())
    }

    /// A block was handed out.
    #[inline]
    fn allocated(&mut self, device: i32, subject: Subject, bytes: u64, stack: Option<Stack>) -> Told {
        if self.history.is_kept() {
            self.complete();
            self.note_memory(device, stack.as_ref());
            self.history.allocated(subject, stack);
        }
        self.told_of(subject.address, bytes as i64)
    }

    #[inline]
    fn told_of(&self, address: Address, bytes: i64) -> Told {
        if !profiler::is_listening() {
            return None;
        }
        let figures = &self.figures;
        Some((address, bytes, figures.allocated_bytes().all.current, figures.reserved_bytes.all.current))
    }

    /// Notes the memory that came and went since this was last asked.
    fn note_memory(&mut self, device: i32, stack: Option<&Stack>) {
        if !self.history.is_kept() {
            return;
        }
        if places::memory_changes(device) != self.noted.0 {
            let (parts, changes) = places::mapped(device);
            self.noted.0 = changes;
            self.history.memory_is(kind_of_arena(device), parts, stack);
        }
        let counts = (self.counts.device_allocs, self.counts.device_frees, self.counts.reserved);
        if counts != self.noted.1 {
            self.noted.1 = counts;
            let [whole, mapped] = self.memory_of_fallback();
            self.history.memory_is(Memory::Whole, whole, stack);
            self.history.memory_is(Memory::Mapped, mapped, stack);
        }
    }

    /// Takes memory for noted as it is.
    fn look_at_memory(&mut self, device: i32) {
        self.recount(device);
        let (parts, changes) = places::mapped(device);
        self.noted = (changes, (self.counts.device_allocs, self.counts.device_frees, self.counts.reserved));
        let [whole, mapped] = self.memory_of_fallback();
        self.history.memory_was(kind_of_arena(device), parts);
        self.history.memory_was(Memory::Whole, whole);
        self.history.memory_was(Memory::Mapped, mapped);
    }

    /// What the fallback holds, in the order of addresses: taken at once, and mapped.
    fn memory_of_fallback(&self) -> [Vec<Range<Address>>; 2] {
        let mut held = [Vec::new(), Vec::new()];
        let segments = self.fallback.as_ref().map(|fallback| fallback.segments()).unwrap_or_default();
        for (_, segment) in segments {
            held[usize::from(segment.expandable)].push(segment.address..segment.address + segment.size);
        }
        for ranges in &mut held {
            ranges.sort_by_key(|range| range.start);
        }
        held
    }

    /// Notes the end of blocks that no stream uses any more.
    #[inline]
    fn complete(&mut self) {
        if self.history.is_kept() {
            let fallback = &self.fallback;
            self.history.complete(|address| {
                let of_arena =
                    places::block_around(address).is_some_and(|block| block.pending && block.address == address);
                of_arena || fallback.as_ref().is_some_and(|fallback| fallback.is_pending(address))
            });
        }
    }

    fn malloc(&mut self, device: i32, size: u64, stream: Stream) -> Result<Address, Error> {
        self.open(device)?;
        if !is_caching()
            && let Some(fallback) = &mut self.fallback
        {
            return fallback.malloc_uncached(size, stream);
        }
        let attempt = catch_unwind(AssertUnwindSafe(|| self.try_malloc(device, size, stream)));
        attempt.unwrap_or_else(|_| {
            self.give_up();
            Err(Error::Device(stalloc_device::Error::Unsupported(
                "serve this request after an internal error; it is safe to retry",
            )))
        })
    }

    fn try_malloc(&mut self, device: i32, size: u64, stream: Stream) -> Result<Address, Error> {
        let limit = self.limit();
        if limit.is_none() {
            return self.malloc_within(None, device, size, stream);
        }
        // Meanwhile the arena takes no more, or both together could.
        places::set_limit(device, 0);
        let served = self.malloc_within(limit, device, size, stream);
        places::set_limit(device, limit.unwrap_or(u64::MAX));
        served
    }

    fn malloc_within(&mut self, limit: Option<u64>, device: i32, size: u64, stream: Stream) -> Result<Address, Error> {
        let Some(fallback) = &mut self.fallback else { return Err(Error::UnknownAddress(0)) };
        let allowed = |device| limit.map(|limit| limit.saturating_sub(arena_reserved(device)));
        fallback.set_memory_limit(allowed(device));
        let mut result = fallback.malloc(size, stream);
        if matches!(result, Err(Error::OutOfMemory { .. })) && places::trim(device) > 0 {
            fallback.set_memory_limit(allowed(device));
            result = fallback.malloc(size, stream);
        }
        let served = result.map(|(address, held)| {
            self.figures.add(held.size, held.requested);
            self.allocated += held.size;
            address
        });
        self.recount(device);
        self.reserve(arena_reserved(device));
        served
    }

    /// Bytes that may be reserved, if not all.
    fn limit(&self) -> Option<u64> {
        if self.fraction >= 1.0 {
            return None;
        }
        let total = self.fallback.as_ref()?.memory_info()?.total;
        Some((self.fraction.max(0.0) * total as f64) as u64)
    }

    /// Reads the fallback's own counts again, after they may have changed.
    fn recount(&mut self, device: i32) {
        let Some(fallback) = &self.fallback else { return };
        let before = std::mem::replace(&mut self.counts, fallback.counts());
        self.figures.waits += self.counts.retries - before.retries.min(self.counts.retries);
        if std::mem::replace(&mut self.told, self.allocated) != self.allocated || self.counts != before {
            places::fallback_holds(device, self.counts.reserved, self.allocated);
        }
        if self.counts == before {
            return;
        }
        self.reserved = self.counts.reserved;
        self.reserve(arena_reserved(device));
    }

    /// Reads what is reserved again, after it may have changed.
    #[inline]
    fn reserve(&mut self, arena: u64) {
        self.figures.reserve(arena, self.reserved, || {
            self.fallback.as_ref().map(|fallback| snapshot::reserved(fallback.as_ref())).unwrap_or_default()
        });
    }

    fn refuse(&mut self, device: i32, size: u64, stream: Stream, stack: Option<Stack>) -> Refusal {
        self.figures.out_of_memory += 1;
        let info = self.fallback.as_ref().and_then(|fallback| fallback.memory_info());
        let arena = arena_reserved(device);
        let arena_allocated = places::report(device).map_or(0, |report| report.arena.allocated);
        let held = Holdings { arena, arena_allocated, fallback: self.reserved, fallback_allocated: self.allocated };
        let free = info.map_or(0, |info| info.free);
        let limit = self.limit();
        self.note_memory(device, stack.as_ref());
        self.history.note(Action::OutOfMemory, Subject { address: free, size, stream }, stack);
        let memory = Some((limit.or(info.map(|info| info.total)).unwrap_or(0), free));
        Refusal { kind: Kind::OutOfMemory, text: out_of_memory(device, size, info, held, limit), memory }
    }

    /// After a fault, starts again with nothing: what was handed out stays as it is for ever, so that no part of it is
    /// handed out twice.
    fn give_up(&mut self) {
        say("internal error in the fallback; its memory is not used again");
        if let Some(lost) = self.fallback.take() {
            std::mem::forget(lost);
        }
    }
}
