//! What lies where in an arena, as PyTorch's memory snapshots tell it: one view for both ways in.

use std::ops::Range;

use stalloc_allocator::caching::BlockState;
use stalloc_device::{Address, Stream};

use crate::places;

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
    pub pool: (u64, u64),
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

/// An arena's memory as segments, expandable unless it is one allocation, one for each part of its range that is mapped: live
/// blocks, and what lies between them.
pub fn of_arena(device: i32) -> Vec<Segment> {
    let (blocks, mapped) = places::layout(device);
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
            // Not one that lies in no mapped part, whatever the arena says.
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
    mapped.into_iter().map(segment).collect()
}
