//! What a cache holds: its segments and their blocks, for statistics and snapshots.

use stalloc_device::{Address, Device, Stream};

use crate::{BlockId, Cache, NONE};

/// What a block is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedState {
    /// The program holds it.
    Live,
    /// The program gave it back, but another stream has not done with it.
    Pending,
    /// Cached.
    Free,
}

/// A block of a [`SegmentView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBlock {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// What it is to the program.
    pub state: CachedState,
}

/// Memory taken from the device at once, or the mapped pages of an expandable range that lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// The stream that its blocks are for.
    pub stream: Stream,
    /// Whether it is for requests up to [`SMALL_SIZE`](crate::SMALL_SIZE).
    pub small: bool,
    /// Whether it is a part of an expandable range.
    pub expandable: bool,
    /// Its blocks in the order of addresses; together they are the segment.
    pub blocks: Vec<SegmentBlock>,
}

impl<D: Device> Cache<D> {
    /// Every segment, in the order of addresses. O(n log n) in blocks.
    pub fn segments(&self) -> Vec<SegmentView> {
        let free = self.pools.iter().flat_map(|pool| pool.free.iter().map(|entry| entry.block));
        let pending = self.events.iter().flat_map(|events| events.queue.iter().map(|&(_, id)| id));
        let mut ids: Vec<BlockId> = self.live.values().copied().chain(free).chain(pending).collect();
        ids.sort_unstable_by_key(|&id| self.blocks[id].address);
        ids.dedup();
        let mut segments: Vec<SegmentView> = Vec::new();
        let mut last = NONE;
        for id in ids {
            let block = &self.blocks[id];
            let state = match (block.in_use, block.is_free()) {
                (true, _) => CachedState::Live,
                (false, true) => CachedState::Free,
                (false, false) => CachedState::Pending,
            };
            let seen = SegmentBlock { address: block.address, size: block.size, state };
            match segments.last_mut() {
                Some(segment) if block.prev == last && last != NONE => {
                    segment.size += block.size;
                    segment.blocks.push(seen);
                }
                _ => {
                    let pool = &self.pools[block.pool];
                    segments.push(SegmentView {
                        address: block.address,
                        size: block.size,
                        stream: pool.stream,
                        small: pool.small,
                        expandable: block.range != NONE,
                        blocks: vec![seen],
                    });
                }
            }
            last = id;
        }
        segments
    }
}
