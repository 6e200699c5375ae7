//! What runs once, placed around everything else.

use stalloc_planner::{Buffer, Error, Instance, Options, solve};

use super::blocks::{Taken, disjoint};
use super::cycle::Timeline;
use super::{ALIGNMENT, Stage};

impl Stage<'_> {
    /// Plans sections that run once, one right after the other; then come windows of the repeating sections that
    /// something of theirs lives on into. What always lives takes its place from when it is made.
    pub(super) fn plan_chain(&mut self, chain: &[usize], options: &Options) -> Result<(), Error> {
        let own: Vec<usize> = self.own.iter().copied().filter(|&i| chain.contains(&self.items[i].section)).collect();
        let mut timeline = Timeline::new();
        for &section in chain {
            timeline.push(section, u64::from(self.places[section].period));
        }
        self.add_windows(&mut timeline, &own);
        let mut taken = Vec::new();
        for &i in self.own {
            let Some(start) = self.offsets[i] else { continue };
            let end = start + self.items[i].size;
            self.spans_on(&timeline, i, |lower, upper| taken.push(Taken { lower, upper, start, end }));
        }
        let mut buffers = disjoint(taken);
        let free: Vec<usize> = own.into_iter().filter(|&i| self.offsets[i].is_none()).collect();
        let first = buffers.len();
        for &i in &free {
            let (mut lower, mut upper) = (u64::MAX, 0);
            self.spans_on(&timeline, i, |from, to| {
                lower = lower.min(from);
                upper = upper.max(to);
            });
            if self.items[i].forever {
                upper = timeline.length;
            }
            let size = self.items[i].size;
            buffers.push(Buffer { lower, upper: upper.max(lower), size, alignment: ALIGNMENT, fixed: None });
        }
        let solution = solve(&Instance { buffers, period: None }, options)?;
        for (&i, &offset) in free.iter().zip(&solution.offsets[first..]) {
            self.put(i, offset)?;
        }
        if first == 0 {
            self.lower_bound = self.lower_bound.max(solution.lower_bound);
        }
        Ok(())
    }
}
