//! What the caching allocator must do, rule by rule, and what it must never do.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use stalloc_device::{Address, Counting, Device, Error as DeviceError, MemoryInfo, Stream};

use super::*;
use stalloc_allocator::Allocator;

mod expandable;
mod failures;
mod random;
mod rules;
mod streams;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;

/// What a [`Watched`] device was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Alloc(u64),
    Free(u64),
    Map(Address, u64),
    Unmap(Address, u64),
    Wait,
}

#[derive(Default)]
pub(super) struct Watch {
    pub did: Vec<Did>,
    pub used: u64,
    pub sizes: BTreeMap<Address, u64>,
    /// Events that have not completed.
    pub pending: HashSet<u64>,
    pub events: u64,
    /// Events stay pending until a test completes them.
    pub slow: bool,
    /// The next calls of these kinds fail for a reason other than memory.
    pub broken: HashSet<&'static str>,
}

/// A counting device whose log, events and failures a test controls.
pub(super) struct Watched {
    inner: Counting,
    pub watch: Rc<RefCell<Watch>>,
}

impl Watched {
    fn fails(&self, call: &'static str) -> Result<(), DeviceError> {
        match self.watch.borrow().broken.contains(call) {
            true => Err(DeviceError::Driver { call, message: "broken".into() }),
            false => Ok(()),
        }
    }

    fn note(&self, did: Did) {
        let mut watch = self.watch.borrow_mut();
        watch.did.push(did);
        watch.used = self.inner.used();
    }
}

impl Device for Watched {
    type Event = u64;

    fn alloc(&mut self, bytes: u64) -> Result<Address, DeviceError> {
        self.fails("alloc")?;
        let address = self.inner.alloc(bytes)?;
        self.watch.borrow_mut().sizes.insert(address, bytes);
        self.note(Did::Alloc(bytes));
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), DeviceError> {
        self.fails("free")?;
        self.inner.free(address)?;
        let bytes = self.watch.borrow_mut().sizes.remove(&address).unwrap();
        self.note(Did::Free(bytes));
        Ok(())
    }

    fn page_size(&self) -> Option<u64> {
        self.fails("page_size").ok()?;
        self.inner.page_size()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, DeviceError> {
        self.fails("reserve")?;
        self.inner.reserve(bytes)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), DeviceError> {
        self.inner.release(address, bytes)
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), DeviceError> {
        self.fails("map")?;
        self.inner.map(address, bytes)?;
        self.note(Did::Map(address, bytes));
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), DeviceError> {
        self.fails("unmap")?;
        self.inner.unmap(address, bytes)?;
        self.note(Did::Unmap(address, bytes));
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.inner.memory_info()
    }

    fn record(&mut self, _stream: Stream) -> Result<u64, DeviceError> {
        self.fails("record")?;
        let mut watch = self.watch.borrow_mut();
        watch.events += 1;
        let event = watch.events;
        if watch.slow {
            watch.pending.insert(event);
        }
        Ok(event)
    }

    fn completed(&mut self, event: &u64) -> Result<bool, DeviceError> {
        Ok(!self.watch.borrow().pending.contains(event))
    }

    fn wait(&mut self, event: &u64) -> Result<(), DeviceError> {
        self.watch.borrow_mut().pending.remove(event);
        self.note(Did::Wait);
        Ok(())
    }

    fn queue_wait(&mut self, _stream: Stream, _event: &u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.watch.borrow_mut().pending.clear();
        Ok(())
    }
}

/// An allocator on a watched device of `capacity` bytes.
pub(super) fn on(capacity: u64, settings: Settings) -> (Caching<Watched>, Rc<RefCell<Watch>>) {
    let watch = Rc::new(RefCell::new(Watch::default()));
    let device = Watched { inner: Counting::new(capacity), watch: Rc::clone(&watch) };
    (Caching::new(device, settings), watch)
}

pub(super) fn default() -> (Caching<Watched>, Rc<RefCell<Watch>>) {
    on(1 << 40, Settings::default())
}

/// What the device did since the last call.
pub(super) fn did(watch: &Rc<RefCell<Watch>>) -> Vec<Did> {
    std::mem::take(&mut watch.borrow_mut().did)
}
