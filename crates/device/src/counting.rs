//! A device that only counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use crate::{Address, Device, DriverWork, Error, MemoryInfo, Stream};

/// Where the first address lies: not 0, which is nobody's, and aligned to any page size.
const BASE: Address = 1 << 40;

/// A device without memory: it hands out numbers and counts what is in use. Its streams are always idle, so events
/// complete at once. It refuses what a real driver refuses: double frees, pages outside a reserved range, pages
/// mapped twice. The descriptors of its pages are of nothing.
#[derive(Clone, Debug)]
pub struct Counting {
    capacity: u64,
    page: Option<u64>,
    used: u64,
    next: Address,
    segments: BTreeMap<Address, u64>,
    reserved: BTreeMap<Address, u64>,
    mapped: BTreeMap<Address, CountedMapping>,
    /// How often each piece of memory is mapped.
    mappings: BTreeMap<u64, u32>,
    /// Pieces of memory that were ever mapped.
    pieces: u64,
    work: DriverWork,
}

#[derive(Clone, Copy, Debug)]
struct CountedMapping {
    bytes: u64,
    piece: u64,
}

/// What addresses are aligned to, whether or not there are pages.
const ALIGNMENT: u64 = 2 << 20;

impl Counting {
    /// A device with this many bytes and 2 MiB pages.
    pub fn new(capacity: u64) -> Self {
        Counting {
            capacity,
            page: Some(ALIGNMENT),
            used: 0,
            next: BASE,
            segments: BTreeMap::new(),
            reserved: BTreeMap::new(),
            mapped: BTreeMap::new(),
            mappings: BTreeMap::new(),
            pieces: 0,
            work: DriverWork::default(),
        }
    }

    /// The same without virtual memory management.
    pub fn without_pages(capacity: u64) -> Self {
        Counting { page: None, ..Counting::new(capacity) }
    }

    /// Bytes taken and not given back.
    pub fn used(&self) -> u64 {
        self.used
    }

    fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let free = self.capacity - self.used;
        if bytes > free {
            return Err(Error::OutOfMemory { requested: bytes, free, total: self.capacity });
        }
        Ok(())
    }

    fn range(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.next;
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        self.next = end.ok_or(Error::Unsupported("reserve more than its address space"))?;
        Ok(address)
    }

    /// Whether a range is one to map: of pages, reserved, and free.
    fn check_place(&self, address: Address, bytes: u64) -> Result<(), Error> {
        self.check_pages(address, bytes)?;
        let end = address.checked_add(bytes).ok_or(Error::Unsupported("map outside a reserved range"))?;
        let reserved = self.reserved.range(..=address).next_back();
        if reserved.is_none_or(|(start, size)| end > start + size) {
            return Err(Error::Unsupported("map outside a reserved range"));
        }
        let before = self.mapped.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.bytes > address) {
            return Err(Error::Unsupported("map a page twice"));
        }
        Ok(())
    }

    fn put(&mut self, address: Address, mapping: CountedMapping) {
        self.mapped.insert(address, mapping);
        *self.mappings.entry(mapping.piece).or_default() += 1;
    }

    fn check_pages(&self, address: Address, bytes: u64) -> Result<(), Error> {
        let page = self.page.ok_or(Error::Unsupported("map pages"))?;
        if bytes == 0 || !address.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(Error::Unsupported("map parts of pages"));
        }
        Ok(())
    }
}

impl Device for Counting {
    type Event = ();

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.check_room(bytes)?;
        // A block of no bytes has an address of its own too.
        let address = self.range(bytes.max(1))?;
        self.used += bytes;
        self.work.alloc();
        self.segments.insert(address, bytes);
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        let bytes = self.segments.remove(&address).ok_or(Error::Unsupported("free what it did not hand out"))?;
        self.used -= bytes;
        self.work.free();
        Ok(())
    }

    fn page_size(&self) -> Option<u64> {
        self.page
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.check_pages(0, bytes)?;
        let address = self.range(bytes)?;
        self.reserved.insert(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        if self.reserved.get(&address) != Some(&bytes) {
            return Err(Error::Unsupported("release what is not reserved"));
        }
        if self.mapped.range(address..address + bytes).next().is_some() {
            return Err(Error::Unsupported("release a range with pages in it"));
        }
        self.reserved.remove(&address);
        Ok(())
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.check_place(address, bytes)?;
        self.check_room(bytes)?;
        self.used += bytes;
        self.pieces += 1;
        self.work.map();
        self.put(address, CountedMapping { bytes, piece: self.pieces });
        Ok(())
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.check_place(to, bytes)?;
        let mapping = self.mapped.get(&from).filter(|mapping| mapping.bytes == bytes);
        let mapping = *mapping.ok_or(Error::Unsupported("map again what is not mapped"))?;
        self.work.map_again();
        self.put(to, mapping);
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let end = address.checked_add(bytes).ok_or(Error::Unsupported("unmap what is not mapped"))?;
        let mut at = address;
        for (&start, mapping) in self.mapped.range(address..end) {
            if start != at {
                break;
            }
            at += mapping.bytes;
        }
        if bytes == 0 || at != end {
            return Err(Error::Unsupported("unmap what is not mapped"));
        }
        while let Some((&start, &mapping)) = self.mapped.range(address..end).next() {
            self.mapped.remove(&start);
            self.work.unmap();
            let left = self.mappings.get_mut(&mapping.piece).map(|mappings| {
                *mappings -= 1;
                *mappings
            });
            if left == Some(0) {
                self.mappings.remove(&mapping.piece);
                self.used -= mapping.bytes;
                self.work.give_back();
            }
        }
        Ok(())
    }

    fn export(&mut self, address: Address) -> Result<OwnedFd, Error> {
        if !self.mapped.contains_key(&address) {
            return Err(Error::Unsupported("share what is not mapped"));
        }
        let nothing = File::open("/dev/null");
        Ok(nothing.map_err(|error| Error::Driver { call: "opening /dev/null", message: error.to_string() })?.into())
    }

    fn driver_work(&self) -> DriverWork {
        self.work
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        Ok(MemoryInfo { free: self.capacity - self.used, total: self.capacity })
    }

    crate::done_at_once!();
}
