//! The way into PyTorch that needs no compiler: `torch.cuda.memory.CUDAPluggableAllocator`.
//!
//! PyTorch hands every request to two functions of ours and asks them for no more, so all of its native allocator is
//! here as well: what the arena does not serve comes from the model of it, and its statistics, snapshots, private pools
//! and exceptions are kept and raised here.
//!
//! From the outside in: `entries` (what PyTorch calls), `environment` (what the environment asks for), `side` (one
//! device and its books), `fallback` (the caching allocator and the pools of CUDA graphs), `gate` (what a capture
//! forbids), `figures`, `history`, `snapshot`, `message`, `exception` and
//! `profiler`.
//!
//! Lock order: a side's, then a place's. Nothing is called back with a lock held.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use stalloc_caching::Settings;
use stalloc_device::{Address, Stream};

use crate::fork;
use crate::places::{self, HOST};

mod entries;
mod environment;
mod exception;
mod fallback;
mod figures;
mod gate;
mod history;
mod message;
mod profiler;
mod side;
mod snapshot;

pub use entries::{hooks, my_free, my_malloc, stalloc_free, stalloc_malloc};
pub use exception::{Kind, available as exceptions_available};
pub use fallback::{Counts, PoolId};
pub use figures::{Figures, Held, Stats};
pub use history::{Action, Entry, Level, Stack, Subject, metadata, set_metadata, take_stacks_by};
pub use side::{Books, Refusal};
pub use snapshot::Snapshot;

pub use crate::segments::{Block, Segment};

use side::Side;

static SIDES: [Side; places::MOST] = [const { Side::new() }; places::MOST];

/// The package has said what to do, so that the environment need not be asked.
static TOLD: AtomicBool = AtomicBool::new(false);

/// None in a forked child, which must not touch their locks.
fn sides() -> &'static [Side] {
    if fork::is_child() { &[] } else { &SIDES }
}

fn side(device: i32) -> Option<&'static Side> {
    sides().get(usize::try_from(device.checked_sub(HOST)?).ok()?)
}

fn is_told() -> bool {
    TOLD.load(Ordering::Acquire)
}

/// Whoever said what to do has set the hooks as well.
fn hooks_are_set() -> bool {
    is_told()
}

/// The package installs the allocator, hooks and all: fallbacks behave as `settings` say, and the environment is not
/// asked.
pub fn install(settings: &Settings) {
    TOLD.store(true, Ordering::Release);
    profiler::find();
    for side in sides() {
        side.set_settings(settings.clone());
    }
}

/// After a fault that may have lost what a call was to do: no memory of before is used again.
pub(crate) fn give_up() {
    sides().iter().for_each(Side::give_up);
}

/// Whether memory is cached: see [`set_caching`].
static IS_CACHING: AtomicBool = AtomicBool::new(true);

/// Whether requests are served from the arena and the caching fallback, or each by the device itself, as tools that check
/// accesses need it.
pub fn set_caching(caching: bool) {
    IS_CACHING.store(caching, Ordering::Release);
}

/// See [`set_caching`].
#[inline]
pub fn is_caching() -> bool {
    IS_CACHING.load(Ordering::Relaxed)
}

/// Called with the device, the bytes asked for, those allowed and those free, when a request cannot be served.
pub type OnOutOfMemory = fn(i32, u64, u64, u64);

static ON_OUT_OF_MEMORY: OnceLock<OnOutOfMemory> = OnceLock::new();

/// Calls back at each request that cannot be served, before its exception is raised. No lock is held then.
pub fn on_out_of_memory(callback: OnOutOfMemory) {
    let _ = ON_OUT_OF_MEMORY.set(callback);
}

/// Serves `size` bytes on a stream of a device ([`HOST`]: host memory); address 0 for 0 bytes.
///
/// # Errors
/// If there is no memory left after everything cached was given back, or the device failed.
pub fn malloc(device: i32, size: u64, stream: Stream) -> Result<Address, Refusal> {
    environment::prepare();
    match side(device) {
        Some(side) => {
            let served = side.malloc(device, size, stream);
            if let Err(Refusal { memory: Some((allowed, free)), .. }) = &served
                && let Some(callback) = ON_OUT_OF_MEMORY.get()
            {
                callback(device, size, *allowed, *free);
            }
            served
        }
        None if fork::is_child() => {
            let text =
                "stalloc: a process that was forked from one that uses a GPU cannot use it; start it afresh (spawn)";
            Err(Refusal::other(text.to_owned()))
        }
        None => Err(Refusal::other(format!("stalloc: there is no device {device}"))),
    }
}

/// Takes a block back that was handed out on a device; other addresses are left alone.
pub fn free(device: i32, address: Address) {
    if let Some(side) = places::device_of(address).and_then(side) {
        side.leave(address);
    }
    if let Some((owner, block)) = places::free(address) {
        if let Some(side) = side(owner) {
            side.freed(owner, address, block.size, block.requested);
        }
    } else if let (Some(side), true) = (side(device), address != 0) {
        side.free(device, address);
    }
}

/// A stream uses a block: it is not handed out again before that stream is done with it.
pub fn record_stream(address: Address, stream: Stream) {
    if places::block_around(address).is_some() {
        places::record_stream(address, stream);
    } else {
        let _ = sides().iter().any(|side| side.record_stream(address, stream));
    }
}

/// Gives back what nobody uses, on every device.
pub fn empty_cache() {
    for (device, side) in (HOST..).zip(sides()) {
        side.empty_cache(device);
    }
}

/// A device's memory may be reserved up to a share, 1: all of it.
pub fn set_memory_fraction(device: i32, fraction: f64) {
    if let Some(side) = side(device) {
        side.set_fraction(device, fraction);
    }
}

/// See [`set_memory_fraction`].
pub fn memory_fraction(device: i32) -> f64 {
    side(device).map_or(1.0, Side::fraction)
}

/// Start and length of the block that an address lies in.
pub fn block_around(address: Address) -> Option<(Address, u64)> {
    let arena = places::block_around(address).map(|block| (block.address, block.size));
    arena.or_else(|| sides().iter().find_map(|side| side.block(address)))
}

/// Requests on a device go to a private pool from now on, for a graph is about to be captured.
pub fn begin_pool(device: i32, pool: PoolId) {
    if let Some(side) = side(device) {
        side.begin_pool(device, pool);
    }
}

/// They no longer do.
pub fn end_pool(device: i32, pool: PoolId) {
    if let Some(side) = side(device) {
        side.end_pool(pool);
    }
}

/// A graph that used a pool is gone.
pub fn release_pool(device: i32, pool: PoolId) {
    if let Some(side) = side(device) {
        side.release_pool(device, pool);
    }
}

/// The statistics of a device.
pub fn books(device: i32) -> Option<Books> {
    side(device).map(|side| side.books(device))
}

/// What lies where on a device.
pub fn snapshot(device: i32) -> Snapshot {
    side(device).map(|side| side.snapshot(device)).unwrap_or_default()
}

/// A device's peaks start again from what is now.
pub fn reset_peaks(device: i32) {
    if let Some(side) = side(device) {
        side.reset_peaks();
    }
}

/// What a device's statistics add up is counted from 0 again.
pub fn reset_accumulated(device: i32) {
    if let Some(side) = side(device) {
        side.reset_accumulated();
    }
}

/// Keeps a history of up to `most` entries per device, but none of the actions that are skipped, with the call stacks of some;
/// 0 ends it.
pub fn keep_history(most: usize, level: Level, clear: bool, skipped: &[String]) {
    for (device, side) in (HOST..).zip(sides()) {
        side.keep_history(device, most, level, clear, skipped);
    }
}

/// The program says something of a block that it holds.
pub fn annotate(address: Address, text: &str) {
    let of_arena = places::device_of(address).and_then(side);
    match of_arena {
        Some(side) => {
            side.annotate(address, text);
        }
        None => {
            let _ = sides().iter().any(|side| side.annotate(address, text));
        }
    }
}

/// From where the live block at an address was asked for, if the history keeps that.
pub fn stack_of(address: Address) -> Option<Stack> {
    let of_arena = places::device_of(address).and_then(side);
    match of_arena {
        Some(side) => side.stack_of(address),
        None => sides().iter().find_map(|side| side.stack_of(address)),
    }
}

/// A device's history, oldest first.
pub fn history(device: i32) -> Vec<Entry> {
    side(device).map(Side::history).unwrap_or_default()
}
