//! Improvement of a solution by ejections: what sticks out above a limit is taken out; then one after the other is put
//! between others where least is in the way, what is in the way is taken out in exchange, and so on until all is placed
//! (ejection chains; Nagata and Bräysy 2009 for vehicles). What was often without a place becomes dear.
//!
//! An item has no address here, but an order among those it lives together with: who is below, who above. So each knows
//! its lowest place, all below it pushed down, and its highest, all above it pushed up. An item between two others needs
//! no hole: the others make way, as far as their ways go.

mod stacking;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{Until, WORK_PER_ITEM, is_over};
use crate::hash::{Rng, mix};
use crate::lifetimes::Lifetimes;
use crate::part::{Item, Part, Places};
use stacking::Stacking;

/// Work of one call at least.
const STEP_WORK: u64 = 400_000;

/// Exchanges without success after which a limit is given up: so many, and so many more for each item without a place.
const PATIENCE: u64 = 150;
const PATIENCE_PER_ITEM: u64 = 25;

/// A limit is this share of the gap below the top: at first, at most and at least. Then it begins anew with all as dear as at first,
/// by area or each the same (worst of 75 pipelines with 60 million units: 1.011; with each the same always 1.015).
const SHARES: [u64; 3] = [8, 4, 32];

/// Neighbours kept, at most; what is found after that is found again each time.
const KEPT: usize = 1 << 22;

/// The way of what has no place.
const NOWHERE: u64 = u64::MAX;

/// What it costs to take out what cannot be: all items together cost no more than there are numbers for.
const FIXED: i64 = i64::MAX / u32::MAX as i64;

/// A solution at work, and how it is changed.
pub(crate) struct Ejections<'a> {
    part: &'a Part,
    lifetimes: Lifetimes,
    stacking: Stacking<'a>,
    near: Vec<Vec<u32>>,
    kept: usize,
    rng: Rng,
    /// The top of the solution that the work began with, and the limit aimed at.
    top: u64,
    limit: u64,
    /// One in so many of the gap is aimed at.
    share: u64,
    /// By item, fixed ones last.
    size: Vec<u64>,
    /// How far at least from the ground, and from the limit.
    way: [Vec<u64>; 2],
    /// The same as they will be, while it is found out.
    fresh: [Vec<u64>; 2],
    /// What an item that is being placed asks of its neighbours.
    least: Vec<u64>,
    queued: Vec<bool>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// Items without a place, and how often each stood in for another.
    out: Vec<u32>,
    blame: Vec<i64>,
    /// The side of a square as large as an item, and whether it costs so much: in turn with all costing the same.
    worth: Vec<i64>,
    by_area: bool,
    /// What they are worth together, now and at least so far, and exchanges since then.
    area: u128,
    least_area: u128,
    stale: u64,
    work: u64,
}

impl<'a> Ejections<'a> {
    /// For a part; nothing is known of it yet.
    pub fn new(part: &'a Part, seed: u64) -> Ejections<'a> {
        let size: Vec<u64> = part.items.iter().chain(part.fixed.iter().map(|f| &f.0)).map(|i| i.size).collect();
        let n = size.len();
        let area = |i: &Item| u128::from(i.size) * u128::from(i.length());
        Ejections {
            part,
            lifetimes: Lifetimes::new(part),
            stacking: Stacking::new(part),
            near: vec![vec![]; n],
            kept: 0,
            rng: Rng::new(mix(seed)),
            top: 0,
            limit: 0,
            share: SHARES[0],
            size,
            way: [vec![0; n], vec![0; n]],
            fresh: [vec![0; n], vec![0; n]],
            least: vec![0; n],
            queued: vec![false; n],
            queue: BinaryHeap::new(),
            out: vec![],
            blame: vec![0; n],
            worth: part.items.iter().map(|i| area(i).isqrt() as i64).collect(),
            by_area: true,
            area: 0,
            least_area: 0,
            stale: 0,
            work: 0,
        }
    }

    /// Goes on for a while from the best places known, or from where it was if they are the same; a better solution, if
    /// there is one, and the work done.
    pub fn improve(&mut self, best: &Places, target: u64, left: u64, until: Until) -> (Option<Places>, u64) {
        if best.top <= target {
            return (None, 0);
        }
        self.work = 0;
        if best.top != self.top {
            self.begin(best, target);
        }
        let items = self.part.items.len();
        let mut found: Option<Places> = None;
        let round = (WORK_PER_ITEM * items as u64).max(STEP_WORK);
        while self.work < round.min(left) && !is_over(until) {
            if self.out.is_empty() {
                let places = Places::new(self.part, self.way[0][..items].to_vec());
                self.share = (self.share / 2).max(SHARES[1]);
                self.begin(&places, target);
                let done = places.top <= target;
                found = Some(places);
                if done {
                    break;
                }
            } else if self.stale > PATIENCE + PATIENCE_PER_ITEM * self.out.len() as u64 {
                self.share *= 2;
                if self.share > SHARES[2] {
                    self.share = SHARES[0];
                    self.blame.fill(0);
                    self.by_area = !self.by_area;
                }
                self.begin(found.as_ref().unwrap_or(best), target);
            } else {
                self.step();
            }
        }
        (found, self.work)
    }

    /// Starts over from a solution, with a new limit.
    fn begin(&mut self, from: &Places, target: u64) {
        let part = self.part;
        self.top = from.top;
        let gap = from.top - target.min(from.top);
        self.limit = from.top - gap.div_ceil(self.share).max(1).min(from.top);
        self.out.clear();
        for (i, offset) in from.offsets.iter().copied().chain(part.fixed.iter().map(|f| f.1)).enumerate() {
            let end = offset.saturating_add(self.size[i]);
            if end <= self.limit && end > part.base {
                self.set(i as u32, [offset, self.limit - end]);
            } else {
                self.set(i as u32, [NOWHERE; 2]);
                self.out.extend((i < part.items.len()).then_some(i as u32));
            }
        }
        let mut order: Vec<u32> = (0..self.size.len() as u32).filter(|&i| self.is_placed(i)).collect();
        order.sort_unstable_by_key(|&i| self.way[0][i as usize]);
        self.work += order.len() as u64;
        self.stacking.build(&order);
        // Without it, tiling:300:21 ended at 1.090 instead of 1.024.
        for side in 0..2 {
            order.iter().for_each(|&i| self.ask(side, i));
            self.settle(side);
        }
        self.stale = 0;
        self.area = self.out.iter().map(|&i| self.area(i)).sum();
        self.least_area = self.area;
        self.work += part.items.len() as u64;
    }

    fn item(&self, i: u32) -> &'a Item {
        self.stacking.item(i)
    }

    fn is_fixed(&self, i: u32) -> bool {
        i as usize >= self.part.items.len()
    }

    fn area(&self, i: u32) -> u128 {
        u128::from(self.size[i as usize]) * u128::from(self.item(i).length())
    }

    /// What it costs to take an item out: the more, the larger it is, in turn, and the more often it had no place.
    fn cost(&self, i: u32) -> i64 {
        if self.is_fixed(i) {
            return FIXED;
        }
        let worth = if self.by_area { self.worth[i as usize] } else { 1 };
        worth.saturating_mul(1 + self.blame[i as usize]).min(FIXED - 1)
    }

    fn set(&mut self, i: u32, way: [u64; 2]) {
        for (side, way) in way.into_iter().enumerate() {
            (self.way[side][i as usize], self.fresh[side][i as usize]) = (way, way);
        }
    }

    fn is_placed(&self, i: u32) -> bool {
        self.way[0][i as usize] != NOWHERE
    }

    fn end(&self, side: usize, i: u32) -> u64 {
        self.way[side][i as usize] + self.size[i as usize]
    }

    /// All that lives together with an item; to be given back.
    fn neighbours(&mut self, i: u32) -> Vec<u32> {
        let mut near = std::mem::take(&mut self.near[i as usize]);
        if near.is_empty() {
            let item = self.item(i);
            self.work += self.lifetimes.meeting(item.lower, item.upper, self.part.sections, |j| near.push(j));
            near.sort_unstable();
            near.dedup();
            near.retain(|&j| j != i);
            self.kept += near.len();
        }
        self.work += near.len() as u64;
        near
    }

    fn give_back(&mut self, i: u32, near: Vec<u32>) {
        if self.kept < KEPT {
            self.near[i as usize] = near;
        }
    }

    /// Where the ways of one side begin.
    fn ground(&self, side: usize) -> u64 {
        if side == 0 { self.part.base } else { 0 }
    }

    /// The least way of an item that is no less than `least` and where it is aligned.
    fn rest(&self, side: usize, i: u32, least: u64) -> u64 {
        let Item { size, align, .. } = *self.item(i);
        if side == 0 {
            return least.next_multiple_of(align);
        }
        let most = self.limit.saturating_sub(size).saturating_sub(least);
        self.limit - size - most / align * align
    }

    fn ask(&mut self, side: usize, i: u32) {
        if !self.queued[i as usize] && !self.is_fixed(i) && self.is_placed(i) {
            self.queued[i as usize] = true;
            self.queue.push(Reverse((self.way[side][i as usize], i)));
        }
    }

    /// Brings what was asked, and what follows from it, to its least way on one side.
    fn settle(&mut self, side: usize) {
        let mut changed = vec![];
        let way = std::mem::take(&mut self.way[side]);
        let mut fresh = std::mem::take(&mut self.fresh[side]);
        while let Some(Reverse((old, i))) = self.queue.pop() {
            self.queued[i as usize] = false;
            let size = self.size[i as usize];
            let mut least = self.ground(side).max(self.least[i as usize]);
            let under = self.stacking.next(side, i);
            under.iter().for_each(|&j| least = least.max(fresh[j as usize] + self.size[j as usize]));
            self.work += 1 + under.len() as u64;
            let new = self.rest(side, i, least);
            if new != old {
                fresh[i as usize] = new;
                changed.push(i);
                let (end, old_end) = (new + size, old + size);
                let over = self.stacking.next(1 - side, i);
                self.work += over.len() as u64;
                for &j in over {
                    // It is pushed, or rested here.
                    let other = way[j as usize];
                    let follows = end > other || (old_end > other || other - old_end < self.item(j).align);
                    if follows && !self.queued[j as usize] && !self.is_fixed(j) {
                        self.queued[j as usize] = true;
                        self.queue.push(Reverse((other, j)));
                    }
                }
            }
        }
        (self.way[side], self.fresh[side]) = (way, fresh);
        for i in changed {
            self.way[side][i as usize] = self.fresh[side][i as usize];
        }
    }

    /// Places an item that has no place; what is in its way has none then.
    fn step(&mut self) {
        let which = self.rng.next() as usize % self.out.len();
        let i = self.out[which];
        let near = self.neighbours(i);
        match self.cheapest(i, &near) {
            Some((at, free)) => {
                self.out.swap_remove(which);
                if !free {
                    self.blame[i as usize] += 1;
                    self.stale += 1;
                }
                self.place(i, at, &near);
                if self.area < self.least_area {
                    (self.least_area, self.stale) = (self.area, 0);
                }
            }
            None => self.stale += 1,
        }
        self.give_back(i, near);
    }

    /// Places an item about an address.
    fn place(&mut self, i: u32, at: u64, near: &[u32]) {
        let size = self.size[i as usize];
        let (mut gone, mut below, mut above) = (vec![], vec![], vec![]);
        for &j in near.iter().filter(|&&j| self.is_placed(j)) {
            if self.end(0, j) <= at {
                below.push((self.end(0, j), j));
            } else if self.end(1, j) <= self.limit - at - size {
                above.push((self.end(1, j), j));
            } else {
                gone.push((j, [self.end(0, j), self.end(1, j)]));
            }
        }
        let mut freed = vec![];
        for &(j, end) in &gone {
            self.set(j, [NOWHERE; 2]);
            self.out.push(j);
            self.area += self.area(j);
            let (next, work) = self.stacking.remove(j);
            self.work += work;
            freed.push((next, end));
        }
        self.area -= self.area(i);
        let next = [below, above].map(|side| self.stacking.first(i, side));
        let mut ways = [0; 2];
        for side in 0..2 {
            let (under, over) = (&next[side], &next[1 - side]);
            let least = under.iter().map(|&j| self.end(side, j)).max().unwrap_or(0);
            ways[side] = self.rest(side, i, least.max(self.ground(side)));
            for &j in over {
                self.least[j as usize] = ways[side] + size;
                if self.way[side][j as usize] < ways[side] + size {
                    self.ask(side, j);
                }
            }
            for (next, end) in &freed {
                for &k in &next[1 - side] {
                    let way = self.way[side][k as usize];
                    if way >= end[side] && way - end[side] < self.item(k).align {
                        self.ask(side, k);
                    }
                }
            }
            self.settle(side);
            over.iter().for_each(|&j| self.least[j as usize] = 0);
        }
        self.work += self.stacking.insert(i, next);
        self.set(i, ways);
        for side in 0..2 {
            self.ask(side, i);
            self.settle(side);
        }
    }

    /// Where what is in the way of an item costs least, and whether nothing is; `None` if what is fixed always is.
    fn cheapest(&mut self, i: u32, near: &[u32]) -> Option<(u64, bool)> {
        let Item { size, align, .. } = *self.item(i);
        let lowest = self.part.base.next_multiple_of(align);
        let highest = self.limit.checked_sub(size)? / align * align;
        // From where on the cost of what is in the way grows, and falls.
        let mut changes = Vec::with_capacity(2 * near.len());
        for &j in near.iter().filter(|&&j| self.is_placed(j)) {
            // Where it is, however low and high it goes.
            let (from, to) = (self.limit - self.end(1, j), self.end(0, j));
            if from < to {
                let cost = self.cost(j);
                let first = from.checked_sub(size).map_or(0, |last_free| last_free / align * align + align);
                changes.push((first, cost));
                changes.push((to.next_multiple_of(align), -cost));
            }
        }
        changes.sort_unstable_by_key(|change| change.0);
        self.work += changes.len() as u64;
        let (mut best, mut ties) = (None, 0);
        let mut offer = |at: u64, cost: i64| {
            if !(lowest..=highest).contains(&at) {
                return;
            }
            let least = best.map_or(FIXED, |(_, least)| least);
            ties = if cost < least { 1 } else { ties + u64::from(cost == least) };
            if cost < least || (cost == least && self.rng.next().is_multiple_of(ties)) {
                best = Some((at, cost));
            }
        };
        let mut cost = 0;
        let mut changes = changes.into_iter().peekable();
        // The lowest and highest of each stretch of one cost.
        let mut from = lowest;
        while let Some((at, mut change)) = changes.next() {
            while let Some((_, more)) = changes.next_if(|next| next.0 == at) {
                change += more;
            }
            if at > lowest && change != 0 {
                offer(from, cost);
                if at - align > from {
                    offer(at - align, cost);
                }
                from = at;
            }
            cost += change;
        }
        offer(from, cost);
        if highest > from {
            offer(highest, cost);
        }
        best.filter(|&(_, cost)| cost < FIXED).map(|(at, cost)| (at, cost == 0))
    }
}

#[cfg(test)]
mod tests;
