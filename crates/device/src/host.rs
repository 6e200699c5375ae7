//! Host memory as a device: real bytes, so that numbers computed in it show whether two tensors ever shared a place.

use std::collections::BTreeMap;

use memmap2::{MmapMut, MmapOptions};

use crate::{Address, Device, Error, MemoryInfo, Stream};

/// Host memory in anonymous mappings, page-aligned; untouched pages cost nothing. The CPU works in program order, so
/// events complete at once. It has no virtual memory management of its own: the operating system already puts pages
/// behind what is touched.
#[derive(Debug)]
pub struct Host {
    capacity: u64,
    used: u64,
    blocks: BTreeMap<Address, (u64, MmapMut)>,
}

impl Host {
    /// A device that hands out at most this many bytes.
    pub fn new(capacity: u64) -> Self {
        Host { capacity, used: 0, blocks: BTreeMap::new() }
    }
}

impl Device for Host {
    type Event = ();

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        let free = self.capacity - self.used;
        let out_of_memory = Error::OutOfMemory { requested: bytes, free, total: self.capacity };
        if bytes > free {
            return Err(out_of_memory);
        }
        let Ok(length) = usize::try_from(bytes.max(1)) else { return Err(out_of_memory) };
        let block = MmapOptions::new()
            .len(length)
            .map_anon()
            .map_err(|error| Error::Driver { call: "mmap", message: error.to_string() })?;
        let address = block.as_ptr().expose_provenance() as Address;
        self.used += bytes;
        self.blocks.insert(address, (bytes, block));
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        let (bytes, _) = self.blocks.remove(&address).ok_or(Error::Unsupported("free what it did not hand out"))?;
        self.used -= bytes;
        Ok(())
    }

    fn page_size(&self) -> Option<u64> {
        None
    }

    fn free_addresses(&self) -> u64 {
        // Little enough for the operating system to promise, and under Miri to be there at all.
        if cfg!(miri) { 1 << 22 } else { 1 << 33 }
    }

    fn reserve(&mut self, _bytes: u64) -> Result<Address, Error> {
        Err(Error::Unsupported("reserve an address range"))
    }

    fn release(&mut self, _address: Address, _bytes: u64) -> Result<(), Error> {
        Err(Error::Unsupported("release what is not reserved"))
    }

    fn map(&mut self, _address: Address, _bytes: u64) -> Result<(), Error> {
        Err(Error::Unsupported("map pages"))
    }

    fn unmap(&mut self, _address: Address, _bytes: u64) -> Result<(), Error> {
        Err(Error::Unsupported("unmap what is not mapped"))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        Ok(MemoryInfo { free: self.capacity - self.used, total: self.capacity })
    }

    crate::done_at_once!();
}
