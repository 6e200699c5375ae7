//! What lies where, as PyTorch's memory snapshots tell it.

use std::ops::Range;

use stalloc_allocator::caching::BlockState;
use stalloc_device::{Address, Stream};

use super::fallback::{Fallback, PoolId};
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

/// Memory taken from the device at once, or a part of the arena's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// The stream that it is for; a part of the arena's is that of its first block.
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
pub fn of_fallback(fallback: &dyn Fallback) -> Snapshot {
    let held = |address| fallback.held(address).map_or(0, |held| held.requested);
    let segments = fallback.segments().into_iter().map(|(pool, segment)| Segment {
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

/// The arena's memory as segments, expandable unless it is one allocation, one for each part of its range that is mapped: live
/// blocks, and what lies between them.
pub fn of_arena(device: i32) -> Snapshot {
    let blocks = places::blocks(device);
    let mut next = blocks.iter().peekable();
    let expandable = !places::is_solid(device);
    let segment = |part: Range<Address>| {
        let mut parts = Vec::new();
        let mut stream = None;
        let mut at = part.start;
        let free_until = |at: Address, end: Address, parts: &mut Vec<Block>| {
            if end > at {
                parts.push(Block { address: at, size: end - at, requested: 0, state: BlockState::Free });
            }
        };
        while let Some(block) = next.next_if(|block| block.address < part.end) {
            let end = block.address + block.size;
            // Blocks were looked at before the memory: one that has none any more is gone.
            if block.address < at || end > part.end {
                continue;
            }
            free_until(at, block.address, &mut parts);
            let state = if block.pending { BlockState::Pending } else { BlockState::Live };
            parts.push(Block { address: block.address, size: block.size, requested: block.requested, state });
            stream.get_or_insert(block.stream);
            at = end;
        }
        free_until(at, part.end, &mut parts);
        let (address, size) = (part.start, part.end - part.start);
        let stream = stream.unwrap_or(0);
        Segment { address, size, stream, small: false, expandable, pool: (0, 0), blocks: parts }
    };
    places::mapped(device).into_iter().map(segment).collect()
}

/// Segments and bytes that the fallback's small and large pools hold.
pub fn reserved(fallback: &dyn Fallback) -> [Held; 2] {
    let mut held = [Held::default(); 2];
    for (_, segment) in fallback.segments() {
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
