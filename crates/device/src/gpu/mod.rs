//! A GPU by way of its vendor's driver, which is loaded at run time: no CUDA or ROCm is needed to build.
//!
//! Three layers: [`sys`] is the driver as it is, [`calls`] turns each call into a `Result`, and [`Gpu`] owns what it
//! takes and gives it back.

use std::collections::BTreeMap;
use std::ffi::{OsStr, c_int, c_void};
use std::fmt;
use std::sync::Arc;

use crate::{Address, Device, Error, MemoryInfo, Stream};

mod calls;
mod host_memory;
mod sys;

use calls::Calls;
pub use host_memory::HostMemory;
use sys::{Driver, Flavour};

/// A device of NVIDIA or AMD.
#[derive(Debug)]
pub struct Gpu {
    calls: Arc<Calls>,
    page: Option<u64>,
    /// Mappings that have memory, start to length: a driver only unmaps whole ones.
    mapped: BTreeMap<Address, u64>,
    /// Other devices that may use what is mapped, as the driver knows them.
    peers: Vec<c_int>,
}

/// An event of a [`Gpu`], destroyed when it is dropped.
pub struct Event {
    raw: *mut c_void,
    calls: Arc<Calls>,
}

// SAFETY: drivers' events may be used and destroyed by any thread.
unsafe impl Send for Event {}
// SAFETY: as above; asking an event changes nothing that another thread could see half-done.
unsafe impl Sync for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Event").field(&self.raw).finish()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A driver that refuses leaks one event; there is nobody to tell.
        let _ = self.calls.destroy_event(self.raw);
    }
}

impl Gpu {
    /// An NVIDIA device by its ordinal, as CUDA counts the visible ones, in its primary context.
    ///
    /// # Errors
    /// [`Error::Driver`] if the driver cannot be loaded or has no such device.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        Gpu::open(OsStr::new("libcuda.so.1"), Flavour::Cuda, ordinal)
    }

    /// The same with the driver's library at a path.
    pub fn cuda_at(library: &OsStr, ordinal: u32) -> Result<Self, Error> {
        Gpu::open(library, Flavour::Cuda, ordinal)
    }

    /// An AMD device by its ordinal, as HIP counts the visible ones.
    ///
    /// # Errors
    /// [`Error::Driver`] if the runtime cannot be loaded or has no such device.
    pub fn hip(ordinal: u32) -> Result<Self, Error> {
        Gpu::open(OsStr::new("libamdhip64.so"), Flavour::Hip, ordinal)
    }

    /// The same with the runtime's library at a path.
    pub fn hip_at(library: &OsStr, ordinal: u32) -> Result<Self, Error> {
        Gpu::open(library, Flavour::Hip, ordinal)
    }

    fn open(library: &OsStr, flavour: Flavour, ordinal: u32) -> Result<Self, Error> {
        let calls = Calls::new(Driver::load(library, flavour)?, ordinal)?;
        let page = calls.page_size();
        Ok(Gpu { calls: Arc::new(calls), page, mapped: BTreeMap::new(), peers: Vec::new() })
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
        if before.is_some_and(|(&start, &length)| start + length > address) {
            return Err(Error::Unsupported("map a page twice"));
        }
        Ok(())
    }

    fn explain<T>(&self, result: Result<T, calls::Failure>, requested: u64) -> Result<T, Error> {
        result.map_err(|failure| match failure {
            calls::Failure::OutOfMemory => self.out_of_memory(requested),
            calls::Failure::Other(error) => error,
        })
    }
}

impl Device for Gpu {
    type Event = Event;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.explain(self.calls.alloc(bytes), bytes)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.calls.free(address)
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
        self.check_free(address, bytes)?;
        self.explain(self.calls.map(address, bytes, &self.peers), bytes)?;
        self.mapped.insert(address, bytes);
        Ok(())
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.check_free(to, bytes)?;
        if self.mapped.get(&from) != Some(&bytes) {
            return Err(Error::Unsupported("map again what is not mapped"));
        }
        self.explain(self.calls.alias(from, to, bytes, &self.peers), bytes)?;
        self.mapped.insert(to, bytes);
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let mut end = address;
        while end < address.saturating_add(bytes) {
            end += self.mapped.get(&end).ok_or(Error::Unsupported("unmap what is not mapped"))?;
        }
        if bytes == 0 || end != address.saturating_add(bytes) {
            return Err(Error::Unsupported("unmap what is not mapped"));
        }
        while let Some((&start, &length)) = self.mapped.range(address..end).next() {
            self.calls.unmap(start, length)?;
            self.mapped.remove(&start);
        }
        Ok(())
    }

    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        let peer = self.calls.peer(peer)?;
        if self.peers.contains(&peer) {
            return Ok(());
        }
        for (&start, &length) in &self.mapped {
            self.calls.allow(start, length, &[peer])?;
        }
        self.peers.push(peer);
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.calls.memory_info()
    }

    fn record(&mut self, stream: Stream) -> Result<Event, Error> {
        // The event is owned from here on, so that it is destroyed if it cannot be recorded.
        let event = Event { raw: self.calls.create_event()?, calls: Arc::clone(&self.calls) };
        self.calls.record(event.raw, stream)?;
        Ok(event)
    }

    fn completed(&mut self, event: &Event) -> Result<bool, Error> {
        self.calls.is_complete(event.raw)
    }

    fn wait(&mut self, event: &Event) -> Result<(), Error> {
        self.calls.wait(event.raw)
    }

    fn queue_wait(&mut self, stream: Stream, event: &Event) -> Result<(), Error> {
        self.calls.queue_wait(stream, event.raw)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.calls.synchronize()
    }
}
