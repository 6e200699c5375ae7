//! What runs once, placed around everything else.

use std::collections::BTreeMap;

use stalloc_planner::{Buffer, Error, Instance};

use super::blocks::{Taken, disjoint};
use super::budget::Budget;
use super::cycle::Timeline;
use super::{ALIGNMENT, Stage};

impl Stage<'_> {
    /// Plans sections that run once, one right after the other; then come windows of the repeating sections that
    /// something of theirs lives on into. What always lives takes its place from when it is made.
    ///
    /// Two ways are tried: everything free, and what has its like in the steady state in the like's place, as far as
    /// that is possible.
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
        let mut best = self.fit(&blocks, &free, &vec![None; free.len()], budget)?;
        let lent = self.places_of_likes(&blocks, &free);
        if best.0 > self.top && lent.iter().any(Option::is_some) {
            let other = self.fit(&blocks, &free, &lent, budget)?;
            if other.0 < best.0 {
                best = other;
            }
        }
        for (&(i, ..), offset) in free.iter().zip(best.1) {
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

    /// The top and the offsets of items `(item, lower, upper)` around blocks, some of them at given places.
    fn fit(
        &self,
        blocks: &[Buffer],
        free: &[(usize, u64, u64)],
        lent: &[Option<u64>],
        budget: &mut Budget,
    ) -> Result<(u64, Vec<u64>), Error> {
        let mut buffers = blocks.to_vec();
        buffers.extend(free.iter().zip(lent).map(|(&(i, lower, upper), &fixed)| Buffer {
            lower,
            upper,
            size: self.items[i].size,
            alignment: ALIGNMENT,
            fixed,
        }));
        let offsets = budget.solve(&Instance { buffers, period: None }, self.top)?.offsets.split_off(blocks.len());
        let ends = free.iter().zip(&offsets).map(|(&(i, ..), &offset)| offset.saturating_add(self.items[i].size));
        Ok((ends.max().unwrap_or(0).max(self.top), offsets))
    }

    /// The places of items' likes, without those that would meet each other or a block. O(n log n).
    fn places_of_likes(&self, blocks: &[Buffer], free: &[(usize, u64, u64)]) -> Vec<Option<u64>> {
        let mut lent: Vec<Option<u64>> =
            free.iter().map(|&(i, ..)| self.items[i].like.and_then(|like| self.offsets[like])).collect();
        // Ends first, then blocks, which no item may move, then items.
        let mut moments: Vec<(u64, u8, usize)> = Vec::new();
        for (b, block) in blocks.iter().enumerate() {
            moments.extend([(block.lower, 1, b), (block.upper, 0, b)]);
        }
        for (f, &(_, lower, upper)) in free.iter().enumerate().filter(|&(f, &(_, l, u))| l < u && lent[f].is_some()) {
            moments.extend([(lower, 2, blocks.len() + f), (upper, 0, blocks.len() + f)]);
        }
        moments.sort_unstable();
        let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (_, what, who) in moments {
            let range = match who.checked_sub(blocks.len()) {
                None => blocks[who].fixed.map(|start| (start, start + blocks[who].size)),
                Some(f) => lent[f].map(|start| (start, start + self.items[free[f].0].size)),
            };
            let Some((start, end)) = range else { continue };
            if what == 0 {
                if live.get(&start).is_some_and(|&(_, owner)| owner == who) {
                    live.remove(&start);
                }
                continue;
            }
            while let Some((&at, &(_, owner))) = live.range(..end).next_back().filter(|&(_, &(to, _))| to > start) {
                if who >= blocks.len() {
                    lent[who - blocks.len()] = None;
                    break;
                }
                live.remove(&at);
                if owner >= blocks.len() {
                    lent[owner - blocks.len()] = None;
                }
            }
            if who < blocks.len() || lent[who - blocks.len()].is_some() {
                live.insert(start, (end, who));
            }
        }
        lent
    }
}
