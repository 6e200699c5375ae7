//! What lies where, as PyTorch's memory snapshots tell it.

use stalloc_allocator::caching::BlockState;
use stalloc_device::{Address, Stream};

use super::beside::{Fallback, PoolId};
use super::figures::Held;
use crate::places;

/// Segments in no particular order.
pub type Snapshot = Vec<Segment>;

/// A part of a [`Segment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// Bytes that were asked for; 0 if it is free.
    pub requested: u64,
    /// What it is to the program.
    pub state: BlockState,
}

/// Memory taken from the device at once; the arena counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// The stream that it is for; the arena's is that of its first block.
    pub stream: Stream,
    /// Whether it is for small requests.
    pub small: bool,
    /// Whether it is an address range that grows.
    pub expandable: bool,
    /// The private pool that it belongs to, or (0, 0).
    pub pool: PoolId,
    /// Its blocks in the order of addresses.
    pub blocks: Vec<Block>,
}

impl Segment {
    /// Bytes of its blocks in one of some states.
    pub fn bytes(&self, states: &[BlockState]) -> u64 {
        self.blocks.iter().filter(|block| states.contains(&block.state)).map(|block| block.size).sum()
    }

    /// Bytes that the program asked for.
    pub fn requested(&self) -> u64 {
        self.blocks.iter().map(|block| block.requested).sum()
    }
}

/// The segments of the fallback and of the private pools.
pub fn of_beside(beside: &dyn Fallback) -> Snapshot {
    let held = |address| beside.held(address).map_or(0, |held| held.requested);
    let segments = beside.segments().into_iter().map(|(pool, segment)| Segment {
        address: segment.address,
        size: segment.size,
        stream: segment.stream,
        small: segment.small,
        expandable: segment.expandable,
        pool,
        blocks: segment
            .blocks
            .iter()
            .map(|block| Block {
                address: block.address,
                size: block.size,
                requested: if block.state == BlockState::Live { held(block.address) } else { 0 },
                state: block.state,
            })
            .collect(),
    });
    segments.collect()
}

/// The arena as one expandable segment: live blocks, and what lies between them. `None` if it holds no memory.
pub fn of_arena(device: i32) -> Option<Segment> {
    let (range, reserved) = places::arena(device)?;
    let blocks = places::blocks(device);
    if reserved == 0 {
        return None;
    }
    let stream = blocks.first().map_or(0, |block| block.stream);
    let mut parts = Vec::with_capacity(2 * blocks.len() + 1);
    let mut end = range.start;
    let free_until = |end: &mut Address, start: Address, parts: &mut Vec<Block>| {
        if start > *end {
            parts.push(Block { address: *end, size: start - *end, requested: 0, state: BlockState::Free });
            *end = start;
        }
    };
    for block in blocks {
        free_until(&mut end, block.address, &mut parts);
        let state = if block.pending { BlockState::Pending } else { BlockState::Live };
        parts.push(Block { address: block.address, size: block.size, requested: block.requested, state });
        end = block.address + block.size;
    }
    // The range goes on far beyond the memory behind it.
    let top = end.max(range.start.saturating_add(reserved)).min(range.end);
    free_until(&mut end, top, &mut parts);
    let size = end - range.start;
    Some(Segment { address: range.start, size, stream, small: false, expandable: true, pool: (0, 0), blocks: parts })
}

/// Segments and bytes that the fallback's small and large pools hold.
pub fn reserved(beside: &dyn Fallback) -> [Held; 2] {
    let mut held = [Held::default(); 2];
    for (_, segment) in beside.segments() {
        let pool = &mut held[usize::from(!segment.small)];
        pool.blocks += 1;
        pool.bytes += segment.size;
    }
    held
}

/// Active and inactive blocks, small and large ones each: active are those that the program holds or another stream
/// has not done with, inactive the free parts of segments that cannot be given back for the rest of them.
pub fn tally(segments: &Snapshot) -> ([Held; 2], [Held; 2]) {
    let (mut active, mut inactive) = ([Held::default(); 2], [Held::default(); 2]);
    for segment in segments {
        let in_use = segment.blocks.iter().any(|block| block.state != BlockState::Free);
        for block in &segment.blocks {
            // The arena holds small and large blocks; a segment of the fallback holds one kind.
            let small = if segment.expandable && !segment.small { block.size <= 1 << 20 } else { segment.small };
            let to = match block.state {
                BlockState::Free if !in_use => continue,
                BlockState::Free => &mut inactive[usize::from(!segment.small)],
                _ => &mut active[usize::from(!small)],
            };
            to.blocks += 1;
            to.bytes += block.size;
        }
    }
    (active, inactive)
}
