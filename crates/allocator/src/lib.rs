//! Serves a running program from one arena, safely: at planned offsets what repeats exactly, the rest where it fits
//! best.
//!
//! Every allocator here implements [`Allocator`] over a [`stalloc_device::Device`]; the simulator drives the same code
//! over the counting device that a training process runs over CUDA.

#![forbid(unsafe_code)]

mod arena;
mod cursor;
mod frames;
mod journal;
mod marks;
mod planned;
mod ranges;
mod script;
mod statistics;
mod streams;
mod tuning;

pub use arena::{Arena, Freed, LiveBlock, Moved, PoolId, PoolPart, Served};
pub use frames::FrameSet;
pub use journal::JournalEvent;
pub use planned::PlannedAllocator;
pub use script::{GRANULE, Script};
pub use statistics::{Departure, Misses, ServedBy, Statistics, Unplanned};
pub use tuning::{MAPPED_AT_ONCE, TUNED};

use stalloc_device::{Address, Stream};
use thiserror::Error;

/// Why an allocator could not allocate or free, take a plan, sleep or wake.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The device has no memory left, after everything cached was given back.
    #[error("out of memory: {requested} bytes asked for, {allocated} allocated, {reserved} reserved")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Live bytes.
        allocated: u64,
        /// Device memory held.
        reserved: u64,
    },
    /// The device refused for another reason.
    #[error(transparent)]
    Device(#[from] stalloc_device::Error),
    /// The arena cannot sleep, or wake, now. Nothing was changed.
    #[error("{0}")]
    Sleep(String),
    /// A plan cannot be followed.
    #[error("the plan cannot be used: {0}")]
    Plan(String),
    /// An address was given back that is not live.
    #[error("{0:#x} is not a live address")]
    UnknownAddress(Address),
}

/// What every allocator can do.
pub trait Allocator {
    /// Serves `size` bytes (before rounding, may be 0) on a stream.
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<Address, Error>;

    /// Takes an address back.
    fn free(&mut self, address: Address) -> Result<(), Error>;

    /// Says that another stream uses an address: its memory is not reused before that stream is done.
    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error>;

    /// A training step begins here, says the program. Most allocators do not care.
    fn step_begin(&mut self) {}

    /// Live bytes, each block rounded up to 512.
    fn allocated(&self) -> u64;

    /// Device memory held, bytes.
    fn reserved(&self) -> u64;

    /// Gives cached memory back to the device.
    fn empty_cache(&mut self) -> Result<(), Error>;
}
