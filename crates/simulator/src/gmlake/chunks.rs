//! Physical memory: segments, cut into runs of chunks that are in use or free.
//!
//! Free runs side by side are always joined: they are GMLake's primitive blocks.

use std::collections::{BTreeMap, BTreeSet};

use stalloc_device::{Address, Stream};

use super::range::SegmentRange;
use super::stitched::{StitchedBlocks, StitchedId};

#[derive(Debug)]
struct GmlakeSegment {
    address: Address,
    bytes: u64,
    stream: Stream,
    /// By offset: length, and whether it is in use.
    runs: BTreeMap<u64, (u64, bool)>,
    /// Parts that stitched blocks are made of.
    links: Vec<(StitchedId, SegmentRange)>,
}

/// All segments.
#[derive(Debug, Default)]
pub(super) struct GmlakeSegments {
    segments: Vec<Option<GmlakeSegment>>,
    vacant: Vec<usize>,
    /// Free runs by (stream, bytes, address), with their segment.
    free: BTreeSet<(Stream, u64, Address, usize)>,
}

impl GmlakeSegments {
    /// A new segment, free.
    pub fn add(&mut self, address: Address, bytes: u64, stream: Stream) -> SegmentRange {
        let runs = BTreeMap::from([(0, (bytes, false))]);
        let segment = GmlakeSegment { address, bytes, stream, runs, links: Vec::new() };
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.segments.push(None);
            self.segments.len() - 1
        });
        self.segments[place] = Some(segment);
        self.free.insert((stream, bytes, address, place));
        SegmentRange { segment: place, offset: 0, bytes }
    }

    /// Where a range lies.
    pub fn address(&self, range: SegmentRange) -> Address {
        self.segment(range.segment).map_or(0, |segment| segment.address + range.offset)
    }

    fn segment(&self, place: usize) -> Option<&GmlakeSegment> {
        self.segments.get(place)?.as_ref()
    }

    /// The smallest free run of at least `bytes` bytes, among equals the lowest.
    pub fn best_fit(&self, stream: Stream, bytes: u64) -> Option<SegmentRange> {
        let &(found, bytes, address, segment) = self.free.range((stream, bytes, 0, 0)..).next()?;
        (found == stream).then(|| self.run(segment, address, bytes))
    }

    fn run(&self, segment: usize, address: Address, bytes: u64) -> SegmentRange {
        let start = self.segment(segment).map_or(0, |segment| segment.address);
        SegmentRange { segment, offset: address - start, bytes }
    }

    /// The largest free runs that make exactly `bytes` bytes together, the last one cut; `None` if all are too few.
    pub fn largest(&self, stream: Stream, bytes: u64) -> Option<Vec<SegmentRange>> {
        let mut missing = bytes;
        let mut ranges = Vec::new();
        let all = (stream, 0, 0, 0)..=(stream, u64::MAX, u64::MAX, usize::MAX);
        for &(_, run, address, segment) in self.free.range(all).rev() {
            let range = self.run(segment, address, run.min(missing));
            missing -= range.bytes;
            ranges.push(range);
            if missing == 0 {
                return Some(ranges);
            }
        }
        None
    }

    /// A free range is in use from now on.
    pub fn take(&mut self, range: SegmentRange, stitched: &mut StitchedBlocks) {
        let Some(Some(segment)) = self.segments.get_mut(range.segment) else { return };
        let Some((&offset, &(bytes, _))) = segment.runs.range(..=range.offset).next_back() else { return };
        self.free.remove(&(segment.stream, bytes, segment.address + offset, range.segment));
        let end = range.offset + range.bytes;
        for (from, to, used) in [(offset, range.offset, false), (range.offset, end, true), (end, offset + bytes, false)]
        {
            if from < to {
                segment.runs.insert(from, (to - from, used));
                if !used {
                    self.free.insert((segment.stream, to - from, segment.address + from, range.segment));
                }
            }
        }
        for (id, part) in &segment.links {
            stitched.use_part(*id, part.shared(range.offset, range.bytes));
        }
    }

    /// A range that was taken is free again.
    pub fn give(&mut self, range: SegmentRange, stitched: &mut StitchedBlocks) {
        let Some(Some(segment)) = self.segments.get_mut(range.segment) else { return };
        segment.runs.remove(&range.offset);
        let (mut from, mut to) = (range.offset, range.offset + range.bytes);
        if let Some((&offset, &(bytes, false))) = segment.runs.range(..from).next_back() {
            self.free.remove(&(segment.stream, bytes, segment.address + offset, range.segment));
            segment.runs.remove(&offset);
            from = offset;
        }
        if let Some(&(bytes, false)) = segment.runs.get(&to) {
            self.free.remove(&(segment.stream, bytes, segment.address + to, range.segment));
            segment.runs.remove(&to);
            to += bytes;
        }
        segment.runs.insert(from, (to - from, false));
        self.free.insert((segment.stream, to - from, segment.address + from, range.segment));
        for (id, part) in &segment.links {
            stitched.release_part(*id, part.shared(range.offset, range.bytes));
        }
    }

    /// A stitched block is made of this range, among others.
    pub fn link(&mut self, range: SegmentRange, id: StitchedId) {
        if let Some(Some(segment)) = self.segments.get_mut(range.segment) {
            segment.links.push((id, range));
        }
    }

    /// A stitched block is no more.
    pub fn unlink(&mut self, ranges: &[SegmentRange], id: StitchedId) {
        for range in ranges {
            if let Some(Some(segment)) = self.segments.get_mut(range.segment) {
                segment.links.retain(|(linked, _)| *linked != id);
            }
        }
    }

    /// Removes the segments that are wholly free and no part of a stitched block: (address, bytes) of each.
    pub fn remove_unused(&mut self) -> Vec<(Address, u64)> {
        let mut removed = Vec::new();
        for place in 0..self.segments.len() {
            let unused = |s: &&mut GmlakeSegment| s.links.is_empty() && s.runs.get(&0) == Some(&(s.bytes, false));
            if let Some(segment) = self.segments[place].as_mut().filter(|s| unused(s)) {
                self.free.remove(&(segment.stream, segment.bytes, segment.address, place));
                removed.push((segment.address, segment.bytes));
                self.segments[place] = None;
                self.vacant.push(place);
            }
        }
        removed
    }
}
