//! Expandable segments: one reserved address range per stream and pool, with memory mapped into it page by page.

use stalloc_device::{Address, Device, Error as DeviceError, Stream};

use crate::block::{BlockId, CachedBlock, NONE};
use crate::{Cache, SMALL_SEGMENT};
use stalloc_allocator::Error;

/// Largest address range that is reserved at once.
const MAX_RANGE: u64 = 1 << 46;

/// A reserved address range.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservedRange {
    pub base: Address,
    pub size: u64,
    /// Bytes that are mapped and unmapped as a whole.
    pub page: u64,
}

impl<D: Device> Cache<D> {
    /// A block of at least `size` bytes, in no index, by mapping pages; `None` if the device has not enough memory.
    pub(super) fn grow(&mut self, device: &mut D, pool: u32, size: u64) -> Result<Option<BlockId>, Error> {
        let mut id = match self.find_room(pool, size) {
            Some(id) => id,
            None => match self.add_range(device, pool, size)? {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        if !self.blocks[id].mapped {
            match self.map_block(device, id, size.min(self.blocks[id].size))? {
                Some(mapped) => id = mapped,
                None => return Ok(None),
            }
        }
        while self.blocks[id].size < size {
            let missing = size - self.blocks[id].size;
            let next = self.blocks[id].next;
            if next == NONE {
                return Ok(None);
            }
            match self.map_block(device, next, missing.min(self.blocks[next].size))? {
                Some(mapped) => id = mapped,
                None => return Ok(None),
            }
        }
        self.unlist(id);
        Ok(Some(id))
    }

    /// The lowest place in the pool's ranges where free and unmapped blocks side by side make `size` bytes.
    fn find_room(&self, pool: u32, size: u64) -> Option<BlockId> {
        for &(_, unmapped) in &self.pools[pool].unmapped {
            let before = self.blocks[unmapped].prev;
            let first = if before != NONE && self.blocks[before].is_free() { before } else { unmapped };
            let mut room = 0;
            let mut at = first;
            while at != NONE && self.blocks[at].is_free() {
                room += self.blocks[at].size;
                if room >= size {
                    return Some(first);
                }
                at = self.blocks[at].next;
            }
        }
        None
    }

    /// Reserves address space for an eighth more than the device's memory; the block that covers
    /// it, `None` if the device refuses.
    fn add_range(&mut self, device: &mut D, pool: u32, size: u64) -> Result<Option<BlockId>, Error> {
        let small = self.pools[pool].small;
        let unit = device.page_size().unwrap_or(1).max(1);
        let page = if small { SMALL_SEGMENT } else { self.settings.large_segment };
        let page = page.max(1).checked_next_multiple_of(unit).unwrap_or(unit);
        let total = device.memory_info()?.total;
        let bytes = total.saturating_add(total / 8).min(MAX_RANGE).max(size);
        let bytes = bytes.checked_next_multiple_of(page).ok_or(DeviceError::Unsupported("reserve that many bytes"))?;
        let base = match device.reserve(bytes) {
            Ok(base) => base,
            Err(DeviceError::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let range = self.add_range_record(ReservedRange { base, size: bytes, page });
        let id = self.blocks.add(CachedBlock {
            address: base,
            size: bytes,
            live: 0,
            born: 0,
            segment: 0,
            prev: NONE,
            next: NONE,
            pool,
            range,
            events: 0,
            in_use: false,
            shared: false,
            mapped: false,
        });
        self.pools[pool].insert_unmapped(base, id);
        Ok(Some(id))
    }

    pub(super) fn add_range_record(&mut self, range: ReservedRange) -> u32 {
        let place = self.ranges.iter().position(Option::is_none).unwrap_or(self.ranges.len());
        if place == self.ranges.len() {
            self.ranges.push(None);
        }
        self.ranges[place] = Some(range);
        place as u32
    }

    fn range(&self, id: BlockId) -> Option<ReservedRange> {
        *self.ranges.get(self.blocks[id].range as usize)?
    }

    /// Maps the first `size` bytes of an unmapped block, rounded up to pages, and joins them with free neighbours: the
    /// cached block that results. `None` if the device has not enough memory.
    fn map_block(&mut self, device: &mut D, id: BlockId, size: u64) -> Result<Option<BlockId>, Error> {
        let Some(range) = self.range(id) else { return Ok(None) };
        let start = self.blocks[id].address;
        let bytes = size.next_multiple_of(range.page).min(self.blocks[id].size);
        let mut mapped = 0;
        while mapped < bytes {
            match device.map(start + mapped, range.page) {
                Ok(()) => mapped += range.page,
                Err(error) => {
                    if mapped > 0 {
                        device.unmap(start, mapped)?;
                    }
                    return match error {
                        DeviceError::OutOfMemory { .. } => Ok(None),
                        error => Err(error.into()),
                    };
                }
            }
        }
        self.unlist(id);
        if bytes < self.blocks[id].size {
            let rest = self.blocks.split(id, bytes);
            let address = self.blocks[rest].address;
            self.pools[self.blocks[rest].pool].insert_unmapped(address, rest);
        }
        self.blocks[id].mapped = true;
        self.reserved += bytes;
        self.stats.device_allocs += 1;
        let id = self.merge(id);
        self.insert_free(id);
        Ok(Some(id))
    }

    /// Unmaps the whole pages of a cached block; what lies before and after them stays cached. A range without any
    /// mapped page is given back. Unmapping does not wait for the work that still uses the memory, as freeing a segment
    /// does: the block's stream is waited for first, unless it was already (`waited`).
    pub(super) fn unmap_block(
        &mut self,
        device: &mut D,
        id: BlockId,
        waited: &mut Option<Stream>,
    ) -> Result<(), Error> {
        let Some(range) = self.range(id) else { return Ok(()) };
        let (address, size) = (self.blocks[id].address, self.blocks[id].size);
        let begin = range.base + (address - range.base).next_multiple_of(range.page);
        let end = range.base + (address + size - range.base) / range.page * range.page;
        if begin >= end {
            return Ok(());
        }
        let stream = self.pools[self.blocks[id].pool].stream;
        if *waited != Some(stream) {
            let event = device.record(stream)?;
            device.wait(&event)?;
            *waited = Some(stream);
        }
        self.unlist(id);
        let mut middle = id;
        if begin > address {
            middle = self.blocks.split(id, begin - address);
            self.insert_free(id);
        }
        if end < address + size {
            let after = self.blocks.split(middle, end - begin);
            self.insert_free(after);
        }
        if let Err(error) = device.unmap(begin, end - begin) {
            // Nobody knows what is left of it: it is never handed out again.
            self.blocks[middle].in_use = true;
            return Err(error.into());
        }
        self.blocks[middle].mapped = false;
        self.reserved -= end - begin;
        self.stats.device_frees += 1;
        let whole = self.merge(middle);
        let block = &self.blocks[whole];
        if block.is_split() {
            let address = block.address;
            self.pools[block.pool].insert_unmapped(address, whole);
            return Ok(());
        }
        let slot = block.range as usize;
        self.blocks.remove(whole);
        self.ranges[slot] = None;
        device.release(range.base, range.size)?;
        Ok(())
    }
}
