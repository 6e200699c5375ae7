//! Giving memory back to the device: garbage collection, oversize blocks, everything cached.

use stalloc_device::Device;

use crate::{BlockId, Cache, NONE};
use stalloc_allocator::Error;

impl<D: Device> Cache<D> {
    /// Gives everything cached back to the device, after waiting for all outstanding events.
    pub fn empty_cache(&mut self, device: &mut D) -> Result<(), Error> {
        self.release_cached(device)
    }

    pub(super) fn release_cached(&mut self, device: &mut D) -> Result<(), Error> {
        self.synchronize_events(device)?;
        for small in [false, true] {
            let mut expandable = Vec::new();
            for pool in self.pools.walk(small) {
                let whole: Vec<BlockId> = self.pools[pool].free.iter().map(|e| e.block).collect();
                for id in whole {
                    let block = &self.blocks[id];
                    if block.range != NONE {
                        expandable.push(id);
                    } else if !block.is_split() {
                        self.release_segment(device, id)?;
                    }
                }
            }
            let mut waited = None;
            for id in expandable {
                self.unmap_block(device, id, &mut waited)?;
            }
        }
        Ok(())
    }

    /// Gives a free block that is a whole segment back.
    fn release_segment(&mut self, device: &mut D, id: BlockId) -> Result<(), Error> {
        let block = &self.blocks[id];
        let (address, size) = (block.address, block.size);
        device.free(address)?;
        self.unlist(id);
        self.blocks.remove(id);
        self.reserved -= size;
        self.stats.device_frees += 1;
        Ok(())
    }

    /// Where blocks from `max_split_size` on are not split: gives enough of them back to make room for `size` bytes.
    /// Whether that much was given back.
    pub(super) fn release_oversize(&mut self, device: &mut D, pool: u32, size: u64) -> Result<bool, Error> {
        let Some(limit) = self.settings.max_split_size else { return Ok(false) };
        let target = size.max(limit);
        let free = &self.pools[pool].free;
        if let Some(at) = free.seek(target) {
            return self.release_oversize_block(device, free.get(at).block);
        }
        let mut released = 0;
        while released < target {
            match self.pools[pool].free.last() {
                Some(entry) if entry.size >= limit => {
                    if !self.release_oversize_block(device, entry.block)? {
                        return Ok(false);
                    }
                    released += entry.size;
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// PyTorch takes it for granted that an oversize block is a segment of its own. It is not if it is a part of an
    /// expandable range, or was split under another limit; then it stays.
    fn release_oversize_block(&mut self, device: &mut D, id: BlockId) -> Result<bool, Error> {
        let block = &self.blocks[id];
        if block.range != NONE || block.is_split() {
            return Ok(false);
        }
        self.release_segment(device, id)?;
        Ok(true)
    }

    /// Above the threshold, gives back cached large segments that were not used for longer than average, until enough
    /// is back or none is left.
    pub(super) fn collect_garbage(&mut self, device: &mut D) -> Result<(), Error> {
        let Some(limit) = self.settings.garbage_limit() else { return Ok(()) };
        if self.reserved <= limit {
            return Ok(());
        }
        let target = self.reserved - limit;
        let now = self.searches[1];
        let mut candidates: Vec<(BlockId, u64)> = Vec::new();
        for pool in self.pools.walk(false) {
            let whole = self.pools[pool].free.iter().map(|e| e.block).filter(|&id| {
                let block = &self.blocks[id];
                block.range == NONE && !block.is_split()
            });
            candidates.extend(whole.map(|id| (id, now - self.blocks[id].born)));
        }
        let mut reclaimed = 0;
        let mut age: u64 = candidates.iter().map(|c| c.1).sum();
        while reclaimed < target && !candidates.is_empty() {
            let threshold = age as f64 / candidates.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| c.1 as f64 >= threshold);
            candidates = young;
            for (id, years) in old {
                reclaimed += self.blocks[id].size;
                age -= years;
                self.release_segment(device, id)?;
            }
        }
        Ok(())
    }
}
