//! What is asked of pools.

use stalloc_device::{Address, Device, Stream};

use super::{Freed, LiveBlock, PoolBlock, PoolId, PoolPart, Pools, WaitingBlock};
use crate::script::GRANULE;

impl<D: Device> Pools<D> {
    /// A graph, or who runs before it is captured, holds a pool from now on. False where there are none: they need pages to map.
    pub fn begin(&mut self, id: PoolId) -> bool {
        let are_there = self.len > 0;
        if are_there {
            *self.users.entry(id).or_default() += 1;
        }
        are_there
    }

    /// One holder of a pool less. After the last one its memory goes back with what the arena does not need.
    pub fn end(&mut self, id: PoolId) {
        if let Some(users) = self.users.get_mut(&id) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&id);
            }
        }
    }

    /// Serves `size` bytes from a pool that somebody holds; `None` where it has none. Events are asked only where they can be.
    pub fn serve(&mut self, device: &mut D, id: PoolId, size: u64, stream: Stream, capturing: bool) -> Option<Address> {
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok()?;
        if !self.users.contains_key(&id) {
            return None;
        }
        if !capturing && !self.waiting.is_empty() {
            self.poll(device);
        }
        let pool = self.pool(id, stream);
        let start = self.fit(pool, granules).or_else(|| self.widen(device, pool, granules))?;
        self.blocks.insert(start, PoolBlock { pool, granules, requested: size, pending: false });
        Some(self.address(start))
    }

    /// Takes a pool's block back; `None` if none begins there.
    #[inline]
    pub fn free(&mut self, address: Address) -> Option<Freed> {
        if address < self.base { None } else { self.free_in_range(address) }
    }

    fn free_in_range(&mut self, address: Address) -> Option<Freed> {
        let start = self.start_of(address)?;
        let block = *self.blocks.get(&start).filter(|block| !block.pending)?;
        match self.recorded.remove(&start) {
            None => self.free_block(start),
            Some(streams) => {
                self.blocks.insert(start, PoolBlock { pending: true, ..block });
                self.waiting.push(WaitingBlock { start, streams, events: None });
            }
        }
        Some(Freed { size: u64::from(block.granules) * GRANULE, requested: block.requested })
    }

    /// Another stream uses a block; false if no block of a pool begins there.
    pub fn record_stream(&mut self, address: Address, stream: Stream) -> bool {
        let start = self.start_of(address);
        let Some(block) = start.and_then(|start| self.block_at(start)) else { return false };
        if block.stream != stream {
            let recorded = self.recorded.entry(start.unwrap_or_default()).or_default();
            if !recorded.contains(&stream) {
                recorded.push(stream);
            }
        }
        true
    }

    /// The block of a pool that an address lies in. O(log n).
    pub fn block_around(&self, address: Address) -> Option<LiveBlock> {
        let granule = u32::try_from(address.checked_sub(self.base)? / GRANULE).ok()?;
        let (&start, &block) = self.blocks.range(..=granule).next_back()?;
        (granule - start < block.granules).then(|| self.live(start, block))
    }

    /// All memory of pools, each piece of it once, in the order of addresses: blocks where they are, what is free at one of its
    /// addresses. O(n log n).
    pub fn contents(&self) -> Vec<PoolPart> {
        let mut parts = Vec::new();
        for pool in self.pools.values() {
            let free = |start: u32, end: u32| {
                let size = u64::from(end - start) * GRANULE;
                let address = self.address(start);
                LiveBlock { address, size, requested: 0, stream: pool.stream, pending: false }
            };
            for piece in pool.pieces.iter().filter_map(|piece| self.pieces.get(piece)) {
                let first = piece.views.first().map_or(0, |view| view * self.granules);
                let of = piece.free_parts().into_iter();
                let of = of.map(|part| free(first + part.start, first + part.end));
                parts.extend(of.map(|block| PoolPart { pool: pool.id, block, free: true }));
            }
        }
        for (&start, &block) in &self.blocks {
            let id = self.pools.get(&block.pool).map_or((0, 0), |pool| pool.id);
            parts.push(PoolPart { pool: id, block: self.live(start, block), free: false });
        }
        parts.sort_unstable_by_key(|part| part.block.address);
        parts
    }

    /// Makes what lives in a pool what lived there before: blocks that were all live at one moment. Returns what was freed, and what
    /// of them is live now: all, unless one is of no memory of the pool.
    pub fn restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        let parts = self.contents();
        let live = parts.into_iter().filter(|part| part.pool == id && !part.free && !part.block.pending);
        let freed = live.map(|part| part.block).filter(|block| self.free(block.address).is_some()).collect();
        (freed, blocks.iter().filter(|block| self.restore_block(id, block)).copied().collect())
    }
}
