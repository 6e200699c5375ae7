//! PyTorch's native caching allocator, exactly: which block serves a request, how segments grow, split, merge and go.
//!
//! It serves two ends: the simulator's model of PyTorch, which is held against recorded snapshots address for address,
//! and the pool that requests outside of a plan fall back to in a training process. Behaviour follows
//! `c10/cuda/CUDACachingAllocator.cpp` of PyTorch 2.1 to 2.15: sizes rounded to 512 bytes, small and large pools per
//! stream, best fit by (size, address), its rules for splitting and merging, garbage collection, `max_split_size`,
//! blocks that other streams use (freed once their events have completed), release of cached blocks before giving up,
//! and expandable segments. Not modelled: allocation from private pools (CUDA graphs, `MemPool`); a state that holds
//! such segments can be [adopted](Cache::adopt), their memory then stays apart.
//!
//! [`Cache`] is the bookkeeping and borrows its device at each call, so that it can share one with others;
//! [`Caching`] owns its device and is an [`Allocator`](stalloc_allocator::Allocator).
//!
//! An operation costs O(log n) in free blocks of its stream and allocates no host memory once the slabs are warm.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stalloc_device::{Address, Device, Stream};

use stalloc_allocator::Error;

mod adopt;
mod alone;
mod block;
mod events;
mod expand;
mod index;
mod pool;
mod release;
mod rivals;
mod settings;
#[cfg(test)]
mod tests;
mod view;

use block::{BlockId, BlockSlab, CachedBlock, NONE};
use expand::ReservedRange;
use index::FreeEntry;
use pool::FreePools;

pub use adopt::{AdoptError, Adopted, SegmentPiece};
pub use alone::Caching;
pub use rivals::{Rivals, RivalsHeld, RivalsNow};
pub use settings::*;
pub use view::{CachedState, SegmentBlock, SegmentView};

/// What a [`Cache`] did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments taken from the device, and times that pages were mapped.
    pub device_allocs: u64,
    /// Segments given back, and times that pages were unmapped.
    pub device_frees: u64,
    /// Requests that needed cached memory to be given back before they could be served, or could not be.
    pub retries: u64,
    /// Requests that could not be served.
    pub out_of_memory: u64,
}

/// Events on a stream, oldest first, and the blocks that they hold back.
struct Outstanding<E> {
    stream: Stream,
    queue: VecDeque<(E, BlockId)>,
}

/// The caching allocator without its device.
pub struct Cache<D: Device> {
    settings: Settings,
    blocks: BlockSlab,
    /// Blocks that the program holds.
    live: FxHashMap<Address, BlockId>,
    pools: FreePools,
    ranges: Vec<Option<ReservedRange>>,
    /// Streams recorded on live blocks.
    uses: FxHashMap<BlockId, Vec<Stream>>,
    /// Events not yet seen to complete, by the stream that they were recorded on.
    events: Vec<Outstanding<D::Event>>,
    /// Searches of the small and of the large pools: the clock of garbage collection.
    searches: [u64; 2],
    allocated: u64,
    reserved: u64,
    stats: Stats,
}

impl<D: Device> Cache<D> {
    /// An empty one.
    pub fn new(settings: Settings) -> Self {
        Cache {
            settings,
            blocks: BlockSlab::default(),
            live: FxHashMap::default(),
            pools: FreePools::default(),
            ranges: Vec::new(),
            uses: FxHashMap::default(),
            events: Vec::new(),
            searches: [0; 2],
            allocated: 0,
            reserved: 0,
            stats: Stats::default(),
        }
    }

    /// Live bytes, each request rounded up to 512.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Device memory held, bytes.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// How it behaves. Segments stop being expandable when the device turns out to have no virtual memory.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Whether an address was handed out by it and not given back.
    pub fn owns(&self, address: Address) -> bool {
        self.live.contains_key(&address)
    }

    /// Serves `size` bytes on a stream.
    pub fn malloc(&mut self, device: &mut D, size: u64, stream: Stream) -> Result<Address, Error> {
        if !self.events.is_empty() {
            self.process_events(device)?;
        }
        let Some(rounded) = self.settings.rounded(size) else { return Err(self.out_of_memory(size)) };
        let pool = self.pools.general(stream, rounded <= SMALL_SIZE);
        let block = match self.take_cached(pool, rounded) {
            Some(block) => block,
            None => self.take_new(device, pool, rounded)?.ok_or_else(|| self.out_of_memory(size))?,
        };
        Ok(self.hand_out(block, rounded, size))
    }

    /// Takes an address back. If other streams were recorded on it, its memory waits for them.
    pub fn free(&mut self, device: &mut D, address: Address) -> Result<(), Error> {
        let &id = self.live.get(&address).ok_or(Error::UnknownAddress(address))?;
        if self.blocks[id].shared {
            self.insert_events(device, id)?;
        }
        self.live.remove(&address);
        let block = &mut self.blocks[id];
        block.in_use = false;
        self.allocated -= block.live;
        block.live = 0;
        if block.events == 0 {
            self.make_free(id);
        }
        Ok(())
    }

    /// Says that another stream uses an address.
    pub fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        let &id = self.live.get(&address).ok_or(Error::UnknownAddress(address))?;
        let block = &mut self.blocks[id];
        if self.pools[block.pool].stream == stream {
            return Ok(());
        }
        block.shared = true;
        let uses = self.uses.entry(id).or_default();
        if !uses.contains(&stream) {
            uses.push(stream);
        }
        Ok(())
    }

    /// Best fit among the free blocks of a pool.
    #[inline]
    fn take_cached(&mut self, pool_id: u32, size: u64) -> Option<BlockId> {
        let settings = &self.settings;
        let pool = &mut self.pools[pool_id];
        if settings.garbage_collection_threshold > 0.0 {
            self.searches[usize::from(!pool.small)] += 1;
        }
        let mut at = pool.free.seek(size)?;
        let mut found = pool.free.get(at);
        if settings.expandable_segments {
            // What a block at the end of its range can grow to counts as its size.
            let blocks = &self.blocks;
            let potential = |entry: FreeEntry| {
                let next = blocks[entry.block].next;
                entry.size + if next != NONE && !blocks[next].mapped { blocks[next].size } else { 0 }
            };
            while blocks[found.block].range != NONE
                && let Some(next) = pool.free.next(at)
                && potential(pool.free.get(next)) < potential(found)
            {
                at = next;
                found = pool.free.get(at);
            }
        } else {
            // Blocks that were adopted with their ranges do not serve where segments do not expand.
            while self.blocks[found.block].range != NONE {
                at = pool.free.next(at)?;
                found = pool.free.get(at);
            }
        }
        let limit = settings.split_limit();
        if size < limit && found.size >= limit {
            return None;
        }
        if size >= limit && found.size >= size.saturating_add(settings.max_non_split_rounding) {
            return None;
        }
        pool.free.take(at);
        Some(found.block)
    }

    /// A block from the device, if need be after cached ones were given back to it.
    #[cold]
    fn take_new(&mut self, device: &mut D, pool: u32, size: u64) -> Result<Option<BlockId>, Error> {
        self.collect_garbage(device)?;
        if let Some(block) = self.take_from_device(device, pool, size)? {
            return Ok(Some(block));
        }
        if self.release_oversize(device, pool, size)?
            && let Some(block) = self.take_from_device(device, pool, size)?
        {
            return Ok(Some(block));
        }
        self.stats.retries += 1;
        self.release_cached(device)?;
        self.take_from_device(device, pool, size)
    }

    /// A block of at least `size` bytes in memory that the device had free; `None` if it has not enough.
    fn take_from_device(&mut self, device: &mut D, pool: u32, size: u64) -> Result<Option<BlockId>, Error> {
        let Some(bytes) = self.settings.segment(size) else { return Ok(None) };
        if self.settings.memory_limit.is_some_and(|limit| self.reserved.saturating_add(bytes) > limit) {
            return Ok(None);
        }
        if self.settings.expandable_segments {
            if device.page_size().is_some() {
                return self.grow(device, pool, size);
            }
            self.settings.expandable_segments = false;
        }
        let address = match device.alloc(bytes) {
            Ok(address) => address,
            Err(stalloc_device::Error::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.reserved += bytes;
        self.stats.device_allocs += 1;
        Ok(Some(self.blocks.add(CachedBlock {
            address,
            size: bytes,
            live: 0,
            born: 0,
            segment: if self.settings.older_segments_first { self.stats.device_allocs } else { 0 },
            prev: NONE,
            next: NONE,
            pool,
            range: NONE,
            events: 0,
            in_use: false,
            shared: false,
            mapped: true,
        })))
    }

    /// Cuts `size` bytes off a block that is in no index and makes them live.
    #[inline]
    fn hand_out(&mut self, mut id: BlockId, size: u64, requested: u64) -> Address {
        if self.settings.large_alignment > 1 {
            id = self.align(id, size);
        }
        let block = &self.blocks[id];
        let rest = block.size - size;
        let split = if self.pools[block.pool].small || self.settings.expandable_segments {
            rest >= MIN_BLOCK
        } else {
            size < self.settings.split_limit() && rest > SMALL_SIZE
        };
        if split {
            let rest = self.blocks.split(id, size);
            self.insert_free(rest);
        }
        let block = &mut self.blocks[id];
        block.in_use = true;
        block.live = requested.max(1).next_multiple_of(MIN_BLOCK);
        self.allocated += block.live;
        self.live.insert(block.address, id);
        block.address
    }

    /// Leaves a part at the front of a block free so that the rest starts as `large_alignment` asks, if `size` bytes
    /// fit then; the block to use.
    #[cold]
    fn align(&mut self, id: BlockId, size: u64) -> BlockId {
        let (address, room) = (self.blocks[id].address, self.blocks[id].size - size);
        if !self.settings.expandable_segments || size < LARGE_ROUNDING {
            return id;
        }
        let front = address.checked_next_multiple_of(self.settings.large_alignment).map(|aligned| aligned - address);
        match front {
            Some(front) if front > 0 && front <= room => {
                let rest = self.blocks.split(id, front);
                self.insert_free(id);
                rest
            }
            _ => id,
        }
    }

    /// Joins a block that nobody uses with its free neighbours and caches it.
    fn make_free(&mut self, id: BlockId) {
        let id = self.merge(id);
        self.insert_free(id);
    }

    /// Joins a block that is in no index with free neighbours of its kind (mapped or not); the block that remains.
    fn merge(&mut self, mut id: BlockId) -> BlockId {
        let (prev, next) = (self.blocks[id].prev, self.blocks[id].next);
        if self.can_merge(id, prev) {
            self.unlist(prev);
            self.blocks.join_next(prev);
            id = prev;
        }
        if self.can_merge(id, next) {
            self.unlist(next);
            self.blocks.join_next(id);
        }
        id
    }

    fn can_merge(&self, id: BlockId, other: BlockId) -> bool {
        other != NONE && self.blocks[other].is_free() && self.blocks[other].mapped == self.blocks[id].mapped
    }

    /// Puts a free block where best fit finds it.
    #[inline]
    fn insert_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        let pool = &mut self.pools[block.pool];
        block.born = self.searches[usize::from(!pool.small)];
        pool.free.insert(FreeEntry::of(block, id));
    }

    /// Takes a free block out of its pool's index.
    fn unlist(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let pool = &mut self.pools[block.pool];
        if block.mapped {
            pool.free.remove(FreeEntry::of(block, id));
        } else {
            pool.remove_unmapped(block.address);
        }
    }

    fn out_of_memory(&mut self, requested: u64) -> Error {
        self.stats.out_of_memory += 1;
        Error::OutOfMemory { requested, allocated: self.allocated, reserved: self.reserved }
    }
}
