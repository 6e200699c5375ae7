//! What is planned together: a repeating part as a cyclic instance, or sections that run once as a plain one.
//!
//! A cycle is the part's copies one after the other, then, for every other repeating part, a *window*: as much of
//! its beginning as anything carried over from this part lives into. With one part there are no windows and the
//! instance is exact; with several, what is carried counts as alive in all windows up to its last.

use rustc_hash::FxHashMap;
use stalloc_planner::{Buffer, Error, Instance};

use super::blocks::{Taken, disjoint};
use super::budget::Work;
use super::{ALIGNMENT, Item, Stage};

/// Where sections (or the beginnings of some) lie on the clock of an instance.
struct SectionTimeline {
    /// For each section on it: where it begins and how much of it is there.
    spans: FxHashMap<usize, (u64, u64)>,
    /// Its length.
    length: u64,
    /// Where windows begin.
    windows: u64,
}

impl SectionTimeline {
    /// An empty one.
    fn new() -> Self {
        SectionTimeline { spans: FxHashMap::default(), length: 0, windows: u64::MAX }
    }

    /// Appends the first `length` instants of a section.
    fn push(&mut self, section: usize, length: u64) {
        self.spans.insert(section, (self.length, length));
        self.length += length;
    }

    /// Where a section begins, and how much of it is there.
    fn span(&self, section: usize) -> Option<(u64, u64)> {
        self.spans.get(&section).copied()
    }

    /// Where a section is taken up to `until` by something that was carried into it.
    fn beginning(&self, section: usize, until: u32) -> Option<(u64, u64)> {
        let (start, length) = self.span(section)?;
        Some((start, start + length.min(u64::from(until))))
    }
}

impl Stage<'_> {
    /// Plans what some sections make around what is already placed: a repeating part's copies as a cycle, above what always
    /// lives; or sections that run once, one right after the other, where what always lives takes its place from when it is
    /// made.
    pub(super) fn plan_part(&mut self, sections: &[usize], budget: &mut Work) -> Result<(), Error> {
        let own: Vec<usize> = self.own.iter().copied().filter(|&i| sections.contains(&self.items[i].section)).collect();
        let mut timeline = SectionTimeline::new();
        for &section in sections {
            timeline.push(section, u64::from(self.shapes[section].period));
        }
        self.add_windows(&mut timeline, &own);
        if timeline.length == 0 {
            return Ok(());
        }
        let is_cycle = sections.iter().all(|&section| self.repeats(section));
        let (base, below) = if is_cycle { (self.base, 0..0) } else { (0, 0..self.floor) };
        let mut taken = Vec::new();
        for &i in self.own.iter().filter(|&&i| !(is_cycle && self.always[i])) {
            let Some(offset) = self.offsets[i] else { continue };
            let (start, end) = (offset - base, offset - base + self.items[i].size);
            self.blocks_on(&timeline, i, |lower, upper| taken.push(Taken { lower, upper, start, end }));
        }
        let is_exact = is_cycle && taken.is_empty();
        let whole = |start: u64, end: u64| Taken { lower: 0, upper: timeline.length, start, end };
        taken.extend(self.walls.iter().map(|wall| whole(wall.start - base, wall.end - base)));
        taken.push(whole(below.start, below.end));
        let mut buffers = disjoint(taken);
        let free: Vec<usize> = own.iter().copied().filter(|&i| self.offsets[i].is_none()).collect();
        let first = buffers.len();
        buffers.extend(free.iter().map(|&i| {
            let (lower, upper) = if is_cycle { arc(&self.items[i], &timeline) } else { self.whole_span(&timeline, i) };
            Buffer { lower, upper, size: self.items[i].size, alignment: ALIGNMENT, fixed: None }
        }));
        let period = is_cycle.then_some(timeline.length);
        let solution =
            budget.solve(&Instance { buffers, period, ..Instance::default() }, self.top.saturating_sub(base))?;
        for (&i, offset) in free.iter().zip(&solution.offsets[first..]) {
            self.put(i, base.checked_add(*offset).ok_or(Error::TooLarge)?)?;
        }
        if is_exact {
            self.lower_bound = self.lower_bound.max(base + solution.lower_bound);
        }
        Ok(())
    }

    /// Windows for what `items` reach beyond the sections that are on the timeline: repeating sections only.
    fn add_windows(&self, timeline: &mut SectionTimeline, items: &[usize]) {
        let mut windows = vec![0; self.shapes.len()];
        for &i in items.iter().filter(|&&i| !self.always[i]) {
            for &(section, until) in &self.items[i].reach {
                windows[section] = until.min(self.shapes[section].period).max(windows[section]);
            }
        }
        timeline.windows = timeline.length;
        for (section, &length) in windows.iter().enumerate() {
            if length > 0 && self.repeats(section) && timeline.span(section).is_none() {
                timeline.push(section, u64::from(length));
            }
        }
    }

    /// From when to when an item lives on the timeline of sections that run once.
    fn whole_span(&self, timeline: &SectionTimeline, item: usize) -> (u64, u64) {
        let (mut lower, mut upper) = (u64::MAX, 0);
        self.pieces(
            timeline,
            item,
            |_| true,
            |from, to| {
                lower = lower.min(from);
                upper = upper.max(to);
            },
        );
        (lower, if self.items[item].forever { timeline.length } else { upper.max(lower) })
    }

    /// The pieces of an item's life on a timeline: in its own section, and in those that it is carried into as far as
    /// where they begin is of interest.
    fn pieces(
        &self,
        timeline: &SectionTimeline,
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
    fn blocks_on(&self, timeline: &SectionTimeline, item: usize, each: impl FnMut(u64, u64)) {
        let repeats = self.repeats(self.items[item].section);
        self.pieces(timeline, item, |from| !(repeats && from >= timeline.windows), each);
    }
}

/// An item's lifetime on a cyclic timeline: from where it is made onward until all that it reaches is covered.
fn arc(item: &Item, timeline: &SectionTimeline) -> (u64, u64) {
    let (start, _) = timeline.span(item.section).unwrap_or((0, 0));
    let lower = start + u64::from(item.lower);
    let mut upper = start + u64::from(item.upper);
    for &(section, until) in &item.reach {
        if let Some((from, to)) = timeline.beginning(section, until) {
            let to = if from <= lower { to + timeline.length } else { to };
            upper = upper.max(to);
        }
    }
    (lower, upper.min(lower + timeline.length))
}
