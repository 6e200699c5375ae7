//! The C interface: a table of functions that a shim calls. [`tests`] makes the shims' `core.h` from it; change the version with it.

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
use crate::{devices, segments};

use types::{CoreArena, CoreBlock, CoreExport, CorePart, CorePoolPart, CoreRange};

/// A shim refuses a core of another version than it was compiled for.
const VERSION: u32 = 13;

/// An item, and its source for `core.h`.
macro_rules! with_source {
    ($($item:tt)*) => {
        $($item)*

        #[cfg(test)]
        const SOURCE: &str = stringify!($($item)*);
    };
}

/// Makes of each operation its entry in the table, and the function there, which does what is behind `else` after a fault.
macro_rules! table {
    ($(
        $(#[$about:meta])*
        fn $name:ident($($given:ident: $Given:ty),*) $(-> $Answer:ty)? $act:block else $otherwise:block
    )*) => {
        with_source! {
            /// The functions that a shim calls. None throws or ends the process, whatever goes wrong in it, and none calls back into the shim.
            /// Every one may be called from any thread.
            #[repr(C)]
            pub struct Core {
                version: u32,
                $(
                    $(#[$about])*
                    $name: unsafe extern "C" fn($($given: $Given),*) $(-> $Answer)?,
                )*
            }
        }

        static CORE: Core = Core { version: VERSION, $($name),* };

        // SAFETY of all: a pointer that an operation writes to is null or may be written, and an array has room for `capacity`.
        $(unsafe extern "C" fn $name($($given: $Given),*) $(-> $Answer)? {
            contained(stringify!($name), || $act, || $otherwise)
        })*
    };
}

table! {
    /// Serves `bytes` on a stream of a device from its arena and says how many bytes the block really takes. Null: the
    /// request is the fallback's.
    fn serve(device: i32, bytes: usize, stream: *mut c_void, rounded: *mut usize) -> *mut c_void {
        let Some(served) = arenas::serve(device, bytes as u64, number(stream)) else { return ptr::null_mut() };
        // SAFETY: the caller's promise.
        unsafe { put(rounded, served.bytes as usize) };
        pointer(served.address)
    } else { ptr::null_mut() }

    /// Takes a block back and returns its rounded bytes; 0 if the address is no live block of an arena. Says what it was, if `block`
    /// is not null, and whether another stream has not done with it.
    fn release(address: *mut c_void, device: *mut i32, block: *mut CoreBlock) -> usize {
        let (index, size) = if block.is_null() {
            let Some((index, freed)) = arenas::free(number(address)) else { return 0 };
            (index, freed.size)
        } else {
            let Some((index, freed)) = arenas::free_told(number(address)) else { return 0 };
            // SAFETY: the caller's promise.
            unsafe { *block = freed.into() };
            (index, freed.size)
        };
        // SAFETY: the caller's promise.
        unsafe { put(device, index) };
        size as usize
    } else { 0 }

    /// Finds the live block that an address lies in: 1 if there is one.
    fn find(address: *const c_void, block: *mut CoreBlock) -> i32 {
        let Some(found) = arenas::block_around(number(address)) else { return 0 };
        // SAFETY: the caller's promise.
        unsafe { put(block, found.into()) };
        1
    } else { 0 }

    /// A block is used on another stream: it is not handed out again before that stream is done with it.
    fn record_stream(address: *mut c_void, stream: *mut c_void) {
        arenas::record_stream(number(address), number(stream));
    } else {
        // Nothing is served any more: a block that another stream uses is not handed out again either.
    }

    /// Work is being captured into a CUDA graph (or no longer): the arena serves nothing and polls no event meanwhile.
    fn capturing(device: i32, active: i32) {
        arenas::set_capturing(device, active != 0);
    } else {}

    /// Gives device memory back that no live block needs; returns the bytes.
    fn trim(device: i32) -> u64 {
        arenas::trim(device)
    } else { 0 }

    /// The arena's range and the memory behind it.
    fn arena(device: i32, out: *mut CoreArena) {
        let (range, reserved) = arenas::arena(device).unwrap_or((0..0, 0));
        // SAFETY: the caller's promise.
        unsafe { put(out, CoreArena { address: range.start, size: range.end - range.start, reserved }) };
    } else {}

    /// What is counted of the arena; then peaks begin again at what there is, and totals at nothing, if they are to.
    fn counters(device: i32, out: *mut Counters, restart_peaks: i32, restart_totals: i32) {
        let counters = arenas::counters(device, restart_peaks != 0, restart_totals != 0);
        // SAFETY: the caller's promise.
        unsafe { put(out, counters) };
    } else {}

    /// Whether an address lies in an arena, live or not, and of which device. Takes no lock.
    fn owns(address: *const c_void, device: *mut i32) -> i32 {
        let Some(index) = devices::device_of(number(address)) else { return 0 };
        // SAFETY: the caller's promise.
        unsafe { put(device, index) };
        1
    } else { 0 }

    /// Lets the device `peer` use the memory of `device`'s arena; 0 if that cannot be had.
    fn allow_peer(device: i32, peer: i32) -> i32 {
        i32::from(arenas::allow_peer(device, peer))
    } else {
        // An arena that is not open yet never will be: nobody will miss the access.
        i32::from(!devices::is_open(device))
    }

    /// What the fallback holds, after it may have changed: device memory, and the bytes of it that tensors use.
    fn fallback_holds(device: i32, reserved: u64, allocated: u64) {
        arenas::fallback_holds(device, reserved, allocated);
    } else {}

    /// Arena and fallback together may hold so much device memory: the arena takes no more than the fallback leaves of it.
    /// It keeps what it has. UINT64_MAX: no limit.
    fn limit(device: i32, bytes: u64) {
        arenas::set_limit(device, bytes);
    } else {}

    /// Whether the arena is one allocation of the driver's: 1 if so.
    fn is_solid(device: i32) -> i32 {
        i32::from(arenas::is_solid(device))
    } else { 0 }

    /// How often the memory behind the arena changed so far. Takes no lock.
    fn memory_changes(device: i32) -> u64 {
        arenas::memory_changes(device)
    } else { 0 }

    /// Copies up to `capacity` parts of the arena's range that have memory behind them, in the order of addresses; returns how many
    /// there are. `changes` is how often that memory had changed then.
    fn memory(device: i32, out: *mut CoreRange, capacity: usize, changes: *mut u64) -> usize {
        let (parts, count) = arenas::mapped(device);
        let part = |part: Range<Address>| CoreRange { address: part.start, size: part.end - part.start };
        // SAFETY: the caller's promise.
        unsafe {
            put(changes, count);
            copy(parts.into_iter().map(part), out, capacity)
        }
    } else { 0 }

    /// Copies up to `capacity` parts of the arena's segments, all as they are at one moment, in the order of addresses; returns how
    /// many there are. With `by_pool`, small blocks have segments of their own, so that the sums over segments of a kind are the
    /// statistics by pool.
    fn parts(device: i32, by_pool: i32, out: *mut CorePart, capacity: usize) -> usize {
        let segments = segments::of_arena(device);
        let segments = if by_pool == 0 { segments } else { segments::by_pool(segments) };
        // SAFETY: the caller's promise.
        unsafe { copy(segments.iter().flat_map(CorePart::of), out, capacity) }
    } else { 0 }

    /// A graph, or who runs before it is captured, holds a pool of the arena's from now on, until `pool_end`: 1; 0 if the arena has
    /// no pools. A pool's addresses stay its own while anybody holds it.
    fn pool_begin(device: i32, first: u64, second: u64) -> i32 {
        i32::from(arenas::pool_begin(device, (first, second)))
    } else { 0 }

    fn pool_end(device: i32, first: u64, second: u64) {
        devices::with(device, |arena| arena.pool_end((first, second)));
    } else {}

    /// As `serve`, from a pool; while a graph is captured, too.
    fn pool_serve(device: i32, first: u64, second: u64, bytes: usize, stream: *mut c_void, rounded: *mut usize) -> *mut c_void {
        let served = arenas::pool_serve(device, (first, second), bytes as u64, number(stream));
        let Some(served) = served else { return ptr::null_mut() };
        // SAFETY: the caller's promise.
        unsafe { put(rounded, served.bytes as usize) };
        pointer(served.address)
    } else { ptr::null_mut() }

    /// Copies up to `capacity` parts of all pools, in the order of addresses; returns how many there are.
    fn pool_parts(device: i32, out: *mut CorePoolPart, capacity: usize) -> usize {
        let parts = devices::with(device, |arena| arena.pool_parts()).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { copy(parts.into_iter().map(Into::into), out, capacity) }
    } else { 0 }

    /// What lives in a pool is freed, and these blocks, which lived there at one moment, live again; returns how many of them do.
    fn pool_restore(device: i32, first: u64, second: u64, blocks: *const CoreBlock, count: usize) -> usize {
        // SAFETY: there are `count` blocks at `blocks`.
        let blocks = (0..count).map(|i| LiveBlock::from(unsafe { *blocks.add(i) }));
        arenas::pool_restore(device, (first, second), &blocks.collect::<Vec<_>>()).1.len()
    } else { 0 }

    /// Serves `bytes` of pinned memory; new memory is taken with the driver of a GPU. Null: the request is PyTorch's.
    fn pinned_serve(device: i32, bytes: usize) -> *mut c_void {
        pinned::serve(device, bytes as u64).map_or_else(ptr::null_mut, pointer)
    } else { ptr::null_mut() }

    /// Takes back what `pinned_serve` handed out. It is handed out again once the streams that used it are done.
    fn pinned_release(address: *mut c_void) {
        pinned::free(number(address));
    } else {
        // It is not handed out again: it may have been given back or not.
    }

    /// A stream of a GPU was given work on the pinned block that an address lies in: 1; 0 if that is no block of ours.
    fn pinned_record(address: *const c_void, device: i32, stream: *mut c_void) -> i32 {
        i32::from(pinned::record(number(address), device, number(stream)))
    } else { 0 }

    /// Gives pinned memory back that holds no block; returns the bytes.
    fn pinned_trim() -> u64 {
        pinned::trim()
    } else { 0 }

    /// What is counted of pinned memory; then peaks begin again at what there is, and totals at nothing, if they are to.
    fn pinned_counters(out: *mut PinnedCounters, restart_peaks: i32, restart_totals: i32) {
        let counters = pinned::counters(restart_peaks != 0, restart_totals != 0);
        // SAFETY: the caller's promise.
        unsafe { put(out, counters) };
    } else {}

    /// Bytes of the arena that are on the host, and without device memory until the program has it wake; 0 while it is awake.
    fn asleep(device: i32) -> u64 {
        arenas::asleep(device).unwrap_or(0)
    } else { 0 }

    /// Lets other processes open the block that begins at an address, until it is released. Copies up to `capacity` descriptors,
    /// which stay the core's, and returns how many there are. 0: they cannot; why is in `why`, at most `room` bytes with a zero at
    /// the end.
    fn share(address: *const c_void, out: *mut CoreExport, descriptors: *mut i32, capacity: usize, why: *mut c_char, room: usize) -> usize {
        match arenas::share(number(address)).unwrap_or_else(|| Err("it is no live block".to_owned())) {
            // SAFETY: the caller's promise.
            Ok(export) => unsafe {
                put(out, CoreExport { page: export.page, offset: export.offset, serial: export.serial });
                copy(export.descriptors, descriptors, capacity)
            },
            // SAFETY: the caller's promise.
            Err(text) => unsafe { say_why(&text, why, room) },
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { say_why("internal error", why, room) }
    }
}

/// The table, for a shim.
pub fn core() -> &'static Core {
    &CORE
}

fn number(pointer: *const c_void) -> u64 {
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

/// Why something is refused, with a zero at the end.
///
/// # Safety
/// There are `room` bytes at `why`.
unsafe fn say_why(text: &str, why: *mut c_char, room: usize) -> usize {
    let bytes = text.bytes().take(room.saturating_sub(1)).chain([0]);
    // SAFETY: the caller's promise.
    unsafe { copy(bytes.map(|byte| byte as c_char), why, room) };
    0
}

#[cfg(test)]
mod tests;
