//! One device behind several owners.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Address, Backing, Device, DriverWork, Error, MemoryInfo, Stream};

/// A handle to a device that several allocators draw on, such as an arena and its fallback. Cloning it makes
/// another handle to the same device.
#[derive(Debug, Default)]
pub struct Shared<D>(Arc<Mutex<D>>);

impl<D> Shared<D> {
    /// A first handle.
    pub fn new(device: D) -> Self {
        Shared(Arc::new(Mutex::new(device)))
    }

    /// The device itself, locked. A caller that panicked while it held the lock does not lock others out: each
    /// device call leaves the device consistent.
    pub fn lock(&self) -> MutexGuard<'_, D> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D> Clone for Shared<D> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<D: Device> Device for Shared<D> {
    type Event = D::Event;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.lock().alloc(bytes)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.lock().free(address)
    }

    fn page_size(&self) -> Option<u64> {
        self.lock().page_size()
    }

    fn free_addresses(&self) -> u64 {
        self.lock().free_addresses()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.lock().reserve(bytes)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.lock().release(address, bytes)
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.lock().map(address, bytes)
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.lock().alias(from, to, bytes)
    }

    fn map_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        self.lock().map_run(to, pieces)
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.lock().unmap(address, bytes)
    }

    fn export(&mut self, address: Address) -> Result<OwnedFd, Error> {
        self.lock().export(address)
    }

    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.lock().allow_peer(peer)
    }

    fn alloc_host(&mut self, bytes: u64) -> Result<Address, Error> {
        self.lock().alloc_host(bytes)
    }

    fn free_host(&mut self, address: Address) -> Result<(), Error> {
        self.lock().free_host(address)
    }

    fn copy(&mut self, to: Address, from: Address, bytes: u64, lane: usize) -> Result<(), Error> {
        self.lock().copy(to, from, bytes, lane)
    }

    fn driver_work(&self) -> DriverWork {
        self.lock().driver_work()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.lock().elapsed()
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.lock().memory_info()
    }

    fn record(&mut self, stream: Stream) -> Result<Self::Event, Error> {
        self.lock().record(stream)
    }

    fn completed(&mut self, event: &Self::Event) -> Result<bool, Error> {
        self.lock().completed(event)
    }

    fn wait(&mut self, event: &Self::Event) -> Result<(), Error> {
        self.lock().wait(event)
    }

    fn queue_wait(&mut self, stream: Stream, event: &Self::Event) -> Result<(), Error> {
        self.lock().queue_wait(stream, event)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.lock().synchronize()
    }
}
