//! The C interface. `tests/header.rs` makes the shims' `core.h` from these types; change the version with them.

mod types;

use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::ptr;

use stalloc_allocator::LiveBlock;
use stalloc_device::Address;

use crate::arenas;
use crate::counters::Counters;
use crate::fault::contained;
use crate::pinned::{self, PinnedCounters};
use crate::{registry, segments};

pub use types::{CoreArena, CoreBlock, CoreExport, CorePart, CorePoolPart, CoreRange};

/// A shim refuses a core of another version than it was compiled for.
pub const VERSION: u32 = 13;

/// The functions that a shim calls. None throws or ends the process, whatever goes wrong in it, and none calls back into the shim.
/// Every one may be called from any thread.
#[repr(C)]
pub struct Core {
    version: u32,
    /// Serves `bytes` on a stream of a device from its arena and says how many bytes the block really takes. Null: the
    /// request is the fallback's.
    serve: unsafe extern "C" fn(device: i32, bytes: usize, stream: *mut c_void, rounded: *mut usize) -> *mut c_void,
    /// Takes a block back and returns its rounded bytes; 0 if the address is no live block of an arena. Says what it was, if `block`
    /// is not null, and whether another stream has not done with it.
    release: unsafe extern "C" fn(address: *mut c_void, device: *mut i32, block: *mut CoreBlock) -> usize,
    /// Finds the live block that an address lies in: 1 if there is one.
    find: unsafe extern "C" fn(address: *const c_void, block: *mut CoreBlock) -> i32,
    /// A block is used on another stream: it is not handed out again before that stream is done with it.
    record_stream: extern "C" fn(address: *mut c_void, stream: *mut c_void),
    /// Work is being captured into a CUDA graph (or no longer): the arena serves nothing and polls no event meanwhile.
    capturing: extern "C" fn(device: i32, active: i32),
    /// Gives device memory back that no live block needs; returns the bytes.
    trim: extern "C" fn(device: i32) -> u64,
    /// The arena's range and the memory behind it.
    arena: unsafe extern "C" fn(device: i32, out: *mut CoreArena),
    /// What is counted of the arena; then peaks begin again at what there is, and totals at nothing, if they are to.
    counters: unsafe extern "C" fn(device: i32, out: *mut Counters, restart_peaks: i32, restart_totals: i32),
    /// Whether an address lies in an arena, live or not, and of which device. Takes no lock.
    owns: unsafe extern "C" fn(address: *const c_void, device: *mut i32) -> i32,
    /// Lets the device `peer` use the memory of `device`'s arena; 0 if that cannot be had.
    allow_peer: extern "C" fn(device: i32, peer: i32) -> i32,
    /// What the fallback holds, after it may have changed: device memory, and the bytes of it that tensors use.
    fallback_holds: extern "C" fn(device: i32, reserved: u64, allocated: u64),
    /// Arena and fallback together may hold so much device memory: the arena takes no more than the fallback leaves of it.
    /// It keeps what it has. UINT64_MAX: no limit.
    limit: extern "C" fn(device: i32, bytes: u64),
    /// Whether the arena is one allocation of the driver's: 1 if so.
    is_solid: extern "C" fn(device: i32) -> i32,
    /// How often the memory behind the arena changed so far. Takes no lock.
    memory_changes: extern "C" fn(device: i32) -> u64,
    /// Copies up to `capacity` parts of the arena's range that have memory behind them, in the order of addresses; returns how many
    /// there are. `changes` is how often that memory had changed then.
    memory: unsafe extern "C" fn(device: i32, out: *mut CoreRange, capacity: usize, changes: *mut u64) -> usize,
    /// Copies up to `capacity` parts of the arena's segments, all as they are at one moment, in the order of addresses; returns how
    /// many there are. With `by_pool`, small blocks have segments of their own, so that the sums over segments of a kind are the
    /// statistics by pool.
    parts: unsafe extern "C" fn(device: i32, by_pool: i32, out: *mut CorePart, capacity: usize) -> usize,
    /// A graph, or who runs before it is captured, holds a pool of the arena's from now on, until `pool_end`: 1; 0 if the arena has
    /// no pools. A pool's addresses stay its own while anybody holds it.
    pool_begin: extern "C" fn(device: i32, first: u64, second: u64) -> i32,
    pool_end: extern "C" fn(device: i32, first: u64, second: u64),
    /// As `serve`, from a pool; while a graph is captured, too.
    pool_serve: unsafe extern "C" fn(
        device: i32,
        first: u64,
        second: u64,
        bytes: usize,
        stream: *mut c_void,
        rounded: *mut usize,
    ) -> *mut c_void,
    /// Copies up to `capacity` parts of all pools, in the order of addresses; returns how many there are.
    pool_parts: unsafe extern "C" fn(device: i32, out: *mut CorePoolPart, capacity: usize) -> usize,
    /// What lives in a pool is freed, and these blocks, which lived there at one moment, live again; returns how many of them do.
    pool_restore:
        unsafe extern "C" fn(device: i32, first: u64, second: u64, blocks: *const CoreBlock, count: usize) -> usize,
    /// Serves `bytes` of pinned memory; new memory is taken with the driver of a GPU. Null: the request is PyTorch's.
    pinned_serve: extern "C" fn(device: i32, bytes: usize) -> *mut c_void,
    /// Takes back what `pinned_serve` handed out. It is handed out again once the streams that used it are done.
    pinned_release: extern "C" fn(address: *mut c_void),
    /// A stream of a GPU was given work on the pinned block that an address lies in: 1; 0 if that is no block of ours.
    pinned_record: extern "C" fn(address: *const c_void, device: i32, stream: *mut c_void) -> i32,
    /// Gives pinned memory back that holds no block; returns the bytes.
    pinned_trim: extern "C" fn() -> u64,
    /// What is counted of pinned memory; then peaks begin again at what there is, and totals at nothing, if they are to.
    pinned_counters: unsafe extern "C" fn(out: *mut PinnedCounters, restart_peaks: i32, restart_totals: i32),
    /// Bytes of the arena that are on the host, and without device memory until the program has it wake; 0 while it is awake.
    asleep: extern "C" fn(device: i32) -> u64,
    /// Lets other processes open the block that begins at an address, until it is released. Copies up to `capacity` descriptors,
    /// which stay the core's, and returns how many there are. 0: they cannot; why is in `why`, at most `room` bytes with a zero at
    /// the end.
    share: unsafe extern "C" fn(
        address: *const c_void,
        out: *mut CoreExport,
        descriptors: *mut i32,
        capacity: usize,
        why: *mut c_char,
        room: usize,
    ) -> usize,
}

static CORE: Core = Core {
    version: VERSION,
    serve,
    release,
    find,
    record_stream,
    capturing,
    trim,
    arena,
    counters,
    owns,
    allow_peer,
    fallback_holds,
    limit,
    is_solid,
    memory_changes,
    memory,
    parts,
    pool_begin,
    pool_end,
    pool_serve,
    pool_parts,
    pool_restore,
    pinned_serve,
    pinned_release,
    pinned_record,
    pinned_trim,
    pinned_counters,
    asleep,
    share,
};

/// The table, for a shim.
pub fn core() -> &'static Core {
    &CORE
}

fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// `out` is null or may be written.
#[inline]
unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *out = value };
    }
}

/// Copies as many as there is room for and returns how many there are.
///
/// # Safety
/// `out` has room for `capacity`.
unsafe fn copy<T>(all: impl IntoIterator<Item = T>, out: *mut T, capacity: usize) -> usize {
    let mut count = 0;
    for one in all {
        if count < capacity {
            // SAFETY: the caller's promise, and `count < capacity`.
            unsafe { *out.add(count) = one };
        }
        count += 1;
    }
    count
}

/// # Safety
/// `rounded` is null or may be written.
unsafe extern "C" fn serve(device: i32, bytes: usize, stream: *mut c_void, rounded: *mut usize) -> *mut c_void {
    let serve = || {
        let Some(served) = arenas::serve(device, bytes as u64, address(stream)) else { return ptr::null_mut() };
        // SAFETY: the caller's promise.
        unsafe { put(rounded, served.bytes as usize) };
        pointer(served.address)
    };
    contained("serve", serve, ptr::null_mut)
}

/// # Safety
/// `device` and `out` are null or may be written.
unsafe extern "C" fn release(freed: *mut c_void, device: *mut i32, out: *mut CoreBlock) -> usize {
    let release = || {
        let (number, size) = if out.is_null() {
            let Some((number, block)) = arenas::free(address(freed)) else { return 0 };
            (number, block.size)
        } else {
            let Some((number, block)) = arenas::free_told(address(freed)) else { return 0 };
            // SAFETY: the caller's promise.
            unsafe { *out = block.into() };
            (number, block.size)
        };
        // SAFETY: the caller's promise.
        unsafe { put(device, number) };
        size as usize
    };
    contained("release", release, || 0)
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn find(inside: *const c_void, out: *mut CoreBlock) -> i32 {
    let find = || {
        let Some(block) = arenas::block_around(address(inside)) else { return 0 };
        // SAFETY: the caller's promise.
        unsafe { put(out, block.into()) };
        1
    };
    contained("find", find, || 0)
}

// After a fault nothing is served any more: a block that another stream uses is not handed out again either.
extern "C" fn record_stream(used: *mut c_void, stream: *mut c_void) {
    contained("record_stream", || arenas::record_stream(address(used), address(stream)), || ());
}

// The same holds for a capture.
extern "C" fn capturing(device: i32, active: i32) {
    contained("capturing", || arenas::set_capturing(device, active != 0), || ());
}

extern "C" fn trim(device: i32) -> u64 {
    contained("trim", || arenas::trim(device), || 0)
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn arena(device: i32, out: *mut CoreArena) {
    let arena = || arenas::arena(device).unwrap_or((0..0, 0));
    let (range, reserved) = contained("arena", arena, || (0..0, 0));
    // SAFETY: the caller's promise.
    unsafe { put(out, CoreArena { address: range.start, size: range.end - range.start, reserved }) };
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn counters(device: i32, out: *mut Counters, peaks: i32, totals: i32) {
    let counters = || arenas::counters(device, peaks != 0, totals != 0);
    let counters = contained("counters", counters, Counters::default);
    // SAFETY: the caller's promise.
    unsafe { put(out, counters) };
}

/// # Safety
/// `device` is null or may be written.
unsafe extern "C" fn owns(inside: *const c_void, device: *mut i32) -> i32 {
    let Some(number) = contained("owns", || registry::device_of(address(inside)), || None) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { put(device, number) };
    1
}

// After a fault an arena that is not open yet never will be: nobody will miss the access.
extern "C" fn allow_peer(device: i32, peer: i32) -> i32 {
    i32::from(contained("allow_peer", || arenas::allow_peer(device, peer), || !registry::is_open(device)))
}

extern "C" fn fallback_holds(device: i32, reserved: u64, allocated: u64) {
    contained("fallback_holds", || arenas::fallback_holds(device, reserved, allocated), || ());
}

extern "C" fn limit(device: i32, bytes: u64) {
    contained("limit", || arenas::set_limit(device, bytes), || ());
}

extern "C" fn is_solid(device: i32) -> i32 {
    i32::from(contained("is_solid", || arenas::is_solid(device), || false))
}

extern "C" fn memory_changes(device: i32) -> u64 {
    contained("memory_changes", || arenas::memory_changes(device), || 0)
}

/// # Safety
/// `out` has room for `capacity` parts, and `changes` is null or may be written.
unsafe extern "C" fn memory(device: i32, out: *mut CoreRange, capacity: usize, changes: *mut u64) -> usize {
    let (parts, number) = contained("memory", || arenas::mapped(device), Default::default);
    let part = |part: Range<Address>| CoreRange { address: part.start, size: part.end - part.start };
    // SAFETY: the caller's promise.
    unsafe {
        put(changes, number);
        copy(parts.into_iter().map(part), out, capacity)
    }
}

/// # Safety
/// `out` has room for `capacity` parts.
unsafe extern "C" fn parts(device: i32, by_pool: i32, out: *mut CorePart, capacity: usize) -> usize {
    let segments = || {
        let segments = segments::of_arena(device);
        if by_pool == 0 { segments } else { segments::by_pool(segments) }
    };
    let segments = contained("parts", segments, Vec::new);
    // SAFETY: the caller's promise.
    unsafe { copy(segments.iter().flat_map(CorePart::of), out, capacity) }
}

extern "C" fn pool_begin(device: i32, first: u64, second: u64) -> i32 {
    i32::from(contained("pool_begin", || arenas::pool_begin(device, (first, second)), || false))
}

extern "C" fn pool_end(device: i32, first: u64, second: u64) {
    contained("pool_end", || arenas::pool_end(device, (first, second)), || ());
}

/// # Safety
/// `rounded` is null or may be written.
unsafe extern "C" fn pool_serve(
    device: i32,
    first: u64,
    second: u64,
    bytes: usize,
    stream: *mut c_void,
    rounded: *mut usize,
) -> *mut c_void {
    let serve = || arenas::pool_serve(device, (first, second), bytes as u64, address(stream));
    let Some(served) = contained("pool_serve", serve, || None) else { return ptr::null_mut() };
    // SAFETY: the caller's promise.
    unsafe { put(rounded, served.bytes as usize) };
    pointer(served.address)
}

/// # Safety
/// `out` has room for `capacity` parts.
unsafe extern "C" fn pool_parts(device: i32, out: *mut CorePoolPart, capacity: usize) -> usize {
    let parts = contained("pool_parts", || arenas::pool_parts(device), Vec::new);
    // SAFETY: the caller's promise.
    unsafe { copy(parts.into_iter().map(Into::into), out, capacity) }
}

/// # Safety
/// There are `count` blocks at `blocks`.
unsafe extern "C" fn pool_restore(
    device: i32,
    first: u64,
    second: u64,
    blocks: *const CoreBlock,
    count: usize,
) -> usize {
    let read = |i| {
        // SAFETY: the caller's promise, and `i < count`.
        let block: CoreBlock = unsafe { *blocks.add(i) };
        let CoreBlock { address, size, requested, stream, .. } = block;
        LiveBlock { address, size, requested, stream: stream.expose_provenance() as u64, pending: false }
    };
    let blocks: Vec<LiveBlock> = (0..count).map(read).collect();
    let restore = || arenas::pool_restore(device, (first, second), &blocks).1.len();
    contained("pool_restore", restore, || 0)
}

extern "C" fn pinned_serve(device: i32, bytes: usize) -> *mut c_void {
    let address = contained("pinned_serve", || pinned::serve(device, bytes as u64), || None);
    address.map_or_else(ptr::null_mut, pointer)
}

// After a fault a block is not handed out again: it may have been given back or not.
extern "C" fn pinned_release(freed: *mut c_void) {
    contained("pinned_release", || pinned::free(address(freed)), || true);
}

extern "C" fn pinned_record(used: *const c_void, device: i32, stream: *mut c_void) -> i32 {
    i32::from(contained("pinned_record", || pinned::record(address(used), device, address(stream)), || false))
}

extern "C" fn pinned_trim() -> u64 {
    contained("pinned_trim", pinned::trim, || 0)
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn pinned_counters(out: *mut PinnedCounters, peaks: i32, totals: i32) {
    let counters = || pinned::counters(peaks != 0, totals != 0);
    let counters = contained("pinned_counters", counters, PinnedCounters::default);
    // SAFETY: the caller's promise.
    unsafe { put(out, counters) };
}

extern "C" fn asleep(device: i32) -> u64 {
    contained("asleep", || arenas::asleep(device), || None).unwrap_or(0)
}

/// # Safety
/// `out` may be written, `descriptors` has room for `capacity` of them, and `why` for `room` bytes.
unsafe extern "C" fn share(
    block: *const c_void,
    out: *mut CoreExport,
    descriptors: *mut i32,
    capacity: usize,
    why: *mut c_char,
    room: usize,
) -> usize {
    let share = || arenas::share(address(block)).unwrap_or_else(|| Err("it is no live block".to_owned()));
    match contained("share", share, || Err("internal error".to_owned())) {
        Ok(export) => {
            // SAFETY: the caller's promise.
            unsafe {
                *out = CoreExport { page: export.page, offset: export.offset, serial: export.serial };
                copy(export.descriptors, descriptors, capacity)
            }
        }
        Err(text) => {
            let bytes = text.bytes().take(room.saturating_sub(1)).chain([0]);
            // SAFETY: the caller's promise.
            unsafe { copy(bytes.map(|byte| byte as c_char), why, room) };
            0
        }
    }
}
