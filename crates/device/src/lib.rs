//! The memory of one device, behind one trait: [`Device`].
//!
//! What allocates, plans or simulates is generic over it, so that what is simulated is what is shipped: the same code
//! runs over CUDA, HIP, host memory, and [`Counting`], which only hands out numbers.

use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;

/// The events of a device whose work is done in the program's order, so that each is complete once it is asked for.
macro_rules! done_at_once {
    () => {
        fn record(&mut self, _stream: Stream) -> Result<(), Error> {
            Ok(())
        }

        fn completed(&mut self, _event: &()) -> Result<bool, Error> {
            Ok(true)
        }

        fn wait(&mut self, _event: &()) -> Result<(), Error> {
            Ok(())
        }

        fn queue_wait(&mut self, _stream: Stream, _event: &()) -> Result<(), Error> {
            Ok(())
        }

        fn synchronize(&mut self) -> Result<(), Error> {
            Ok(())
        }
    };
}
pub(crate) use done_at_once;

mod counting;
mod gpu;
mod host;
mod host_pages;
mod shared;
mod work;

pub use counting::Counting;
pub use gpu::{GpuDevice, GpuEvent, HostMemory};
pub use host::Host;
pub use host_pages::HostPages;
pub use shared::Shared;
pub use work::DriverWork;

/// An address in device memory.
pub type Address = u64;

/// A raw stream handle, as the device knows it.
pub type Stream = u64;

/// Why a device refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// There is not enough free memory for this many bytes.
    #[error("the device has no {requested} bytes free ({free} of {total} are)")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes free.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
    /// The device does not have this ability.
    #[error("the device cannot {0}")]
    Unsupported(&'static str),
    /// The host has not so much memory that could be page-locked.
    #[error("the host has no {requested} bytes of memory to lock ({available} are available)")]
    HostMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes that could be had.
        available: u64,
    },
    /// The driver failed.
    #[error("{call} failed: {message}")]
    Driver {
        /// The call that failed.
        call: &'static str,
        /// What the driver said.
        message: String,
    },
}

/// Free and total memory of a device, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes free.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A piece of what [`Device::map_run`] maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Its length.
    pub bytes: u64,
    /// The mapping whose memory it gets; `None`: new memory.
    pub from: Option<Address>,
}

/// Device memory and what orders its use.
pub trait Device {
    /// An event recorded on a stream.
    type Event: std::fmt::Debug + Send + Sync;

    /// Takes memory from the device (`cudaMalloc`).
    fn alloc(&mut self, bytes: u64) -> Result<Address, Error>;

    /// Gives back what [`Device::alloc`] handed out (`cudaFree`).
    fn free(&mut self, address: Address) -> Result<(), Error>;

    /// Size of a page of virtual memory in bytes; `None` where there is no virtual memory management.
    fn page_size(&self) -> Option<u64>;

    /// Without pages to map: bytes by which a range may be longer than what is needed of it at no cost, since memory that is
    /// never touched is never taken.
    fn free_addresses(&self) -> u64 {
        0
    }

    /// Reserves an address range without memory behind it; `bytes` a multiple of the page size.
    fn reserve(&mut self, bytes: u64) -> Result<Address, Error>;

    /// Gives an address range back; nothing may be mapped in it.
    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error>;

    /// Puts new physical memory behind a page-aligned part of a reserved range.
    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error>;

    /// Puts the memory behind one mapping behind another part of a reserved range, too: `from` and `bytes` are those of one whole call
    /// of [`Device::map`] or of this. What a stream was given by way of one address is seen by way of the other by all that comes after
    /// it in the order of streams. The memory is given back with its last mapping.
    fn alias(&mut self, _from: Address, _to: Address, _bytes: u64) -> Result<(), Error> {
        Err(Error::Unsupported("map a page twice"))
    }

    /// Puts memory behind the pieces of a range, one after the other: as [`Device::map`] and [`Device::alias`] do, with fewer calls of the
    /// driver. Stops at the first that is refused. Returns how many were mapped, which stay, and why not all were.
    fn map_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        let mut at = to;
        for (index, piece) in pieces.iter().enumerate() {
            let mapped = match piece.from {
                Some(from) => self.alias(from, at, piece.bytes),
                None => self.map(at, piece.bytes),
            };
            if mapped.is_err() {
                return (index, mapped);
            }
            at += piece.bytes;
        }
        (pieces.len(), Ok(()))
    }

    /// Takes a range that was mapped by one or more whole calls of [`Device::map`] and [`Device::alias`] off its physical memory.
    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error>;

    /// A descriptor by which other processes get the memory of the mapping that begins at an address. It keeps that memory.
    fn export(&mut self, _address: Address) -> Result<OwnedFd, Error> {
        Err(Error::Unsupported("share its pages with other processes"))
    }

    /// Lets another device of the machine, by its ordinal, read and write what is mapped here, now and from now on. What
    /// [`Device::alloc`] hands out is the program's own matter: the driver opens it to whoever enables peer access.
    ///
    /// # Errors
    /// If there is no such device, or it cannot reach this one.
    fn allow_peer(&mut self, _peer: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Takes page-locked memory of the host, which [`Device::copy`] alone reads and writes.
    fn alloc_host(&mut self, _bytes: u64) -> Result<Address, Error> {
        Err(Error::Unsupported("keep contents on the host"))
    }

    /// Gives back what [`Device::alloc_host`] handed out. No copy may be under way.
    fn free_host(&mut self, _address: Address) -> Result<(), Error> {
        Err(Error::Unsupported("keep contents on the host"))
    }

    /// Queues a copy between memory of the device and such memory of the host, behind those that were queued on the same of its own
    /// streams (`lane`), and behind nothing else. It is over once [`Device::synchronize`] returns.
    fn copy(&mut self, _to: Address, _from: Address, _bytes: u64, _lane: usize) -> Result<(), Error> {
        Err(Error::Unsupported("keep contents on the host"))
    }

    /// What it asked of its driver so far to take, map and give back memory.
    fn driver_work(&self) -> DriverWork {
        DriverWork::default()
    }

    /// Time since it was opened, by a clock; `None` where time passes by none, as in a simulation.
    fn elapsed(&self) -> Option<Duration> {
        None
    }

    /// Free and total memory.
    fn memory_info(&self) -> Result<MemoryInfo, Error>;

    /// Bytes of it that may be held at most, however much is free.
    fn allowed(&self) -> u64 {
        u64::MAX
    }

    /// Records an event on a stream.
    fn record(&mut self, stream: Stream) -> Result<Self::Event, Error>;

    /// Whether all that came before an event has completed.
    fn completed(&mut self, event: &Self::Event) -> Result<bool, Error>;

    /// Blocks the caller until an event has completed.
    fn wait(&mut self, event: &Self::Event) -> Result<(), Error>;

    /// Queues a wait: what a stream is given from now on runs after the event. Does not block the caller.
    fn queue_wait(&mut self, stream: Stream, event: &Self::Event) -> Result<(), Error>;

    /// Blocks the caller until the device has done all that it was given.
    fn synchronize(&mut self) -> Result<(), Error>;
}

/// Page-locked memory of the host, which all GPUs of the process read and write, and what orders its use.
///
/// Nothing is borrowed for longer than a call, so that nobody has to hold a lock while a driver works.
pub trait PageLocked {
    /// An event recorded on a stream.
    type Event;

    /// Takes memory, with the driver of a GPU (`cudaHostAlloc`).
    fn alloc(&self, device: u32, bytes: u64) -> Result<Address, Error>;

    /// Gives back what [`PageLocked::alloc`] handed out (`cudaFreeHost`).
    fn free(&self, device: u32, address: Address) -> Result<(), Error>;

    /// Records an event on a GPU's stream.
    fn record(&self, device: u32, stream: Stream) -> Result<Self::Event, Error>;

    /// Whether all that came before an event has completed.
    fn completed(&self, event: &Self::Event) -> Result<bool, Error>;
}
