//! Best fit over a skyline: fill the lowest valley with the best item that lives within it, or raise its floor.
//!
//! The skyline is the height reached at each section. At each step the lowest stretch of equal height (the valley)
//! gets the best-ranked item whose lifetime lies within it; when there is none, the floor is raised to the lower of
//! the two walls, and what is below is lost. This is the best-fit heuristic of strip packing (Burke, Kendall and
//! Whitwell 2004), which Sekiyama et al. (2018) brought to offline allocation with "longest lifetime first" as the
//! rule of choice; on training steps, whose lifetimes nest, it very often wastes nothing at all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bound::loads;
use crate::clock::{Until, is_seen_over};
use crate::finder::{Finder, NONE, TreeLayout};
use crate::part::Part;
use crate::reach::Reach;

/// The skyline of one run: a ring of stretches of equal height. A part that is no ring becomes one by an infinitely
/// high wall after its last section.
pub(crate) struct Skyline {
    /// By first section of a stretch: the first section of the one after, and of the one before.
    next: Vec<u32>,
    prev: Vec<u32>,
    height: Vec<u64>,
    /// Whether a stretch begins here.
    begins: Vec<bool>,
    /// (height, first section) of stretches, some outdated.
    lowest: BinaryHeap<Reverse<(u64, u32)>>,
    /// Length of the ring, with the wall.
    around: u32,
}

impl Skyline {
    fn new(part: &Part) -> Skyline {
        let around = part.sections + u32::from(!part.ring);
        let m = around as usize;
        let mut skyline = Skyline {
            next: vec![0; m],
            prev: vec![0; m],
            height: vec![part.base; m],
            begins: vec![false; m],
            lowest: BinaryHeap::from([Reverse((part.base, 0))]),
            around,
        };
        skyline.begins[0] = true;
        if !part.ring {
            let wall = part.sections;
            (skyline.next[0], skyline.prev[0]) = (wall, wall);
            skyline.height[wall as usize] = u64::MAX;
            skyline.begins[wall as usize] = true;
        }
        skyline
    }

    /// First section and height of the lowest stretch, leftmost among equals.
    fn valley(&mut self) -> (u32, u64) {
        // Every stretch but the wall has an entry.
        while let Some(&Reverse((height, at))) = self.lowest.peek() {
            if self.begins[at as usize] && self.height[at as usize] == height {
                return (at, height);
            }
            self.lowest.pop();
        }
        (0, u64::MAX)
    }

    /// One past the last section of a stretch; beyond the ring's length where it wraps around.
    fn end(&self, at: u32) -> u32 {
        let next = self.next[at as usize];
        if next > at { next } else { next + self.around }
    }

    /// Whether one stretch is the whole ring.
    fn flat(&self, at: u32) -> bool {
        self.next[at as usize] == at
    }

    /// The lower of the two walls of a valley.
    fn wall(&self, at: u32) -> u64 {
        self.height[self.prev[at as usize] as usize].min(self.height[self.next[at as usize] as usize])
    }

    /// Sets the height of `[from, to)`, a range within the stretch that begins at `at`.
    fn set(&mut self, at: u32, from: u32, to: u32, height: u64) {
        let low = self.height[at as usize];
        let first = if self.flat(at) { self.turn(at, from) } else { self.cut(at, from) };
        if first != at {
            self.lowest.push(Reverse((low, at)));
        }
        if to - from < self.around {
            let rest = self.cut(first, to);
            if self.height[rest as usize] == low {
                self.lowest.push(Reverse((low, rest)));
            }
        }
        self.height[first as usize] = height;
        let first = self.join(first);
        let after = self.next[first as usize];
        self.join(after);
        self.lowest.push(Reverse((height, first)));
    }

    /// Makes a stretch begin at `section`, within or at the end of the one that begins at `at`.
    fn cut(&mut self, at: u32, section: u32) -> u32 {
        let section = if section >= self.around { section - self.around } else { section };
        let s = section as usize;
        if !self.begins[s] {
            let after = self.next[at as usize];
            (self.prev[s], self.next[s], self.height[s], self.begins[s]) = (at, after, self.height[at as usize], true);
            self.next[at as usize] = section;
            self.prev[after as usize] = section;
        }
        section
    }

    /// Makes the only stretch of a flat ring begin elsewhere.
    fn turn(&mut self, at: u32, section: u32) -> u32 {
        let section = if section >= self.around { section - self.around } else { section };
        let s = section as usize;
        self.begins[at as usize] = false;
        (self.prev[s], self.next[s], self.height[s], self.begins[s]) =
            (section, section, self.height[at as usize], true);
        section
    }

    /// Joins a stretch with the one before it if their heights are equal; where the result begins.
    fn join(&mut self, at: u32) -> u32 {
        let (before, after) = (self.prev[at as usize], self.next[at as usize]);
        if before == at || self.height[before as usize] != self.height[at as usize] {
            return at;
        }
        self.begins[at as usize] = false;
        self.next[before as usize] = after;
        self.prev[after as usize] = before;
        before
    }
}

/// Places all items of a part that has no fixed ones; `order` lists the items, best first. Offsets by item, or `None`
/// as soon as it is certain that a top reaches `limit`, more than `most` work is done, or the time is up; and the work.
/// O(n log n) when lifetimes nest, O(n sqrt n) at worst.
pub(crate) fn best_fit(
    part: &Part,
    layout: &TreeLayout,
    order: &[u32],
    (limit, most): (u64, u64),
    deadline: Until,
) -> (Option<Vec<u64>>, u64) {
    let n = part.items.len();
    let mut rank = vec![0; n];
    for (r, &i) in order.iter().enumerate() {
        rank[i as usize] = r as u32;
    }
    let mut finder = Finder::new(layout, &part.items, &rank);
    let mut skyline = Skyline::new(part);
    let mut offsets = vec![0; n];
    let m = part.sections;
    // Without a limit it runs to its end.
    let mut reach = (limit < u64::MAX).then(|| {
        let all_placed: Vec<u64> = loads(part).iter().map(|load| part.base.saturating_add(*load)).collect();
        Reach::new(&all_placed)
    });
    let mut is_too_high = |from: u32, to: u32, lost: u64| {
        reach.as_mut().is_some_and(|reach| {
            let (from, to) = if from < m { (from, to) } else { (from - m, to - m) };
            reach.lose(from, to.min(m), lost);
            reach.lose(0, to.saturating_sub(m), lost);
            reach.highest() >= limit
        })
    };
    let (mut left, mut changes) = (n, 0);
    while left > 0 {
        changes += 1;
        let (at, floor) = skyline.valley();
        let end = skyline.end(at);
        // Where all is level, any lifetime fits, and in a ring it may begin anywhere.
        let (from, to) = if skyline.flat(at) { (0, 2 * m) } else { (at, end) };
        let mut best = finder.best_within(from, to, NONE);
        let mut shift = 0;
        if part.ring && from > 0 && to > m {
            let wrapped = finder.best_within(0, to - m, best);
            if wrapped < best {
                (best, shift) = (wrapped, m);
            }
        }
        if best == NONE {
            let wall = skyline.wall(at);
            if is_too_high(at, end, wall - floor) {
                return (None, finder.work + changes);
            }
            skyline.set(at, at, end, wall);
            continue;
        }
        let i = order[best as usize] as usize;
        let item = &part.items[i];
        let offset = floor.checked_next_multiple_of(item.align).unwrap_or(u64::MAX);
        let top = offset.saturating_add(item.size);
        let raised = offset > floor && is_too_high(item.lower + shift, item.upper + shift, offset - floor);
        let is_late = is_seen_over(left, deadline);
        if top >= limit || raised || is_late || finder.work + changes > most {
            return (None, finder.work + changes);
        }
        offsets[i] = offset;
        finder.remove(i as u32);
        left -= 1;
        skyline.set(at, item.lower + shift, item.upper + shift, top);
    }
    (Some(offsets), finder.work + changes)
}

#[cfg(test)]
mod tests;
