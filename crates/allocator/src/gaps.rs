//! The free ranges that unplanned blocks are put into: lowest address first.
//!
//! A sorted list in chunks that know their widest gap (a B+ tree of height two): a search skips the chunks in which
//! nothing fits, so it costs a look per chunk and one chunk's gaps. Only what must be avoided when *searching* is
//! kept here; whether a range is free is said by [`crate::ranges::RangeSet`] alone.

use std::ops::Range;

/// A chunk splits in two when it has more gaps than this.
const CHUNK: usize = 96;

/// A free range of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u32,
    end: u32,
}

impl Gap {
    fn width(self) -> u32 {
        self.end - self.start
    }
}

/// Gaps that follow each other.
#[derive(Clone, Debug)]
struct Chunk {
    gaps: Vec<Gap>,
    /// Start of the first gap, for the search.
    first: u32,
    /// Width of the widest gap.
    widest: u32,
}

impl Chunk {
    fn new(mut gaps: Vec<Gap>) -> Self {
        gaps.reserve(CHUNK + 2 - gaps.len());
        let mut chunk = Chunk { gaps, first: 0, widest: 0 };
        chunk.update();
        chunk
    }

    fn update(&mut self) {
        self.first = self.gaps.first().map_or(u32::MAX, |gap| gap.start);
        self.widest = self.gaps.iter().map(|gap| gap.width()).max().unwrap_or(0);
    }
}

/// Free ranges in the order of addresses.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Never empty; a chunk is empty only if it is the last one left.
    chunks: Vec<Chunk>,
}

/// A gap's place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct At {
    chunk: usize,
    index: usize,
}

impl Gaps {
    /// One gap, `0..len`.
    pub fn new(len: u32) -> Self {
        Gaps { chunks: vec![Chunk::new(vec![Gap { start: 0, end: len }])] }
    }

    /// The chunk that holds the last gap that starts at or before `unit`, if any gap does.
    fn chunk_before(&self, unit: u32) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.first <= unit).checked_sub(1)
    }

    /// The last gap that starts at or before `unit`.
    fn before(&self, unit: u32) -> Option<At> {
        let chunk = self.chunk_before(unit)?;
        let index = self.chunks[chunk].gaps.partition_point(|gap| gap.start <= unit).checked_sub(1)?;
        Some(At { chunk, index })
    }

    /// The gap after a place; the first one after `None`.
    fn after(&self, at: Option<At>) -> Option<At> {
        let (chunk, index) = at.map_or((0, 0), |at| (at.chunk, at.index + 1));
        if index < self.chunks[chunk].gaps.len() {
            return Some(At { chunk, index });
        }
        (chunk + 1 < self.chunks.len()).then_some(At { chunk: chunk + 1, index: 0 })
    }

    fn gap(&self, at: At) -> Gap {
        self.chunks[at.chunk].gaps[at.index]
    }

    /// The lowest place for `width` units within `window`.
    pub fn first_fit(&self, window: Range<u32>, width: u32) -> Option<u32> {
        let begin = self.chunk_before(window.start).unwrap_or(0);
        for chunk in self.chunks[begin..].iter().take_while(|chunk| chunk.first < window.end) {
            if chunk.widest < width {
                continue;
            }
            for gap in &chunk.gaps {
                let start = gap.start.max(window.start);
                if gap.end.min(window.end).saturating_sub(start) >= width {
                    return Some(start);
                }
            }
        }
        None
    }

    /// Takes a range that lies in one gap.
    pub fn take(&mut self, range: Range<u32>) {
        debug_assert!(range.start < range.end);
        let Some(at) = self.before(range.start) else { return debug_assert!(false, "{range:?} is not free") };
        let gap = self.gap(at);
        debug_assert!(gap.end >= range.end, "{range:?} is not free");
        let left = Gap { start: gap.start, end: range.start };
        let right = Gap { start: range.end, end: gap.end };
        let gaps = &mut self.chunks[at.chunk].gaps;
        match (left.width() > 0, right.width() > 0) {
            (true, true) => {
                gaps[at.index] = left;
                gaps.insert(at.index + 1, right);
            }
            (true, false) => gaps[at.index] = left,
            (false, true) => gaps[at.index] = right,
            (false, false) => {
                gaps.remove(at.index);
            }
        }
        self.settle(at.chunk);
    }

    /// Gives back a range that was taken; it need not be one that was taken as a whole.
    pub fn give(&mut self, range: Range<u32>) {
        debug_assert!(range.start < range.end);
        let before = self.before(range.start);
        let after = self.after(before);
        let joins_before = before.filter(|&at| self.gap(at).end == range.start);
        let joins_after = after.filter(|&at| self.gap(at).start == range.end);
        debug_assert!(before.is_none_or(|at| self.gap(at).end <= range.start), "{range:?} is free already");
        match (joins_before, joins_after) {
            (Some(left), Some(right)) => {
                self.chunks[left.chunk].gaps[left.index].end = self.gap(right).end;
                self.chunks[right.chunk].gaps.remove(right.index);
                if right.chunk != left.chunk {
                    self.settle(right.chunk);
                }
                self.settle(left.chunk);
            }
            (Some(left), None) => {
                self.chunks[left.chunk].gaps[left.index].end = range.end;
                self.settle(left.chunk);
            }
            (None, Some(right)) => {
                self.chunks[right.chunk].gaps[right.index].start = range.start;
                self.settle(right.chunk);
            }
            (None, None) => {
                let at = before.map_or(At { chunk: 0, index: 0 }, |at| At { index: at.index + 1, ..at });
                self.chunks[at.chunk].gaps.insert(at.index, Gap { start: range.start, end: range.end });
                self.settle(at.chunk);
            }
        }
    }

    /// Brings a chunk that changed back into shape.
    fn settle(&mut self, index: usize) {
        if self.chunks.len() > 1 && self.chunks[index].gaps.is_empty() {
            self.chunks.remove(index);
            return;
        }
        let chunk = &mut self.chunks[index];
        let half = (chunk.gaps.len() > CHUNK).then(|| chunk.gaps.split_off(CHUNK / 2));
        chunk.update();
        if let Some(gaps) = half {
            self.chunks.insert(index + 1, Chunk::new(gaps));
        }
    }
}

#[cfg(test)]
mod tests;
