//! What lies where in an arena, as PyTorch's memory snapshots tell it.

use std::ops::Range;

use stalloc_caching::CachedState;
use stalloc_device::{Address, Stream};

use crate::arenas;
use crate::counters::SMALL;

/// A part of a [`ServedSegment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedBlock {
    /// Where it starts.
    pub address: Address,
    /// Its length, bytes.
    pub size: u64,
    /// Bytes that were asked for; 0 if it is free.
    pub requested: u64,
    /// What it is to the program.
    pub state: CachedState,
}

/// Memory taken from the device at once, or a part of the arena's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSegment {
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
    pub blocks: Vec<ServedBlock>,
}

/// Whether a block counts as the arena's share of PyTorch's small pool.
fn is_small(block: &ServedBlock) -> bool {
    block.state == CachedState::Live && block.size <= SMALL
}

/// Whether small and large blocks lie in a segment, as in the arena's; one of the fallback's holds one kind.
pub fn holds_both(segment: &ServedSegment) -> bool {
    segment.expandable && !segment.small
}

/// The same memory with small blocks in segments of their own, so that the sums over segments of a kind are the statistics by
/// pool. Not for a snapshot with a history, whose entries tell of whole ranges.
pub fn by_pool(segments: Vec<ServedSegment>) -> Vec<ServedSegment> {
    let mut out = Vec::with_capacity(segments.len());
    for segment in segments {
        if !holds_both(&segment) {
            out.push(segment);
            continue;
        }
        for blocks in segment.blocks.chunk_by(|a, b| is_small(a) == is_small(b)) {
            let size = blocks.iter().map(|block| block.size).sum();
            let (address, small) = (blocks[0].address, is_small(&blocks[0]));
            out.push(ServedSegment { address, size, small, blocks: blocks.to_vec(), ..segment });
        }
    }
    out
}

/// An arena's memory as segments, expandable unless it is one allocation, one for each part of its range that is mapped: live
/// blocks, and what lies between them.
pub fn of_arena(device: i32) -> Vec<ServedSegment> {
    let (blocks, mapped) = arenas::layout(device);
    let mut next = blocks.iter().peekable();
    let expandable = !arenas::is_solid(device);
    let segment = |part: Range<Address>| {
        let mut parts = Vec::new();
        let mut stream = None;
        let mut at = part.start;
        let free_until = |at: Address, end: Address, parts: &mut Vec<ServedBlock>| {
            if end > at {
                parts.push(ServedBlock { address: at, size: end - at, requested: 0, state: CachedState::Free });
            }
        };
        while let Some(block) = next.next_if(|block| block.address < part.end) {
            let end = block.address + block.size;
            // Not one that lies in no mapped part, whatever the arena says.
            if block.address < at || end > part.end {
                continue;
            }
            free_until(at, block.address, &mut parts);
            let state = if block.pending { CachedState::Pending } else { CachedState::Live };
            parts.push(ServedBlock { address: block.address, size: block.size, requested: block.requested, state });
            stream.get_or_insert(block.stream);
            at = end;
        }
        free_until(at, part.end, &mut parts);
        let (address, size) = (part.start, part.end - part.start);
        let stream = stream.unwrap_or(0);
        ServedSegment { address, size, stream, small: false, expandable, pool: (0, 0), blocks: parts }
    };
    mapped.into_iter().map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_have_segments_of_their_own_and_no_byte_is_lost() {
        let block = |address, size, state| ServedBlock { address, size, requested: size, state };
        let (small, large) = (512, 4 << 20);
        let blocks = vec![
            block(0, small, CachedState::Live),
            block(small, small, CachedState::Live),
            block(2 * small, small, CachedState::Free),
            block(3 * small, large, CachedState::Live),
            block(3 * small + large, small, CachedState::Live),
        ];
        let whole = ServedSegment {
            address: 0,
            size: 4 * small + large,
            stream: 7,
            small: false,
            expandable: true,
            pool: (0, 0),
            blocks,
        };
        let cut = by_pool(vec![whole.clone()]);
        let seen: Vec<_> = cut.iter().map(|one| (one.address, one.size, one.small, one.stream)).collect();
        assert_eq!(
            seen,
            [(0, 2 * small, true, 7), (2 * small, small + large, false, 7), (3 * small + large, small, true, 7)]
        );
        let one_allocation = ServedSegment { expandable: false, ..whole };
        assert_eq!(by_pool(vec![one_allocation.clone()]), [one_allocation]);
    }
}
