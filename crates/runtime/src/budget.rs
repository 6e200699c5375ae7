//! What an arena may do with its device: how much memory it may hold (what the program allows itself, less what the fallback
//! holds), and whether its streams may wait for each other; and how often its memory changed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stalloc_device::{Address, Backing, Device, DriverWork, Error, MemoryInfo, Stream};

use crate::host_room;

/// What arena and fallback of one device may hold together. Read and written without a lock.
#[derive(Debug)]
pub struct DeviceBudget {
    /// Bytes; `u64::MAX`: no limit.
    limit: AtomicU64,
    /// Device memory of the fallback, bytes.
    fallback: AtomicU64,
    /// See [`DeviceBudget::forbid_waits`].
    forbids_waits: AtomicBool,
    /// See [`DeviceBudget::changes`].
    changes: AtomicU64,
}

impl DeviceBudget {
    /// No limit.
    pub const fn new() -> Self {
        DeviceBudget {
            limit: AtomicU64::new(u64::MAX),
            fallback: AtomicU64::new(0),
            forbids_waits: AtomicBool::new(false),
            changes: AtomicU64::new(0),
        }
    }

    /// No stream is made to wait for another from now on: memory that another stream used last is taken over only once that
    /// stream is done with it, as PyTorch does it. A wait that the program did not ask for can complete a cycle with what
    /// streams of other processes wait for: where two ranks give their collectives to two streams in different orders, each is
    /// free to run until one stream is made to wait for the other.
    pub fn forbid_waits(&self) {
        self.forbids_waits.store(true, Ordering::SeqCst);
    }

    /// Arena and fallback may hold so many bytes from now on; what they hold they keep.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::SeqCst);
    }

    /// The fallback holds so many bytes now.
    pub fn set_fallback(&self, bytes: u64) {
        self.fallback.store(bytes, Ordering::SeqCst);
    }

    /// How often the arena's memory changed so far: while this number stays, what is mapped does too.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Bytes that the arena may hold; `u64::MAX`: no limit.
    pub fn of_arena(&self) -> u64 {
        match self.limit.load(Ordering::SeqCst) {
            u64::MAX => u64::MAX,
            limit => limit.saturating_sub(self.fallback.load(Ordering::SeqCst)),
        }
    }
}

/// A device whose memory is at its end where a budget is.
#[derive(Debug)]
pub struct Budgeted<D> {
    device: D,
    budget: &'static DeviceBudget,
    held: u64,
    /// Bytes that are mapped a second time. The first that are unmapped count as theirs, so `held` is never too small.
    aliased: u64,
}

impl<D: Device> Budgeted<D> {
    /// A device that nothing was taken from yet.
    pub fn new(device: D, budget: &'static DeviceBudget) -> Self {
        Budgeted { device, budget, held: 0, aliased: 0 }
    }

    fn check(&self, bytes: u64) -> Result<(), Error> {
        let allowed = self.budget.of_arena();
        if self.held.saturating_add(bytes) <= allowed {
            return Ok(());
        }
        Err(Error::OutOfMemory { requested: bytes, free: allowed.saturating_sub(self.held), total: allowed })
    }
}

impl<D: Device> Device for Budgeted<D> {
    type Event = D::Event;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.check(bytes)?;
        let address = self.device.alloc(bytes)?;
        self.budget.changed();
        self.held += bytes;
        Ok(address)
    }

    // An arena without virtual memory takes its memory once, and gives it back when it ends.
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.device.free(address)
    }

    fn page_size(&self) -> Option<u64> {
        self.device.page_size()
    }

    fn free_addresses(&self) -> u64 {
        self.device.free_addresses()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.device.reserve(bytes)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.device.release(address, bytes)
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.check(bytes)?;
        self.device.map(address, bytes)?;
        self.budget.changed();
        self.held += bytes;
        Ok(())
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.device.alias(from, to, bytes)?;
        self.aliased += bytes;
        Ok(())
    }

    fn map_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        // As far as the budget goes.
        let (mut fits, mut new) = (0, 0);
        for piece in pieces {
            new += if piece.from.is_none() { piece.bytes } else { 0 };
            if self.check(new).is_err() {
                break;
            }
            fits += 1;
        }
        let (count, result) = self.device.map_run(to, &pieces[..fits]);
        for piece in &pieces[..count] {
            *if piece.from.is_none() { &mut self.held } else { &mut self.aliased } += piece.bytes;
        }
        if count > 0 {
            self.budget.changed();
        }
        let within = if fits < pieces.len() { self.check(new) } else { Ok(()) };
        (count, result.and(within))
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.device.unmap(address, bytes)?;
        self.budget.changed();
        let aliased = self.aliased.min(bytes);
        self.aliased -= aliased;
        self.held = self.held.saturating_sub(bytes - aliased);
        Ok(())
    }

    fn export(&mut self, address: Address) -> Result<OwnedFd, Error> {
        self.device.export(address)
    }

    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.device.allow_peer(peer)
    }

    fn alloc_host(&mut self, bytes: u64) -> Result<Address, Error> {
        host_room::take(bytes, || self.device.alloc_host(bytes))
    }

    fn free_host(&mut self, address: Address) -> Result<(), Error> {
        self.device.free_host(address)
    }

    fn copy(&mut self, to: Address, from: Address, bytes: u64, lane: usize) -> Result<(), Error> {
        self.device.copy(to, from, bytes, lane)
    }

    fn driver_work(&self) -> DriverWork {
        self.device.driver_work()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.device.elapsed()
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.device.memory_info()
    }

    fn allowed(&self) -> u64 {
        self.budget.of_arena()
    }

    fn record(&mut self, stream: Stream) -> Result<Self::Event, Error> {
        self.device.record(stream)
    }

    fn completed(&mut self, event: &Self::Event) -> Result<bool, Error> {
        self.device.completed(event)
    }

    fn wait(&mut self, event: &Self::Event) -> Result<(), Error> {
        self.device.wait(event)
    }

    fn queue_wait(&mut self, stream: Stream, event: &Self::Event) -> Result<(), Error> {
        if !self.budget.forbids_waits.load(Ordering::Relaxed) {
            return self.device.queue_wait(stream, event);
        }
        if self.device.completed(event)? {
            Ok(())
        } else {
            Err(Error::Unsupported("take over what a stream still uses"))
        }
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.device.synchronize()
    }
}

#[cfg(test)]
mod tests;
