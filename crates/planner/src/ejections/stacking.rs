//! Which items lie directly on which. Wherever two follow each other in a section, each knows the other; there are few such pairs,
//! and many that live together.

use std::collections::{BTreeMap, BinaryHeap};

use crate::part::{Item, Part};

/// What lies directly below each item, and directly above: all pairs that follow each other in a section, and some others.
pub(super) struct Stacking<'a> {
    part: &'a Part,
    next: [Vec<Vec<u32>>; 2],
    /// Scratch: by section of a lifetime, itself or a later one if it is covered.
    skip: Vec<u32>,
    /// Scratch: what comes above an item.
    marked: Vec<bool>,
}

impl<'a> Stacking<'a> {
    /// Nothing is placed.
    pub fn new(part: &'a Part) -> Stacking<'a> {
        let n = part.items.len() + part.fixed.len();
        Stacking { part, next: [vec![vec![]; n], vec![vec![]; n]], skip: vec![], marked: vec![false; n] }
    }

    /// An item, fixed ones last.
    pub fn item(&self, i: u32) -> &'a Item {
        let n = self.part.items.len();
        if (i as usize) < n { &self.part.items[i as usize] } else { &self.part.fixed[i as usize - n].0 }
    }

    /// What lies directly on one side of an item: 0 below, 1 above.
    pub fn next(&self, side: usize, i: u32) -> &[u32] {
        &self.next[side][i as usize]
    }

    /// Anew, from items in order of their addresses.
    pub fn build(&mut self, order: &[u32]) {
        self.next.iter_mut().flatten().for_each(Vec::clear);
        // The highest item so far, by the first section of a run, and the run's end.
        let mut runs: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for &i in order {
            let (Item { lower, upper, .. }, m) = (*self.item(i), self.part.sections);
            for (from, to) in [(lower, upper.min(m)), (0, upper.saturating_sub(m))].into_iter().filter(|(f, t)| f < t) {
                let first = runs.range(..=from).next_back().map_or(from, |(&begin, _)| begin);
                let under: Vec<_> = runs.range(first..to).map(|(&begin, &run)| (begin, run)).collect();
                for (begin, (end, j)) in under.into_iter().filter(|(_, run)| run.0 > from) {
                    runs.remove(&begin);
                    if begin < from {
                        runs.insert(begin, (from, j));
                    }
                    if end > to {
                        runs.insert(to, (end, j));
                    }
                    self.link(j, i);
                }
                runs.insert(from, (to, i));
            }
        }
    }

    /// Sections of an item's lifetime, from its first on, during which another lives.
    fn common(&self, i: u32, j: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (i, j, m) = (*self.item(i), *self.item(j), i64::from(self.part.sections));
        let shifts = if self.part.ring { &[0, -1, 1][..] } else { &[0] };
        shifts.iter().filter_map(move |shift| {
            let away = i64::from(j.lower) + shift * m - i64::from(i.lower);
            let (from, to) = (away.max(0), (away + i64::from(j.length())).min(i64::from(i.length())));
            (from < to).then_some((from as u32, to as u32))
        })
    }

    /// Of some items on one side, each with its end, those that come first in some section of an item's lifetime.
    pub fn first(&mut self, i: u32, ends: Vec<(u64, u32)>) -> Vec<u32> {
        let length = self.item(i).length();
        let mut skip = std::mem::take(&mut self.skip);
        skip.clear();
        skip.extend(0..=length);
        let mut left = length;
        let mut first = vec![];
        let mut nearest = BinaryHeap::from(ends);
        while let Some((_, j)) = nearest.pop() {
            let before = left;
            for (from, to) in self.common(i, j) {
                let mut at = uncovered(&mut skip, from);
                while at < to {
                    skip[at as usize] = at + 1;
                    left -= 1;
                    at = uncovered(&mut skip, at + 1);
                }
            }
            if left < before {
                first.push(j);
            }
            if left == 0 {
                break;
            }
        }
        self.skip = skip;
        first
    }

    fn link(&mut self, below: u32, above: u32) {
        if !self.next[1][below as usize].contains(&above) {
            self.next[1][below as usize].push(above);
            self.next[0][above as usize].push(below);
        }
    }

    /// Puts an item between those directly below and above it; the work done.
    pub fn insert(&mut self, i: u32, [below, above]: [Vec<u32>; 2]) -> u64 {
        let mut work = below.len() + above.len();
        above.iter().for_each(|&a| self.marked[a as usize] = true);
        for &b in &below {
            let mut over = std::mem::take(&mut self.next[1][b as usize]);
            work += over.len();
            over.retain(|&a| {
                let parted = self.marked[a as usize] && self.is_between(i, b, a);
                if parted {
                    self.next[0][a as usize].retain(|&k| k != b);
                }
                !parted
            });
            over.push(i);
            self.next[1][b as usize] = over;
        }
        for &a in &above {
            self.marked[a as usize] = false;
            self.next[0][a as usize].push(i);
        }
        self.next[0][i as usize] = below;
        self.next[1][i as usize] = above;
        work as u64
    }

    /// Whether an item lives wherever two others do.
    fn is_between(&self, i: u32, b: u32, a: u32) -> bool {
        self.common(b, a).all(|(from, to)| {
            self.common(b, i).map(|(f, t)| t.min(to).saturating_sub(f.max(from))).sum::<u32>() == to - from
        })
    }

    /// Takes an item out; those directly below and above it, and the work done.
    pub fn remove(&mut self, i: u32) -> ([Vec<u32>; 2], u64) {
        let [below, above] = [0, 1].map(|side| std::mem::take(&mut self.next[side][i as usize]));
        below.iter().for_each(|&b| self.next[1][b as usize].retain(|&k| k != i));
        above.iter().for_each(|&a| self.next[0][a as usize].retain(|&k| k != i));
        for &b in &below {
            for &a in &above {
                if self.common(b, a).next().is_some() {
                    self.link(b, a);
                }
            }
        }
        let work = below.len() + above.len() + below.len() * above.len() / 4;
        ([below, above], work as u64)
    }
}

/// The first section from one on that is not covered.
fn uncovered(skip: &mut [u32], mut at: u32) -> u32 {
    while skip[at as usize] != at {
        let next = skip[at as usize];
        skip[at as usize] = skip[next as usize];
        at = next;
    }
    at
}
