//! The free ranges of an arena, and the one that a request fits best.
//!
//! Free ranges are kept twice: in the order of addresses, so that neighbours join and a planned range can be cut out, and
//! by *class* of width (four to a power of two), so that a search looks at few. The best place for a request is at the
//! beginning of the lowest range of the tightest class that has one wide enough: a good fit, as in TLSF (Masmano et al.,
//! ECRTS 2004), with ties broken by address.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;

/// A chunk of the list by address splits in two when it has more ranges than this.
const CHUNK: usize = 96;

/// Classes of width, a bit of a word each: four for each power of two of 32 bits.
const CLASSES: usize = u128::BITS as usize;

/// A free range of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeUnits {
    start: u32,
    end: u32,
}

/// A gap in its class, and who may have used parts of it, a bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UsedGap {
    gap: FreeUnits,
    users: Cell<u64>,
}

impl FreeUnits {
    fn width(self) -> u32 {
        self.end - self.start
    }

    fn range(self) -> Range<u32> {
        self.start..self.end
    }
}

/// The class of a width of at least 1: no class holds widths that differ by more than a quarter.
fn class(width: u32) -> usize {
    let log = width.ilog2();
    let quarter = if log >= 2 { width >> (log - 2) } else { width << (2 - log) } & 3;
    (log * 4 + quarter) as usize
}

/// Free ranges. An operation costs O(log n) and moves at most a chunk, or a class's list.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// By address, in chunks; none is empty unless it is the only one.
    chunks: Vec<Vec<FreeUnits>>,
    /// By class, each by address.
    classes: Vec<Vec<UsedGap>>,
    /// One bit per class that is not empty.
    filled: u128,
}

/// A gap's place in the list by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    chunk: usize,
    index: usize,
}

impl Gaps {
    /// No gap.
    pub fn none() -> Self {
        Gaps { chunks: vec![Vec::new()], classes: vec![Vec::new(); CLASSES], filled: 0 }
    }

    /// One gap, `0..len`; `len` is at least 1.
    pub fn new(len: u32) -> Self {
        let mut gaps = Gaps::none();
        let all = FreeUnits { start: 0, end: len };
        gaps.chunks[0].push(all);
        gaps.classify(all, 0);
        gaps
    }

    fn classify(&mut self, gap: FreeUnits, users: u64) {
        let class = class(gap.width());
        let list = &mut self.classes[class];
        let index = list.partition_point(|other| other.gap.start < gap.start);
        list.insert(index, UsedGap { gap, users: Cell::new(users) });
        self.filled |= 1 << class;
    }

    /// The answer: its users.
    fn declassify(&mut self, gap: FreeUnits) -> u64 {
        let class = class(gap.width());
        let list = &mut self.classes[class];
        let index = list.partition_point(|other| other.gap.start < gap.start);
        debug_assert_eq!(list.get(index).map(|used| used.gap), Some(gap));
        let users = list.remove(index).users.get();
        if list.is_empty() {
            self.filled &= !(1 << class);
        }
        users
    }

    /// The last gap that starts at or before `unit`.
    fn before(&self, unit: u32) -> Option<At> {
        let starts_before = |gaps: &Vec<FreeUnits>| gaps.first().is_some_and(|gap| gap.start <= unit);
        let chunk = self.chunks.partition_point(starts_before).checked_sub(1)?;
        let index = self.chunks[chunk].partition_point(|gap| gap.start <= unit).checked_sub(1)?;
        Some(At { chunk, index })
    }

    /// The gap after a place; the first one after `None`.
    fn after(&self, at: Option<At>) -> Option<At> {
        let (chunk, index) = at.map_or((0, 0), |at| (at.chunk, at.index + 1));
        if index < self.chunks[chunk].len() {
            return Some(At { chunk, index });
        }
        (chunk + 1 < self.chunks.len()).then_some(At { chunk: chunk + 1, index: 0 })
    }

    fn gap(&self, at: At) -> FreeUnits {
        self.chunks[at.chunk][at.index]
    }

    /// Where `width` units fit, best first: where such a range starts within the window, and how far it is free.
    pub fn fits(&self, window: Range<u32>, width: u32) -> Fits<'_> {
        let (from, to) = (window.start, window.end);
        let across = self.before(from).map(|at| self.gap(at)).filter(|gap| gap.start < from && gap.end > from);
        let across = across.map(|gap| FreeUnits { start: from, end: gap.end.min(to) });
        let classes = self.filled & (u128::MAX << class(width));
        Fits { gaps: self, window, width, users: u64::MAX, classes, list: [].iter(), across, found: None }
    }

    /// The last gap that starts at or before a unit.
    pub fn starting_by(&self, unit: u32) -> Option<Range<u32>> {
        self.before(unit).map(|at| self.gap(at).range())
    }

    /// The gap with the highest addresses.
    pub fn last(&self) -> Option<Range<u32>> {
        self.chunks.last()?.last().map(|gap| gap.range())
    }

    /// Every gap of at least `width` units, by address. O(gaps).
    pub fn of_width(&self, width: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        self.chunks.iter().flatten().filter(move |gap| gap.width() >= width).map(|gap| gap.range())
    }

    /// Takes a range that lies in one gap.
    pub fn take(&mut self, range: Range<u32>) {
        let Some(at) = self.before(range.start) else { return debug_assert!(false, "{range:?} is not free") };
        let gap = self.gap(at);
        debug_assert!(range.start < range.end && gap.start <= range.start && range.end <= gap.end);
        let users = self.declassify(gap);
        let left = FreeUnits { end: range.start, ..gap };
        let right = FreeUnits { start: range.end, ..gap };
        let chunk = &mut self.chunks[at.chunk];
        match (left.width() > 0, right.width() > 0) {
            (true, true) => {
                chunk[at.index] = left;
                chunk.insert(at.index + 1, right);
            }
            (true, false) => chunk[at.index] = left,
            (false, true) => chunk[at.index] = right,
            (false, false) => {
                chunk.remove(at.index);
            }
        }
        self.settle(at.chunk);
        [left, right].into_iter().filter(|gap| gap.width() > 0).for_each(|gap| self.classify(gap, users));
    }

    /// Gives back a range that was taken; it need not be one that was taken as a whole.
    pub fn give(&mut self, range: Range<u32>) {
        self.give_of(range, 0);
    }

    /// The same, used by some until now, a bit each.
    pub fn give_of(&mut self, range: Range<u32>, users: u64) {
        debug_assert!(range.start < range.end);
        let before = self.before(range.start);
        let after = self.after(before);
        debug_assert!(before.is_none_or(|at| self.gap(at).end <= range.start), "{range:?} is free already");
        let left = before.filter(|&at| self.gap(at).end == range.start);
        let right = after.filter(|&at| self.gap(at).start == range.end);
        let start = left.map_or(range.start, |at| self.gap(at).start);
        let end = right.map_or(range.end, |at| self.gap(at).end);
        let joined = FreeUnits { start, end };
        let mut users = users;
        for at in [left, right].into_iter().flatten() {
            users |= self.declassify(self.gap(at));
        }
        match (left, right) {
            (Some(left), Some(right)) => {
                self.chunks[left.chunk][left.index] = joined;
                self.chunks[right.chunk].remove(right.index);
                self.settle(right.chunk);
            }
            (Some(at), None) | (None, Some(at)) => self.chunks[at.chunk][at.index] = joined,
            (None, None) => {
                let at = before.map_or(At { chunk: 0, index: 0 }, |at| At { index: at.index + 1, ..at });
                self.chunks[at.chunk].insert(at.index, joined);
                self.settle(at.chunk);
            }
        }
        self.classify(joined, users);
    }

    /// Splits a chunk that has grown too long, and drops one that is empty.
    #[inline]
    fn settle(&mut self, index: usize) {
        let chunk = &mut self.chunks[index];
        if chunk.len() > CHUNK {
            let half = chunk.split_off(CHUNK / 2);
            self.chunks.insert(index + 1, half);
        } else if chunk.is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(index);
        }
    }
}

/// Yields free ranges in a window that are wide enough: the tightest class of widths first, then the lowest address.
#[derive(Debug)]
pub struct Fits<'a> {
    gaps: &'a Gaps,
    window: Range<u32>,
    width: u32,
    /// Only gaps of which one of them may have used a part, or nobody.
    users: u64,
    /// Classes that are still to be looked at, a bit each.
    classes: u128,
    /// The rest of the class that is looked at.
    list: std::slice::Iter<'a, UsedGap>,
    /// What a gap that begins before the window has inside of it: before others of its class.
    across: Option<FreeUnits>,
    /// Users of the gap that was found last.
    found: Option<&'a Cell<u64>>,
}

impl Fits<'_> {
    /// Passes over gaps of which others alone used every part.
    pub fn used_by(self, users: u64) -> Self {
        Fits { users, ..self }
    }

    /// None but these have used the gap that was found last: what is found for others passes over it from now on.
    pub fn narrow(&self, users: u64) {
        if let Some(found) = self.found {
            found.set(found.get() & users);
        }
    }

    fn is_of(&self, users: u64) -> bool {
        users == 0 || users & self.users != 0
    }
}

impl Iterator for Fits<'_> {
    type Item = Range<u32>;

    #[inline]
    fn next(&mut self) -> Option<Range<u32>> {
        loop {
            while let Some(UsedGap { gap, users }) = self.list.next() {
                if !self.is_of(users.get()) {
                    continue;
                }
                if gap.start >= self.window.end {
                    break;
                }
                let range = gap.start..gap.end.min(self.window.end);
                if range.end - range.start >= self.width {
                    // Nothing is learnt of what lies beyond the window.
                    self.found = (range.end == gap.end).then_some(users);
                    return Some(range);
                }
            }
            let next = self.classes.trailing_zeros() as usize;
            if let Some(gap) = self.across.take_if(|gap| class(gap.width()) <= next) {
                self.list = [].iter();
                self.found = None;
                if gap.width() >= self.width {
                    return Some(gap.range());
                }
            } else if next < CLASSES {
                self.classes &= self.classes - 1;
                let list = &self.gaps.classes[next];
                let first = list.partition_point(|used| used.gap.start < self.window.start);
                self.list = list[first..].iter();
            } else {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
