//! The arena with its fallback: a whole allocator.

use stalloc_device::{Address, Device, Stream};

use crate::arena::{Arena, Served};
use crate::statistics::{ServedBy, Statistics};
use crate::{Allocator, Error};

/// Serves from the arena what it can, and the rest from a fallback `F` that draws on the same device.
#[derive(Debug)]
pub struct PlannedAllocator<D: Device, F> {
    arena: Arena<D>,
    fallback: F,
    peak_reserved: u64,
    peak_allocated: u64,
}

impl<D: Device, F: Allocator> PlannedAllocator<D, F> {
    /// Puts an arena before a fallback.
    pub fn new(arena: Arena<D>, fallback: F) -> Self {
        PlannedAllocator { arena, fallback, peak_reserved: 0, peak_allocated: 0 }
    }

    /// The arena.
    pub fn arena(&self) -> &Arena<D> {
        &self.arena
    }

    /// The arena, to give it a plan or a budget.
    pub fn arena_mut(&mut self) -> &mut Arena<D> {
        &mut self.arena
    }

    /// Whether some stream is being captured into a graph: see [`Arena::set_capturing`].
    pub fn set_capturing(&mut self, capturing: bool) {
        self.arena.set_capturing(capturing);
    }

    /// What the arena did.
    pub fn statistics(&self) -> Statistics {
        self.arena.statistics()
    }

    /// The most device memory held at once, arena and fallback together.
    pub fn peak_reserved(&self) -> u64 {
        self.peak_reserved
    }

    /// The most live bytes at once, each block rounded up to 512.
    pub fn peak_allocated(&self) -> u64 {
        self.peak_allocated
    }

    /// Like [`Allocator::malloc`], and says how the place was found.
    pub fn serve(&mut self, size: u64, stream: Stream) -> Result<Served, Error> {
        let served = match self.arena.serve(size, stream) {
            Some(served) => served,
            None => {
                let (address, source) = (self.malloc_beside(size, stream)?, ServedBy::Fallback);
                Served { address, source, bytes: size, reserved: self.reserved(), departed: self.arena.has_departed() }
            }
        };
        self.peak_reserved = self.peak_reserved.max(self.reserved());
        self.peak_allocated = self.peak_allocated.max(self.allocated());
        Ok(served)
    }

    /// Serves from the fallback; before it fails, everything cached is given back.
    fn malloc_beside(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        match self.fallback.malloc(size, stream) {
            Err(Error::OutOfMemory { .. } | Error::Device(stalloc_device::Error::OutOfMemory { .. })) => {}
            result => return result,
        }
        self.empty_cache()?;
        self.fallback.malloc(size, stream).map_err(|error| match error {
            Error::OutOfMemory { requested, .. }
            | Error::Device(stalloc_device::Error::OutOfMemory { requested, .. }) => {
                Error::OutOfMemory { requested, allocated: self.allocated(), reserved: self.reserved() }
            }
            other => other,
        })
    }
}

impl<D: Device, F: Allocator> Allocator for PlannedAllocator<D, F> {
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        self.serve(size, stream).map(|served| served.address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        if self.arena.owns(address) { self.arena.free(address).map(drop) } else { self.fallback.free(address) }
    }

    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        if self.arena.owns(address) {
            self.arena.record_stream(address, stream)
        } else {
            self.fallback.record_stream(address, stream)
        }
    }

    fn step_begin(&mut self) {
        self.arena.step_begin();
        self.fallback.step_begin();
    }

    fn allocated(&self) -> u64 {
        self.arena.statistics().allocated + self.fallback.allocated()
    }

    fn reserved(&self) -> u64 {
        self.arena.statistics().reserved + self.fallback.reserved()
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.arena.give_back(u64::MAX)?;
        self.fallback.empty_cache()
    }
}
