//! Stretches of time in which a plan of a large part is too high, placed alone, and all that lives outside of them in order of
//! time around them.
//!
//! Where the load is near its maximum for short times only, first fit in order of time is as good as can be nearly everywhere,
//! but meets the heaviest sections with the free addresses in pieces. So they are placed first, as if nothing else were there:
//! a stretch has few buffers, and is most often solved at once. What is too high after that makes a stretch longer, or another one.

use crate::bound::loads;
use crate::clock::{ORDER_WORK, SolveClock, WORK_PER_ITEM};
use crate::hash::mix;
use crate::part::{Item, Part, Places};
use crate::sweep::sweep_around;
use crate::{Buffer, Instance, SolveOptions};

/// Sections on either side of an item that is too high which a stretch begins with.
const WIDTH: u32 = 64;

/// One in so many of all items may be in stretches, at first and then; when there are more, it begins anew.
const SHARE: [usize; 2] = [8, 2];

/// Stretches at most, as each item that is too high is held against all; what else is too high has its turn after the next sweep.
const MOST: usize = 256;

/// Sections that are placed alone.
#[derive(Clone, Debug, Default)]
struct Stretch {
    from: u32,
    to: u32,
    /// Its items, with their offsets, once it was placed; and their top.
    placed: Vec<(u32, u64)>,
    top: u64,
    /// How often it was placed.
    tries: u64,
}

/// What is known of a part's stretches.
#[derive(Debug)]
pub(crate) struct Stretches {
    all: Vec<Stretch>,
    share: usize,
    /// Whether stretches are placed by more than the fast orders.
    thorough: bool,
}

impl Stretches {
    /// By the fast orders alone, for few items.
    pub fn fast() -> Stretches {
        Stretches { all: vec![], share: SHARE[0], thorough: false }
    }

    /// By all means.
    pub fn thorough() -> Stretches {
        Stretches { all: vec![], share: SHARE[1], thorough: true }
    }

    /// Whether a part is one that can be placed so.
    pub fn can_place(part: &Part) -> bool {
        !part.ring && !part.aligned && part.fixed.is_empty() && !part.is_small()
    }

    /// Goes on for a round, at first from what is too high in the best places known; a solution, and the work done.
    pub fn improve(
        &mut self,
        part: &Part,
        best: &Places,
        target: u64,
        seed: u64,
        clock: &SolveClock,
    ) -> (Option<Places>, u64) {
        let left = clock.work;
        let mut work = 0;
        let mut found: Option<Places> = None;
        if self.all.is_empty() {
            self.grow(part, &best.offsets, target);
        }
        let sweep_work = ORDER_WORK * part.items.len() as u64;
        loop {
            let Some(order) = self.gather(part) else {
                self.all.clear();
                break;
            };
            for (stretch, items) in self.all.iter_mut().zip(&order) {
                // As much as a sweep is, if that is more and it is worth all means.
                let most = (WORK_PER_ITEM * items.len() as u64).max(if self.thorough { sweep_work } else { 0 });
                let clock = SolveClock { threads: 1, work: most.min(left.saturating_sub(work)), ..*clock };
                work += stretch.place(part, items, target, seed, &clock);
            }
            // What was cut short, a longer limit would not see.
            if work >= left {
                break;
            }
            let Some(places) = self.sweep(part) else { break };
            work += sweep_work;
            let enough = self.all.iter().map(|s| s.top).fold(target, u64::max);
            let done = places.top <= enough;
            if !done {
                self.grow(part, &places.offsets, enough);
            }
            if found.as_ref().is_none_or(|found| places.top < found.top) {
                found = Some(places);
            }
            if done || work > left || clock.is_over() {
                break;
            }
        }
        (found.filter(|found| found.top < best.top), work)
    }

    /// Makes stretches longer, or new ones, where something is above a height.
    fn grow(&mut self, part: &Part, offsets: &[u64], height: u64) {
        let known = self.all.len();
        for (item, offset) in part.items.iter().zip(offsets) {
            if offset.saturating_add(item.size) <= height {
                continue;
            }
            let near = self.all.iter().rposition(|s| {
                let away = s.to - s.from;
                item.lower <= s.to.saturating_add(away) && s.from.saturating_sub(away) <= item.upper
            });
            let at = near.unwrap_or(self.all.len());
            if at == MOST {
                return;
            }
            if near.is_none() {
                self.all.push(Stretch { from: item.lower, to: item.upper, ..Stretch::default() });
            }
            let stretch = &mut self.all[at];
            let more = if at < known && !stretch.placed.is_empty() { (stretch.to - stretch.from) / 2 } else { WIDTH };
            stretch.placed.clear();
            stretch.from = stretch.from.min(item.lower.saturating_sub(more));
            stretch.to = stretch.to.max(item.upper.saturating_add(more)).min(part.sections);
        }
    }

    /// Joins stretches of which items live together; the items of each, or `None` if they are too many.
    fn gather(&mut self, part: &Part) -> Option<Vec<Vec<u32>>> {
        loop {
            self.join_overlapping();
            let mut items = vec![Vec::new(); self.all.len()];
            let mut spans: Vec<(u32, u32)> = self.all.iter().map(|s| (s.from, s.to)).collect();
            for (item, i) in part.items.iter().zip(0..) {
                let k = self.all.partition_point(|s| s.to <= item.lower);
                if self.all.get(k).is_some_and(|s| s.from < item.upper) {
                    items[k].push(i);
                    spans[k] = (spans[k].0.min(item.lower), spans[k].1.max(item.upper));
                }
            }
            if self.share * items.iter().map(Vec::len).sum::<usize>() > part.items.len() {
                return None;
            }
            let mut reached = 0;
            let mut joined = false;
            for (k, &(begin, end)) in spans.iter().enumerate() {
                if k > 0 && begin < reached {
                    self.all[k].from = self.all[k - 1].to - 1;
                    joined = true;
                }
                reached = reached.max(end);
            }
            if !joined {
                return Some(items);
            }
        }
    }

    fn join_overlapping(&mut self) {
        self.all.sort_by_key(|s| (s.from, s.to));
        let mut joined: Vec<Stretch> = Vec::with_capacity(self.all.len());
        for stretch in self.all.drain(..) {
            match joined.last_mut() {
                Some(last) if stretch.from < last.to => {
                    last.to = last.to.max(stretch.to);
                    last.placed.clear();
                }
                _ => joined.push(stretch),
            }
        }
        self.all = joined;
    }

    /// All that is in no stretch, in order of time from each stretch on: to the left and to the right, as far as to where the
    /// load between two is least.
    fn sweep(&self, part: &Part) -> Option<Places> {
        let loads = loads(part);
        let least = |from: u32, to: u32| (from..to).min_by_key(|&s| loads[s as usize]).unwrap_or(to);
        // For each stretch, from where on what comes before it belongs to it.
        let ends = std::iter::once(None).chain(self.all.iter().map(|s| Some(s.to)));
        let begins: Vec<u32> =
            self.all.iter().zip(ends).map(|(s, end)| end.map_or(0, |end| least(end, s.from))).collect();
        let before = |item: &Item| {
            let next = self.all.partition_point(|s| s.from < item.upper);
            begins.get(next).is_some_and(|&begin| begin <= item.lower)
        };
        let mut offsets = vec![u64::MAX; part.items.len()];
        for &(i, offset) in self.all.iter().flat_map(|s| &s.placed) {
            offsets[i as usize] = offset;
        }
        place_around(part, &mut offsets, true, before)?;
        place_around(part, &mut offsets, false, |_| true)?;
        Some(Places::new(part, offsets))
    }
}

/// Places some of what has no offset yet (`u64::MAX`) around all that has one, in order of time or against it.
fn place_around(part: &Part, offsets: &mut [u64], backwards: bool, chosen: impl Fn(&Item) -> bool) -> Option<()> {
    let mut rest = Part { sections: part.sections, base: part.base, bound: part.bound, ..Part::default() };
    for (item, i) in part.items.iter().zip(0..) {
        let offset = offsets[i as usize];
        if offset == u64::MAX && !chosen(item) {
            continue;
        }
        let mut item = Item { id: i, ..*item };
        if backwards {
            (item.lower, item.upper) = (part.sections - item.upper, part.sections - item.lower);
        }
        match offset {
            u64::MAX => rest.items.push(item),
            offset => rest.fixed.push((item, offset)),
        }
    }
    rest.items.sort_unstable_by_key(|i| (i.lower, !i.upper, !i.size, i.id));
    for (item, offset) in rest.items.iter().zip(sweep_around(&rest, u64::MAX)?) {
        offsets[item.id as usize] = offset;
    }
    Some(())
}

impl Stretch {
    /// Places its items as if there were no others, if that was not done; the work done.
    fn place(&mut self, part: &Part, items: &[u32], target: u64, seed: u64, clock: &SolveClock) -> u64 {
        if !self.placed.is_empty() && self.top <= target {
            return 0;
        }
        let buffer = |&i: &u32| {
            let Item { lower, upper, size, .. } = part.items[i as usize];
            let (lower, upper) = (lower.max(self.from).into(), upper.min(self.to).into());
            Buffer { lower, upper, size, alignment: 1, fixed: None }
        };
        let instance = Instance { buffers: items.iter().map(buffer).collect(), period: None, ..Instance::default() };
        self.tries += 1;
        let options =
            SolveOptions { seed: mix(seed ^ self.tries), enough: target - part.base, ..SolveOptions::default() };
        // The part itself has a plan, so that its stretches have.
        let Some(solve) = clock.solver else { return 1 };
        let clock = SolveClock { solver: None, ..*clock };
        let Ok(solution) = solve(&instance, &options, &clock, &mut |_| true) else { return 1 };
        if self.placed.is_empty() || part.base + solution.peak < self.top {
            self.top = part.base + solution.peak;
            self.placed = items.iter().copied().zip(solution.offsets.iter().map(|o| part.base + o)).collect();
        }
        solution.work + ORDER_WORK * items.len() as u64
    }
}

#[cfg(test)]
mod tests;
