//! A GPU by way of its vendor's driver, which is loaded at run time: no CUDA or ROCm is needed to build.
//!
//! Three layers: [`sys`] is the driver as it is, [`calls`] turns each call into a `Result`, and [`GpuDevice`] owns what it
//! takes and gives it back.

use std::collections::BTreeMap;
use std::ffi::{OsStr, c_int, c_void};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Address, Backing, Device, DriverWork, Error, MemoryInfo, Stream};

mod calls;
mod host_memory;
mod sys;

use calls::{Calls, MemoryHandle};
pub use host_memory::HostMemory;
use sys::{Driver, Flavour};

/// A device of NVIDIA or AMD.
#[derive(Debug)]
pub struct GpuDevice {
    calls: Arc<Calls>,
    page: Option<u64>,
    /// Mappings by their start: a driver only unmaps whole ones.
    mapped: BTreeMap<Address, Mapping>,
    /// How often each piece of memory is mapped.
    mappings: BTreeMap<MemoryHandle, u32>,
    /// Other devices that may use what is mapped, as the driver knows them.
    peers: Vec<c_int>,
    opened: Instant,
    work: DriverWork,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    memory: MemoryHandle,
}

/// An event of a [`GpuDevice`], given back when it is dropped.
pub struct GpuEvent {
    raw: *mut c_void,
    calls: Arc<Calls>,
}

// SAFETY: drivers' events may be used and destroyed by any thread.
unsafe impl Send for GpuEvent {}
// SAFETY: as above; asking an event changes nothing that another thread could see half-done.
unsafe impl Sync for GpuEvent {}

impl fmt::Debug for GpuEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("GpuEvent").field(&self.raw).finish()
    }
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        self.calls.give_back_event(self.raw);
    }
}

impl GpuDevice {
    /// An NVIDIA device by its ordinal, as CUDA counts the visible ones, in its primary context.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        GpuDevice::open(OsStr::new("libcuda.so.1"), Flavour::Cuda, ordinal)
    }

    /// The same with the driver's library at a path.
    pub fn cuda_at(library: &OsStr, ordinal: u32) -> Result<Self, Error> {
        GpuDevice::open(library, Flavour::Cuda, ordinal)
    }

    /// An AMD device by its ordinal, as HIP counts the visible ones.
    pub fn hip(ordinal: u32) -> Result<Self, Error> {
        GpuDevice::open(OsStr::new("libamdhip64.so"), Flavour::Hip, ordinal)
    }

    /// The same with the runtime's library at a path.
    pub fn hip_at(library: &OsStr, ordinal: u32) -> Result<Self, Error> {
        GpuDevice::open(library, Flavour::Hip, ordinal)
    }

    fn open(library: &OsStr, flavour: Flavour, ordinal: u32) -> Result<Self, Error> {
        let calls = Calls::new(Driver::load(library, flavour)?, ordinal)?;
        let page = calls.page_size();
        Ok(GpuDevice {
            calls: Arc::new(calls),
            page,
            mapped: BTreeMap::new(),
            mappings: BTreeMap::new(),
            peers: Vec::new(),
            opened: Instant::now(),
            work: DriverWork::default(),
        })
    }

    /// The stand-in for a driver, in whose place no clock says how long a driver takes.
    fn is_stand_in(&self) -> bool {
        self.calls.is_stand_in()
    }

    /// Does what takes, maps or gives back memory, and notes how long the driver took.
    fn timed<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let (before, begun) = (self.work.nanoseconds, Instant::now());
        let result = act(self);
        if !self.is_stand_in() {
            self.work.nanoseconds = before + begun.elapsed().as_nanos() as u64;
        }
        result
    }

    /// Whether AMD's runtime drives it.
    pub fn is_amd(&self) -> bool {
        !self.calls.opens_runs()
    }

    /// What to say if memory runs out.
    fn out_of_memory(&self, requested: u64) -> Error {
        match self.memory_info() {
            Ok(MemoryInfo { free, total }) => Error::OutOfMemory { requested, free, total },
            Err(error) => error,
        }
    }

    /// A driver refuses what is mapped already, too; not every stand-in does.
    fn check_free(&self, address: Address, bytes: u64) -> Result<(), Error> {
        let before = self.mapped.range(..address.saturating_add(bytes)).next_back();
        if before.is_some_and(|(&start, mapping)| start + mapping.bytes > address) {
            return Err(Error::Unsupported("map a page twice"));
        }
        Ok(())
    }

    /// Maps a piece, which nobody may use yet.
    fn put(&mut self, at: Address, piece: Backing) -> Result<(), Error> {
        let Backing { bytes, from } = piece;
        self.check_free(at, bytes)?;
        let memory = match from {
            None => self.explain(self.calls.map(at, bytes), bytes)?,
            Some(from) => {
                let mapping = self.mapped.get(&from).filter(|mapping| mapping.bytes == bytes);
                let memory = mapping.ok_or(Error::Unsupported("map again what is not mapped"))?.memory;
                self.explain(self.calls.map_again(memory, at, bytes), bytes)?;
                memory
            }
        };
        if from.is_none() {
            self.work.map()
        } else {
            self.work.map_again()
        }
        *self.mappings.entry(memory).or_default() += 1;
        self.mapped.insert(at, Mapping { bytes, memory });
        Ok(())
    }

    /// As [`Device::map_run`].
    fn put_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        let (mut at, mut count, mut result) = (to, 0, Ok(()));
        for &piece in pieces {
            result = self.put(at, piece);
            if result.is_err() {
                break;
            }
            at += piece.bytes;
            count += 1;
        }
        if let Err(error) = self.open_run(to, at) {
            // Nobody may use it, so it is as if it had not been mapped.
            let _ = self.unmap(to, at - to);
            return (0, Err(error));
        }
        (count, result)
    }

    /// Lets all devices that may use what is mapped here use the mappings from one address to another.
    fn open_run(&self, start: Address, end: Address) -> Result<(), Error> {
        let open = |at, bytes| self.explain(self.calls.allow(at, bytes, &self.peers), bytes);
        if start < end && self.calls.opens_runs() {
            return open(start, end - start);
        }
        self.mapped.range(start..end).try_for_each(|(&at, mapping)| open(at, mapping.bytes))
    }

    /// One mapping of this memory less.
    fn let_go(&mut self, memory: MemoryHandle) -> Result<(), Error> {
        let left = self.mappings.get_mut(&memory).map_or(0, |mappings| {
            *mappings -= 1;
            *mappings
        });
        if left > 0 {
            return Ok(());
        }
        self.mappings.remove(&memory);
        self.work.give_back();
        self.calls.release(memory)
    }

    fn explain<T>(&self, result: Result<T, calls::Failure>, requested: u64) -> Result<T, Error> {
        result.map_err(|failure| match failure {
            calls::Failure::OutOfMemory => self.out_of_memory(requested),
            calls::Failure::Other(error) => error,
        })
    }
}

impl Device for GpuDevice {
    type Event = GpuEvent;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.timed(|gpu| {
            gpu.work.alloc();
            gpu.explain(gpu.calls.alloc(bytes), bytes)
        })
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.timed(|gpu| {
            gpu.work.free();
            gpu.calls.free(address)
        })
    }

    fn page_size(&self) -> Option<u64> {
        self.page
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.calls.reserve(bytes, self.page.unwrap_or(0))
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.calls.release_range(address, bytes)
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.map_run(address, &[Backing { bytes, from: None }]).1
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.map_run(to, &[Backing { bytes, from: Some(from) }]).1
    }

    fn map_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        self.timed(|gpu| gpu.put_run(to, pieces))
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let mut end = address;
        while end < address.saturating_add(bytes) {
            end += self.mapped.get(&end).ok_or(Error::Unsupported("unmap what is not mapped"))?.bytes;
        }
        if bytes == 0 || end != address.saturating_add(bytes) {
            return Err(Error::Unsupported("unmap what is not mapped"));
        }
        self.timed(|gpu| {
            while let Some((&start, &mapping)) = gpu.mapped.range(address..end).next() {
                gpu.calls.unmap(start, mapping.bytes)?;
                gpu.work.unmap();
                gpu.mapped.remove(&start);
                gpu.let_go(mapping.memory)?;
            }
            Ok(())
        })
    }

    fn export(&mut self, address: Address) -> Result<OwnedFd, Error> {
        let mapping = self.mapped.get(&address).ok_or(Error::Unsupported("share what is not mapped"))?;
        self.calls.export(mapping.memory)
    }

    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        let peer = self.calls.peer(peer)?;
        if self.peers.contains(&peer) {
            return Ok(());
        }
        for (&start, mapping) in &self.mapped {
            self.explain(self.calls.allow(start, mapping.bytes, &[peer]), 0)?;
        }
        self.peers.push(peer);
        Ok(())
    }

    fn alloc_host(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.calls.alloc_host(bytes).map_err(|failure| match failure {
            calls::Failure::OutOfMemory => Error::HostMemory { requested: bytes, available: 0 },
            calls::Failure::Other(error) => error,
        })?;
        self.calls.keep(address);
        Ok(address)
    }

    fn free_host(&mut self, address: Address) -> Result<(), Error> {
        self.calls.free_host(address)
    }

    fn copy(&mut self, to: Address, from: Address, bytes: u64, lane: usize) -> Result<(), Error> {
        self.calls.copy(to, from, bytes, lane)
    }

    fn driver_work(&self) -> DriverWork {
        self.work
    }

    fn elapsed(&self) -> Option<Duration> {
        if self.is_stand_in() { self.calls.modelled_time() } else { Some(self.opened.elapsed()) }
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.calls.memory_info()
    }

    fn record(&mut self, stream: Stream) -> Result<GpuEvent, Error> {
        // The event is owned from here on, so that it is destroyed if it cannot be recorded.
        let event = GpuEvent { raw: self.calls.create_event()?, calls: Arc::clone(&self.calls) };
        self.calls.record(event.raw, stream)?;
        Ok(event)
    }

    fn completed(&mut self, event: &GpuEvent) -> Result<bool, Error> {
        self.calls.is_complete(event.raw)
    }

    fn wait(&mut self, event: &GpuEvent) -> Result<(), Error> {
        self.calls.wait(event.raw)
    }

    fn queue_wait(&mut self, stream: Stream, event: &GpuEvent) -> Result<(), Error> {
        self.calls.queue_wait(stream, event.raw)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.calls.synchronize()
    }
}
