//! What runs once, placed around everything else.

use stalloc_planner::{Buffer, Error, Instance};

use super::blocks::{Taken, disjoint};
use super::budget::Budget;
use super::cycle::Timeline;
use super::{ALIGNMENT, Stage};

impl Stage<'_> {
    /// Plans sections that run once, one right after the other; then come windows of the repeating sections that
    /// something of theirs lives on into. What always lives takes its place from when it is made.
    pub(super) fn plan_chain(&mut self, chain: &[usize], budget: &mut Budget) -> Result<(), Error> {
        let own: Vec<usize> = self.own.iter().copied().filter(|&i| chain.contains(&self.items[i].section)).collect();
        let mut timeline = Timeline::new();
        for &section in chain {
            timeline.push(section, u64::from(self.places[section].period));
        }
        self.add_windows(&mut timeline, &own);
        let whole =
            |wall: &std::ops::Range<u64>| Taken { lower: 0, upper: timeline.length, start: wall.start, end: wall.end };
        let mut taken: Vec<Taken> = self.walls.iter().map(whole).collect();
        taken.push(whole(&(0..self.floor)));
        for &i in self.own {
            let Some(start) = self.offsets[i] else { continue };
            let end = start + self.items[i].size;
            self.blocks_on(&timeline, i, |lower, upper| taken.push(Taken { lower, upper, start, end }));
        }
        let free: Vec<(usize, u64, u64)> = own
            .into_iter()
            .filter(|&i| self.offsets[i].is_none())
            .map(|i| {
                let (lower, upper) = self.whole_span(&timeline, i);
                (i, lower, upper)
            })
            .collect();
        let blocks = disjoint(taken);
        let mut buffers = blocks;
        let fixed = buffers.len();
        buffers.extend(free.iter().map(|&(i, lower, upper)| Buffer {
            lower,
            upper,
            size: self.items[i].size,
            alignment: ALIGNMENT,
            fixed: None,
        }));
        let offsets = budget.solve(&Instance { buffers, period: None }, self.top)?.offsets.split_off(fixed);
        for (&(i, ..), offset) in free.iter().zip(offsets) {
            self.put(i, offset)?;
        }
        Ok(())
    }

    fn whole_span(&self, timeline: &Timeline, item: usize) -> (u64, u64) {
        let (mut lower, mut upper) = (u64::MAX, 0);
        self.spans_on(timeline, item, |from, to| {
            lower = lower.min(from);
            upper = upper.max(to);
        });
        (lower, if self.items[item].forever { timeline.length } else { upper.max(lower) })
    }
}
