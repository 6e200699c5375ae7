//! What lies where, as PyTorch's memory snapshots tell it.

use stalloc_caching::BlockState;

use super::fallback::Fallback;
use super::figures::Held;
use crate::counters::SMALL;
use crate::segments::{Block, Segment, holds_both};

/// Segments in no particular order.
pub type Snapshot = Vec<Segment>;

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
            let small = if holds_both(segment) { block.size <= SMALL } else { segment.small };
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
