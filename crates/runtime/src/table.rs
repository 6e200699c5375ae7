//! The C interface: `python/stalloc/shim/core.h` in Rust. Change both together, and the version with them (`tests/header.rs` compares).

use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::ptr;

use stalloc_allocator::{LiveBlock, PoolPart};
use stalloc_caching::BlockState;
use stalloc_device::Address;

use crate::arenas;
use crate::counters::Counters;
use crate::fault::contained;
use crate::pinned::{self, PinnedCounters};
use crate::segments::{self, Segment};

/// Version of the table.
const VERSION: u32 = 11;

/// A live block of an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreBlock {
    address: u64,
    size: u64,
    requested: u64,
    stream: *mut c_void,
    pending: u32,
}

impl From<LiveBlock> for CoreBlock {
    fn from(block: LiveBlock) -> Self {
        CoreBlock {
            address: block.address,
            size: block.size,
            requested: block.requested,
            stream: pointer(block.stream),
            pending: u32::from(block.pending),
        }
    }
}

/// The arena of one device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreArena {
    address: u64,
    size: u64,
    reserved: u64,
}

/// A part of an arena's address range.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreRange {
    address: u64,
    size: u64,
}

/// How another process opens a block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreExport {
    page: u64,
    offset: u64,
    serial: u64,
}

/// A part of a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CorePart {
    address: u64,
    size: u64,
    requested: u64,
    stream: *mut c_void,
    state: u32,
    begins: u32,
    small: u32,
}

impl CorePart {
    /// The parts of a segment, in order; each has the segment's stream.
    fn of(segment: &Segment) -> impl Iterator<Item = CorePart> + '_ {
        segment.blocks.iter().enumerate().map(|(number, block)| CorePart {
            address: block.address,
            size: block.size,
            requested: block.requested,
            stream: pointer(segment.stream),
            state: match block.state {
                BlockState::Free => 0,
                BlockState::Live => 1,
                BlockState::Pending => 2,
            },
            begins: u32::from(number == 0),
            small: u32::from(segment.small),
        })
    }
}

/// A part of a pool's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CorePoolPart {
    pool: [u64; 2],
    block: CoreBlock,
    free: u32,
}

impl From<PoolPart> for CorePoolPart {
    fn from(part: PoolPart) -> Self {
        let pool = [part.pool.0, part.pool.1];
        CorePoolPart { pool, block: part.block.into(), free: u32::from(part.free) }
    }
}

/// The functions that a shim calls. See `core.h` for what each does.
#[repr(C)]
pub struct Core {
    version: u32,
    serve: unsafe extern "C" fn(i32, usize, *mut c_void, *mut usize) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, *mut i32, *mut CoreBlock) -> usize,
    find: unsafe extern "C" fn(*const c_void, *mut CoreBlock) -> i32,
    record_stream: extern "C" fn(*mut c_void, *mut c_void),
    capturing: extern "C" fn(i32, i32),
    trim: extern "C" fn(i32) -> u64,
    arena: unsafe extern "C" fn(i32, *mut CoreArena),
    counters: unsafe extern "C" fn(i32, *mut Counters, i32, i32),
    owns: unsafe extern "C" fn(*const c_void, *mut i32) -> i32,
    allow_peer: extern "C" fn(i32, i32) -> i32,
    fallback_holds: extern "C" fn(i32, u64, u64),
    limit: extern "C" fn(i32, u64),
    is_solid: extern "C" fn(i32) -> i32,
    memory_changes: extern "C" fn(i32) -> u64,
    memory: unsafe extern "C" fn(i32, *mut CoreRange, usize, *mut u64) -> usize,
    parts: unsafe extern "C" fn(i32, i32, *mut CorePart, usize) -> usize,
    pool_begin: extern "C" fn(i32, u64, u64) -> i32,
    pool_end: extern "C" fn(i32, u64, u64),
    pool_serve: unsafe extern "C" fn(i32, u64, u64, usize, *mut c_void, *mut usize) -> *mut c_void,
    pool_parts: unsafe extern "C" fn(i32, *mut CorePoolPart, usize) -> usize,
    pool_restore: unsafe extern "C" fn(i32, u64, u64, *const CoreBlock, usize) -> usize,
    pinned_serve: extern "C" fn(i32, usize) -> *mut c_void,
    pinned_release: extern "C" fn(*mut c_void),
    pinned_record: extern "C" fn(*const c_void, i32, *mut c_void) -> i32,
    pinned_trim: extern "C" fn() -> u64,
    pinned_counters: unsafe extern "C" fn(*mut PinnedCounters, i32, i32),
    share: unsafe extern "C" fn(*const c_void, *mut CoreExport, *mut i32, usize, *mut c_char, usize) -> usize,
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
/// `rounded` is null or may be written.
unsafe extern "C" fn serve(device: i32, bytes: usize, stream: *mut c_void, rounded: *mut usize) -> *mut c_void {
    let serve = || {
        let Some(handed) = arenas::serve(device, bytes as u64, address(stream)) else { return ptr::null_mut() };
        if !rounded.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *rounded = handed.bytes as usize };
        }
        pointer(handed.address)
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
        if !device.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *device = number };
        }
        size as usize
    };
    contained("release", release, || 0)
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn find(inside: *const c_void, out: *mut CoreBlock) -> i32 {
    let find = || {
        let Some(block) = arenas::block_around(address(inside)) else { return 0 };
        if !out.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *out = block.into() };
        }
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
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *out = CoreArena { address: range.start, size: range.end - range.start, reserved } };
    }
}

/// # Safety
/// `out` is null or may be written.
unsafe extern "C" fn counters(device: i32, out: *mut Counters, peaks: i32, totals: i32) {
    let counters = || arenas::counters(device, peaks != 0, totals != 0);
    let counters = contained("counters", counters, || Counters::NONE);
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *out = counters };
    }
}

/// # Safety
/// `device` is null or may be written.
unsafe extern "C" fn owns(inside: *const c_void, device: *mut i32) -> i32 {
    let Some(number) = contained("owns", || arenas::device_of(address(inside)), || None) else { return 0 };
    if !device.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *device = number };
    }
    1
}

// After a fault an arena that is not open yet never will be: nobody will miss the access.
extern "C" fn allow_peer(device: i32, peer: i32) -> i32 {
    i32::from(contained("allow_peer", || arenas::allow_peer(device, peer), || !arenas::is_open(device)))
}

extern "C" fn fallback_holds(device: i32, reserved: u64, allocated: u64) {
    contained("fallback_holds", || arenas::fallback_holds(device, reserved, allocated), || ());
}

extern "C" fn limit(device: i32, bytes: u64) {
    contained("limit", || arenas::set_limit(device, bytes), || ());
}

/// # Safety
/// `out` has room for `capacity` parts.
unsafe fn copy(parts: &[Range<Address>], out: *mut CoreRange, capacity: usize) -> usize {
    for (i, part) in parts.iter().take(capacity).enumerate() {
        // SAFETY: the caller's promise, and `i < capacity`.
        unsafe { *out.add(i) = CoreRange { address: part.start, size: part.end - part.start } };
    }
    parts.len()
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
    // SAFETY: the caller's promise.
    unsafe {
        if !changes.is_null() {
            *changes = number;
        }
        copy(&parts, out, capacity)
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
    let parts = segments.iter().flat_map(CorePart::of);
    let mut count = 0;
    for part in parts {
        if count < capacity {
            // SAFETY: the caller's promise, and `count < capacity`.
            unsafe { *out.add(count) = part };
        }
        count += 1;
    }
    count
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
    let Some(handed) = contained("pool_serve", serve, || None) else { return ptr::null_mut() };
    if !rounded.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *rounded = handed.bytes as usize };
    }
    pointer(handed.address)
}

/// # Safety
/// `out` has room for `capacity` parts.
unsafe extern "C" fn pool_parts(device: i32, out: *mut CorePoolPart, capacity: usize) -> usize {
    let parts = contained("pool_parts", || arenas::pool_parts(device), Vec::new);
    for (i, &part) in parts.iter().take(capacity).enumerate() {
        // SAFETY: the caller's promise, and `i < capacity`.
        unsafe { *out.add(i) = part.into() };
    }
    parts.len()
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
    let counters = contained("pinned_counters", counters, || PinnedCounters::NONE);
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *out = counters };
    }
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
            for (i, &descriptor) in export.descriptors.iter().take(capacity).enumerate() {
                // SAFETY: the caller's promise, and `i < capacity`.
                unsafe { *descriptors.add(i) = descriptor };
            }
            // SAFETY: the caller's promise.
            unsafe { *out = CoreExport { page: export.page, offset: export.offset, serial: export.serial } };
            export.descriptors.len()
        }
        Err(text) => {
            let bytes = text.bytes().take(room.saturating_sub(1)).chain([0]);
            for (i, byte) in bytes.enumerate().take(room) {
                // SAFETY: the caller's promise, and `i < room`.
                unsafe { *why.add(i) = byte as c_char };
            }
            0
        }
    }
}
