//! A device that only counts.

use std::collections::BTreeMap;

use crate::{Address, Device, Error, MemoryInfo, Stream};

/// Where the first address lies: not 0, which is nobody's, and aligned to any page size.
const BASE: Address = 1 << 40;

/// A device without memory: it hands out numbers and counts what is in use. Events complete at once.
#[derive(Clone, Debug)]
pub struct Counting {
    capacity: u64,
    page: u64,
    used: u64,
    next: Address,
    segments: BTreeMap<Address, u64>,
    mapped: BTreeMap<Address, u64>,
}

impl Counting {
    /// A device with this many bytes and 2 MiB pages.
    pub fn new(capacity: u64) -> Self {
        Counting { capacity, page: 2 << 20, used: 0, next: BASE, segments: BTreeMap::new(), mapped: BTreeMap::new() }
    }

    /// Bytes taken and not given back.
    pub fn used(&self) -> u64 {
        self.used
    }

    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        let free = self.capacity - self.used;
        if bytes > free {
            return Err(Error::OutOfMemory { requested: bytes, free, total: self.capacity });
        }
        self.used += bytes;
        Ok(())
    }

    fn range(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.next;
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(self.page));
        self.next = end.ok_or(Error::Unsupported("reserve more than its address space"))?;
        Ok(address)
    }
}

impl Device for Counting {
    type Event = ();

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.take(bytes)?;
        let address = self.range(bytes)?;
        self.segments.insert(address, bytes);
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        let bytes = self.segments.remove(&address).ok_or(Error::Unsupported("free what it did not hand out"))?;
        self.used -= bytes;
        Ok(())
    }

    fn page_size(&self) -> Option<u64> {
        Some(self.page)
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.range(bytes)
    }

    fn release(&mut self, _address: Address, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.take(bytes)?;
        self.mapped.insert(address, bytes);
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let mut at = address;
        while at < address + bytes {
            let size = self.mapped.remove(&at).ok_or(Error::Unsupported("unmap what is not mapped"))?;
            self.used -= size;
            at += size;
        }
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        Ok(MemoryInfo { free: self.capacity - self.used, total: self.capacity })
    }

    fn record(&mut self, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }

    fn completed(&mut self, _event: &()) -> Result<bool, Error> {
        Ok(true)
    }

    fn wait(&mut self, _event: &()) -> Result<(), Error> {
        Ok(())
    }
}
