//! A repeating part as a cyclic instance.
//!
//! The cycle is the part's copies one after the other, then, for every other repeating part, a *window*: as much of
//! its beginning as anything carried over from this part lives into. With one part there are no windows and the
//! instance is exact; with several, what is carried counts as alive in all windows up to its last.

use rustc_hash::FxHashMap;
use stalloc_planner::{Buffer, Error, Instance};

use super::blocks::{Taken, disjoint};
use super::budget::Budget;
use super::{ALIGNMENT, Item, Stage};

/// Where sections (or the beginnings of some) lie on the clock of an instance.
pub struct Timeline {
    /// For each section on it: where it begins and how much of it is there.
    spans: FxHashMap<usize, (u64, u64)>,
    /// Its length.
    pub length: u64,
    /// Where windows begin.
    windows: u64,
}

impl Timeline {
    /// An empty one.
    pub fn new() -> Self {
        Timeline { spans: FxHashMap::default(), length: 0, windows: u64::MAX }
    }

    /// Appends the first `length` instants of a section.
    pub fn push(&mut self, section: usize, length: u64) {
        self.spans.insert(section, (self.length, length));
        self.length += length;
    }

    /// Where a section begins, and how much of it is there.
    pub fn span(&self, section: usize) -> Option<(u64, u64)> {
        self.spans.get(&section).copied()
    }

    /// Where a section is taken up to `until` by something that was carried into it.
    pub fn beginning(&self, section: usize, until: u32) -> Option<(u64, u64)> {
        let (start, length) = self.span(section)?;
        Some((start, start + length.min(u64::from(until))))
    }
}

impl Stage<'_> {
    /// Plans what a repeating part makes, above what always lives and around what is already placed.
    pub(super) fn plan_cycle(&mut self, part: usize, budget: &mut Budget) -> Result<(), Error> {
        let copies: Vec<usize> = (0..self.places.len()).filter(|&s| self.places[s].part == part).collect();
        let own: Vec<usize> = self.own.iter().copied().filter(|&i| copies.contains(&self.items[i].section)).collect();
        let mut timeline = Timeline::new();
        for &section in &copies {
            timeline.push(section, u64::from(self.places[section].period));
        }
        self.add_windows(&mut timeline, &own);
        if timeline.length == 0 {
            return Ok(());
        }

        let mut taken = Vec::new();
        for &i in self.own {
            let Some(offset) = self.offsets[i] else { continue };
            if self.always[i] {
                continue;
            }
            let (start, end) = (offset - self.base, offset - self.base + self.items[i].size);
            self.blocks_on(&timeline, i, |lower, upper| taken.push(Taken { lower, upper, start, end }));
        }
        let exact = taken.is_empty();
        taken.extend(self.walls.iter().map(|wall| Taken {
            lower: 0,
            upper: timeline.length,
            start: wall.start - self.base,
            end: wall.end - self.base,
        }));
        let mut buffers = disjoint(taken);
        let free: Vec<usize> = own.iter().copied().filter(|&i| self.offsets[i].is_none()).collect();
        let first = buffers.len();
        buffers.extend(free.iter().map(|&i| arc(&self.items[i], &timeline)));
        let solution =
            budget.solve(&Instance { buffers, period: Some(timeline.length) }, self.top.saturating_sub(self.base))?;
        for (&i, offset) in free.iter().zip(&solution.offsets[first..]) {
            self.put(i, self.base.checked_add(*offset).ok_or(Error::TooLarge)?)?;
        }
        if exact {
            self.lower_bound = self.lower_bound.max(self.base + solution.lower_bound);
        }
        Ok(())
    }

    /// Windows for what `items` reach beyond the sections that are on the timeline: repeating sections only.
    pub(super) fn add_windows(&self, timeline: &mut Timeline, items: &[usize]) {
        let mut windows = vec![0; self.places.len()];
        for &i in items.iter().filter(|&&i| !self.always[i]) {
            for &(section, until) in &self.items[i].reach {
                windows[section] = until.min(self.places[section].period).max(windows[section]);
            }
        }
        timeline.windows = timeline.length;
        for (section, &length) in windows.iter().enumerate() {
            if length > 0 && self.repeats(section) && timeline.span(section).is_none() {
                timeline.push(section, u64::from(length));
            }
        }
    }

    /// Where on a timeline an item lives, piece by piece.
    pub(super) fn spans_on(&self, timeline: &Timeline, item: usize, each: impl FnMut(u64, u64)) {
        self.pieces(timeline, item, |_| true, each);
    }

    /// The pieces of an item's life on a timeline: in its own section, and in those that it is carried into as far as
    /// where they begin is of interest.
    fn pieces(
        &self,
        timeline: &Timeline,
        item: usize,
        of_interest: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, u64),
    ) {
        let item = &self.items[item];
        if let Some((start, length)) = timeline.span(item.section) {
            let lower = u64::from(item.lower).min(length);
            each(start + lower, start + u64::from(item.upper).min(length));
        }
        for &(section, until) in &item.reach {
            if let Some((start, end)) = timeline.beginning(section, until).filter(|&(start, _)| of_interest(start)) {
                each(start, end);
            }
        }
    }

    /// Where on a timeline a placed item is in the way of what is to be placed. What one repeating section hands to
    /// another is not in a window's way: into a window lives only what comes from the sections before the windows,
    /// and no step has two predecessors.
    pub(super) fn blocks_on(&self, timeline: &Timeline, item: usize, each: impl FnMut(u64, u64)) {
        let repeats = self.repeats(self.items[item].section);
        self.pieces(timeline, item, |from| !(repeats && from >= timeline.windows), each);
    }
}

/// An item's lifetime on a cyclic timeline: from where it is made onward until all that it reaches is covered.
fn arc(item: &Item, timeline: &Timeline) -> Buffer {
    let (start, _) = timeline.span(item.section).unwrap_or((0, 0));
    let lower = start + u64::from(item.lower);
    let mut upper = start + u64::from(item.upper);
    for &(section, until) in &item.reach {
        if let Some((from, to)) = timeline.beginning(section, until) {
            let to = if from <= lower { to + timeline.length } else { to };
            upper = upper.max(to);
        }
    }
    Buffer { lower, upper: upper.min(lower + timeline.length), size: item.size, alignment: ALIGNMENT, fixed: None }
}
