//! What the arena does with its pools.

use stalloc_device::{Address, Device, Stream};

use super::{Block, PoolId, PoolPart, Pools, Waiting};
use crate::arena::{Arena, Freed, LiveBlock};
use crate::script::GRANULE;

impl<D: Device> Arena<D> {
    /// A graph, or who runs before it is captured, holds a pool from now on. False if this arena has none: they need pages to map.
    pub fn pool_begin(&mut self, id: PoolId) -> bool {
        let Some(pools) = &mut self.pools else { return false };
        *pools.users.entry(id).or_default() += 1;
        true
    }

    /// One holder of a pool less. After the last one its memory goes back with what the arena does not need.
    pub fn pool_end(&mut self, id: PoolId) {
        let Some(pools) = &mut self.pools else { return };
        if let Some(users) = pools.users.get_mut(&id) {
            *users -= 1;
            if *users == 0 {
                pools.users.remove(&id);
            }
        }
    }

    /// Serves `size` bytes from a pool that somebody holds; `None`: the caller's own fallback has to. Captured or not.
    pub fn pool_serve(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address> {
        let served = self.try_pool(id, size, stream);
        let statistics = &mut self.statistics;
        statistics.requests += 1;
        if served.is_some() {
            statistics.best_fit += 1;
        } else {
            statistics.fallback += 1;
            statistics.unplanned.refused += 1;
        }
        served
    }

    fn try_pool(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address> {
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok().filter(|_| !self.sleep.is_asleep())?;
        let pools = self.pools.as_mut().filter(|pools| pools.users.contains_key(&id))?;
        if !self.capturing && !pools.waiting.is_empty() {
            pools.poll(&mut self.device);
        }
        let pool = pools.pool(id, stream);
        let start = pools.fit(pool, granules).or_else(|| pools.widen(&mut self.device, pool, granules))?;
        pools.blocks.insert(start, Block { pool, granules, requested: size, pending: false });
        self.note_pools();
        Some(self.pools.as_ref()?.address(start))
    }

    pub(in crate::arena) fn note_pools(&mut self) {
        let statistics = &mut self.statistics;
        statistics.pools = self.pools.as_ref().map_or(0, Pools::reserved);
        statistics.peak_allocated = statistics.peak_allocated.max(statistics.allocated + statistics.pools);
    }

    /// Takes a pool's block back; `None` if none begins there.
    pub(in crate::arena) fn pool_free(&mut self, address: Address) -> Option<Freed> {
        let pools = self.pools.as_mut()?;
        let start = pools.start_of(address)?;
        let block = *pools.blocks.get(&start).filter(|block| !block.pending)?;
        match pools.recorded.remove(&start) {
            None => pools.free_block(start),
            Some(streams) => {
                pools.blocks.insert(start, Block { pending: true, ..block });
                pools.waiting.push(Waiting { start, streams, events: None });
            }
        }
        Some(Freed { size: u64::from(block.granules) * GRANULE, requested: block.requested })
    }

    /// See [`Arena::record_stream`]; false if no block of a pool begins there.
    pub(in crate::arena) fn pool_record_stream(&mut self, address: Address, stream: Stream) -> bool {
        let Some(pools) = &mut self.pools else { return false };
        let start = pools.start_of(address);
        let Some(block) = start.and_then(|start| pools.block_at(start)) else { return false };
        if block.stream != stream {
            let recorded = pools.recorded.entry(start.unwrap_or_default()).or_default();
            if !recorded.contains(&stream) {
                recorded.push(stream);
            }
        }
        true
    }

    /// The block of a pool that an address lies in. O(log n).
    pub(in crate::arena) fn pool_block_around(&self, address: Address) -> Option<LiveBlock> {
        let pools = self.pools.as_ref()?;
        let granule = u32::try_from(address.checked_sub(pools.base)? / GRANULE).ok()?;
        let (&start, &block) = pools.blocks.range(..=granule).next_back()?;
        (granule - start < block.granules).then(|| pools.live(start, block))
    }

    /// All memory of pools, each piece of it once, in the order of addresses: blocks where they are, what is free at one of its
    /// addresses. O(n log n).
    pub fn pool_parts(&self) -> Vec<PoolPart> {
        let Some(pools) = &self.pools else { return Vec::new() };
        let mut parts = Vec::new();
        for pool in pools.pools.values() {
            let free = |start: u32, end: u32| {
                let size = u64::from(end - start) * GRANULE;
                let address = pools.address(start);
                LiveBlock { address, size, requested: 0, stream: pool.stream, pending: false }
            };
            for piece in pool.pieces.iter().filter_map(|piece| pools.pieces.get(piece)) {
                let first = piece.views.first().map_or(0, |view| view * pools.granules);
                let of = piece.free_parts().into_iter();
                let of = of.map(|part| free(first + part.start, first + part.end));
                parts.extend(of.map(|block| PoolPart { pool: pool.id, block, free: true }));
            }
        }
        for (&start, &block) in &pools.blocks {
            let id = pools.pools.get(&block.pool).map_or((0, 0), |pool| pool.id);
            parts.push(PoolPart { pool: id, block: pools.live(start, block), free: false });
        }
        parts.sort_unstable_by_key(|part| part.block.address);
        parts
    }

    /// Makes what lives in a pool what lived there before: blocks that were all live at one moment. Returns what was freed, and what
    /// of them is live now: all, unless one is of no memory of the pool.
    pub fn pool_restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        let parts = self.pool_parts();
        let live = parts.into_iter().filter(|part| part.pool == id && !part.free && !part.block.pending);
        let freed: Vec<LiveBlock> =
            live.map(|part| part.block).filter(|block| self.pool_free(block.address).is_some()).collect();
        let Some(pools) = &mut self.pools else { return (freed, Vec::new()) };
        let restored = blocks.iter().filter(|block| pools.restore(id, block)).copied().collect();
        (freed, restored)
    }

    /// Gives back what pools hold that nobody holds any more. The device must be idle.
    pub(in crate::arena) fn give_back_pools(&mut self) -> u64 {
        let given = self.pools.as_mut().map_or(0, |pools| {
            pools.poll(&mut self.device);
            pools.give_back(&mut self.device)
        });
        self.note_pools();
        given
    }
}
