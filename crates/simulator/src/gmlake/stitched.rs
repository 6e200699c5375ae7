//! Stitched blocks: address ranges mapped to chunks of several primitive blocks.

use std::collections::BTreeSet;

use stalloc_device::{Address, Stream};

use super::range::SegmentRange;

/// Index of a stitched block.
pub(super) type StitchedId = usize;

#[derive(Debug)]
struct Stitched {
    address: Address,
    bytes: u64,
    stream: Stream,
    parts: Vec<SegmentRange>,
    /// Bytes of its chunks that somebody uses.
    used: u64,
    /// Bytes at its front that it uses itself.
    active: Option<u64>,
}

/// All stitched blocks.
#[derive(Debug, Default)]
pub(super) struct StitchedBlocks {
    slab: Vec<Option<Stitched>>,
    vacant: Vec<StitchedId>,
    /// Those whose chunks are all free, by (stream, bytes, address).
    free: BTreeSet<(Stream, u64, Address, StitchedId)>,
    bytes: u64,
}

impl StitchedBlocks {
    /// Bytes of all of them together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where one lies.
    pub fn address(&self, id: StitchedId) -> Address {
        self.get(id).map_or(0, |block| block.address)
    }

    fn get(&self, id: StitchedId) -> Option<&Stitched> {
        self.slab.get(id)?.as_ref()
    }

    /// A new one of free ranges.
    pub fn add(&mut self, address: Address, stream: Stream, parts: &[SegmentRange]) -> StitchedId {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let block = Stitched { address, bytes, stream, parts: parts.to_vec(), used: 0, active: None };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slab.push(None);
            self.slab.len() - 1
        });
        self.slab[id] = Some(block);
        self.free.insert((stream, bytes, address, id));
        self.bytes += bytes;
        id
    }

    /// The smallest free one of at least `bytes` and at most `limit` bytes.
    pub fn best_fit(&self, stream: Stream, bytes: u64, limit: f64) -> Option<StitchedId> {
        let &(found, size, _, id) = self.free.range((stream, bytes, 0, 0)..).next()?;
        (found == stream && size as f64 <= limit).then_some(id)
    }

    /// Marks one as used by itself: the ranges that make its first `bytes` bytes.
    pub fn activate(&mut self, id: StitchedId, bytes: u64) -> Vec<SegmentRange> {
        let Some(Some(block)) = self.slab.get_mut(id) else { return Vec::new() };
        block.active = Some(bytes);
        front(block, bytes)
    }

    /// Marks one as no longer used by itself: the ranges that it used.
    pub fn deactivate(&mut self, id: StitchedId) -> Vec<SegmentRange> {
        let Some(Some(block)) = self.slab.get_mut(id) else { return Vec::new() };
        let bytes = block.active.take().unwrap_or(0);
        front(block, bytes)
    }

    /// Some of its chunks are in use from now on.
    pub fn use_part(&mut self, id: StitchedId, bytes: u64) {
        let Some(Some(block)) = self.slab.get_mut(id) else { return };
        if block.used == 0 && bytes > 0 {
            self.free.remove(&(block.stream, block.bytes, block.address, id));
        }
        block.used += bytes;
    }

    /// Some of its chunks are free again.
    pub fn release_part(&mut self, id: StitchedId, bytes: u64) {
        let Some(Some(block)) = self.slab.get_mut(id) else { return };
        block.used -= bytes;
        if block.used == 0 && bytes > 0 {
            self.free.insert((block.stream, block.bytes, block.address, id));
        }
    }

    /// Removes those that do not use their chunks: id, address and parts of each.
    pub fn forget_idle(&mut self) -> Vec<(StitchedId, Address, Vec<SegmentRange>)> {
        let mut forgotten = Vec::new();
        for id in 0..self.slab.len() {
            if let Some(block) = self.slab[id].take_if(|block| block.active.is_none()) {
                self.free.remove(&(block.stream, block.bytes, block.address, id));
                self.bytes -= block.bytes;
                self.vacant.push(id);
                forgotten.push((id, block.address, block.parts));
            }
        }
        forgotten
    }
}

/// The parts that make the first `bytes` bytes of a block.
fn front(block: &Stitched, bytes: u64) -> Vec<SegmentRange> {
    let mut missing = bytes;
    let mut ranges = Vec::new();
    for &part in &block.parts {
        if missing == 0 {
            break;
        }
        let range = part.front(part.bytes.min(missing));
        missing -= range.bytes;
        ranges.push(range);
    }
    ranges
}
