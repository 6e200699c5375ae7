//! Blocks: the pieces of segments, in a slab of fixed-size records linked by index.

use stalloc_device::Address;

/// Index of a [`CachedBlock`].
pub(super) type BlockId = u32;

/// No block, no range.
pub(super) const NONE: u32 = u32::MAX;

/// A piece of a segment.
#[derive(Clone, Debug)]
pub(super) struct CachedBlock {
    pub address: Address,
    pub size: u64,
    /// Live bytes that it counts for: the request rounded up to 512; 0 when free.
    pub live: u64,
    /// Number of searches of its pool when it was last inserted; its age in garbage collection.
    pub born: u64,
    /// Which of the segments its segment was, where ties go by that; else 0.
    pub segment: u64,
    /// The block that ends where this one starts, in the same segment.
    pub prev: BlockId,
    /// The block that starts where this one ends, in the same segment.
    pub next: BlockId,
    /// Index of the pool that it belongs to.
    pub pool: u32,
    /// Index of the expandable range that it lies in, or [`NONE`].
    pub range: u32,
    /// Outstanding events of other streams.
    pub events: u32,
    /// Whether the program holds it.
    pub in_use: bool,
    /// Whether other streams were recorded on it.
    pub shared: bool,
    /// Whether there is memory behind it; always true outside of expandable ranges.
    pub mapped: bool,
}

impl CachedBlock {
    /// Whether it is neither held by the program nor waiting for another stream.
    pub fn is_free(&self) -> bool {
        !self.in_use && self.events == 0 && !self.shared
    }

    /// Whether it is a part of a segment only.
    pub fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }
}

/// All blocks.
#[derive(Debug, Default)]
pub(super) struct BlockSlab {
    slab: Vec<CachedBlock>,
    vacant: Vec<BlockId>,
}

impl BlockSlab {
    /// Adds a block.
    pub fn add(&mut self, block: CachedBlock) -> BlockId {
        match self.vacant.pop() {
            Some(id) => {
                self.slab[id as usize] = block;
                id
            }
            None => {
                self.slab.push(block);
                (self.slab.len() - 1) as BlockId
            }
        }
    }

    /// Forgets a block; its neighbours must not point at it any more.
    pub fn remove(&mut self, id: BlockId) {
        self.vacant.push(id);
    }

    /// Adds a block that starts `offset` bytes into `id` and takes the rest of it; `id` keeps the front.
    pub fn split(&mut self, id: BlockId, offset: u64) -> BlockId {
        let front = self[id].clone();
        let rest = self.add(CachedBlock {
            address: front.address + offset,
            size: front.size - offset,
            live: 0,
            prev: id,
            events: 0,
            in_use: false,
            shared: false,
            ..front
        });
        if front.next != NONE {
            self[front.next].prev = rest;
        }
        let block = &mut self[id];
        block.size = offset;
        block.next = rest;
        rest
    }

    /// Joins `id` with the block that follows it; `id` remains.
    pub fn join_next(&mut self, id: BlockId) {
        let next = self[id].next;
        let (size, after) = (self[next].size, self[next].next);
        self[id].size += size;
        self[id].next = after;
        if after != NONE {
            self[after].prev = id;
        }
        self.remove(next);
    }
}

impl std::ops::Index<BlockId> for BlockSlab {
    type Output = CachedBlock;

    fn index(&self, id: BlockId) -> &CachedBlock {
        &self.slab[id as usize]
    }
}

impl std::ops::IndexMut<BlockId> for BlockSlab {
    fn index_mut(&mut self, id: BlockId) -> &mut CachedBlock {
        &mut self.slab[id as usize]
    }
}
