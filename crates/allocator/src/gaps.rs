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
        chunk.note_first();
        chunk.note_widest();
        chunk
    }

    fn note_first(&mut self) {
        self.first = self.gaps.first().map_or(u32::MAX, |gap| gap.start);
    }

    fn note_widest(&mut self) {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    chunk: usize,
    index: usize,
}

/// A place that was found; good until the gaps change.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its first unit.
    pub start: u32,
    at: At,
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
    #[inline]
    pub fn first_fit(&self, window: Range<u32>, width: u32) -> Option<Place> {
        // Of all gaps only the first one can begin before the window.
        let mut number = self.chunk_before(window.start).unwrap_or(0);
        let mut index = self.chunks[number].gaps.partition_point(|gap| gap.end <= window.start);
        let latest = window.end.checked_sub(width)?;
        loop {
            let chunk = &self.chunks[number];
            if chunk.first > latest {
                return None;
            }
            if chunk.widest >= width {
                let is_wide = |gap: &Gap| gap.end.saturating_sub(gap.start.max(window.start)) >= width;
                if let Some(found) = chunk.gaps[index..].iter().position(is_wide) {
                    let at = At { chunk: number, index: index + found };
                    let start = self.gap(at).start.max(window.start);
                    return (start <= latest).then_some(Place { start, at });
                }
            }
            (number, index) = (number + 1, 0);
            if number == self.chunks.len() {
                return None;
            }
        }
    }

    /// Every gap of at least `width` units, by address. O(gaps).
    pub fn of_width(&self, width: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let chunks = self.chunks.iter().filter(move |chunk| chunk.widest >= width);
        chunks.flat_map(|chunk| &chunk.gaps).filter(move |gap| gap.width() >= width).map(|gap| gap.start..gap.end)
    }

    /// Takes `width` units at a place that was just found for them.
    #[inline]
    pub fn take(&mut self, place: Place, width: u32) {
        self.cut(place.at, place.start..place.start + width);
    }

    /// Takes a range that lies in one gap, wherever that is.
    pub fn take_range(&mut self, range: Range<u32>) {
        let Some(at) = self.before(range.start) else { return debug_assert!(false, "{range:?} is not free") };
        self.cut(at, range);
    }

    fn cut(&mut self, at: At, range: Range<u32>) {
        let gap = self.gap(at);
        debug_assert!(range.start < range.end && gap.start <= range.start && range.end <= gap.end);
        let left = Gap { start: gap.start, end: range.start };
        let right = Gap { start: range.end, end: gap.end };
        let chunk = &mut self.chunks[at.chunk];
        match (left.width() > 0, right.width() > 0) {
            (true, true) => {
                chunk.gaps[at.index] = left;
                chunk.gaps.insert(at.index + 1, right);
            }
            (true, false) => chunk.gaps[at.index] = left,
            (false, true) => chunk.gaps[at.index] = right,
            (false, false) => {
                chunk.gaps.remove(at.index);
            }
        }
        if at.index == 0 {
            chunk.note_first();
        }
        if gap.width() == chunk.widest {
            chunk.note_widest();
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
                let end = self.gap(right).end;
                let chunk = &mut self.chunks[right.chunk];
                chunk.gaps.remove(right.index);
                if right.chunk != left.chunk {
                    chunk.note_first();
                    chunk.note_widest();
                }
                self.widen(left, Gap { end, ..self.gap(left) });
                if right.chunk != left.chunk {
                    self.settle(right.chunk);
                }
            }
            (Some(left), None) => self.widen(left, Gap { end: range.end, ..self.gap(left) }),
            (None, Some(right)) => self.widen(right, Gap { start: range.start, ..self.gap(right) }),
            (None, None) => {
                let at = before.map_or(At { chunk: 0, index: 0 }, |at| At { index: at.index + 1, ..at });
                self.chunks[at.chunk].gaps.insert(at.index, Gap { start: range.start, end: range.end });
                self.widen(at, Gap { start: range.start, end: range.end });
                self.settle(at.chunk);
            }
        }
    }

    /// Makes a gap wider.
    #[inline]
    fn widen(&mut self, at: At, gap: Gap) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.gaps[at.index] = gap;
        chunk.widest = chunk.widest.max(gap.width());
        if at.index == 0 {
            chunk.first = gap.start;
        }
    }

    /// Splits a chunk that has grown too long, and drops one that is empty.
    #[inline]
    fn settle(&mut self, index: usize) {
        let chunk = &mut self.chunks[index];
        if chunk.gaps.len() > CHUNK {
            let half = chunk.gaps.split_off(CHUNK / 2);
            chunk.note_widest();
            self.chunks.insert(index + 1, Chunk::new(half));
        } else if chunk.gaps.is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(index);
        }
    }
}

#[cfg(test)]
mod tests;
