//! Improvement of a solution by windows: what sticks out above a limit is taken out, and for one after the other a few
//! of its neighbours in time and address are freed and placed together with it by the exact search, with all others as
//! walls (large neighbourhood search, Shaw 1998). Each window costs what is in it, whatever the size of the part.

use std::cmp::Reverse;

use crate::clock::{Until, is_over};
use crate::exact::{Choice, Exact, Outcome, Style, Taste, Walls};
use crate::greedy::Places;
use crate::hash::{Rng, mix};
use crate::lifetimes::Lifetimes;
use crate::problem::{Item, Part};

/// Work of one call: at least and at most, and for each item of the part.
const ROUND: [u64; 2] = [400_000, 20_000_000];
const ROUND_PER_ITEM: u64 = 1000;

/// Items of a window: so many at least, and less than so many powers of two more. Large ones succeed more often, small
/// ones cost less; of those tried on tight instances, all sizes up to 250 had their share.
const LEAST_ITEMS: u64 = 6;
const POWERS: std::ops::Range<u64> = 3..9;

/// Work allowed for each item of a window.
const WORK_PER_ITEM: u64 = 700;

/// Windows without success after which a limit is given up: so many, and so many more for each item without a place.
const PATIENCE: u64 = 60;
const PATIENCE_PER_ITEM: u64 = 12;

/// The first limit is this share of the gap below the top.
const FIRST_SHARE: u64 = 4;

/// The smallest share of the gap.
const LEAST_SHARE: u64 = 1 << 10;

/// States of a window that are remembered.
const MEMORY: usize = 1 << 10;

/// A solution at work, and how it is changed.
pub(crate) struct Windows<'a> {
    part: &'a Part,
    lifetimes: Lifetimes,
    rng: Rng,
    offsets: Vec<u64>,
    /// The top of the solution that the work began with, and the limit aimed at.
    top: u64,
    limit: u64,
    /// One in so many of the gap is aimed at.
    share: u64,
    /// Items without a place, and how often each could not be placed.
    out: Vec<u32>,
    is_out: Vec<bool>,
    blame: Vec<u32>,
    stale: u64,
    best_area: u128,
}

impl<'a> Windows<'a> {
    /// For a part; nothing is known of it yet.
    pub fn new(part: &'a Part, seed: u64) -> Windows<'a> {
        let n = part.items.len();
        Windows {
            part,
            lifetimes: Lifetimes::new(part),
            rng: Rng::new(mix(seed)),
            offsets: vec![0; n],
            top: 0,
            limit: 0,
            share: FIRST_SHARE,
            out: vec![],
            is_out: vec![false; n],
            blame: vec![0; n],
            stale: 0,
            best_area: 0,
        }
    }

    /// Goes on for a while from the best places known, or from where it was if they are the same; a better solution, if
    /// there is one, and the work done.
    pub fn improve(&mut self, best: &Places, target: u64, left: u64, until: Until) -> (Option<Places>, u64) {
        if best.top <= target {
            return (None, 0);
        }
        let mut work = 0;
        if best.top != self.top {
            work += self.begin(best, target);
        }
        let mut found = None;
        let round = (ROUND_PER_ITEM * self.part.items.len() as u64).clamp(ROUND[0], ROUND[1]);
        while work < round.min(left) && !is_over(until) {
            if self.out.is_empty() {
                let places = Places::new(self.part, self.offsets.clone());
                work += self.offsets.len() as u64;
                let done = places.top <= target;
                self.share = (self.share / 2).max(2);
                work += self.begin(&places, target);
                found = Some(places);
                if done {
                    break;
                }
                continue;
            }
            let patience = PATIENCE + PATIENCE_PER_ITEM * self.out.len() as u64;
            if self.stale > patience {
                self.share = (self.share * 2).min(LEAST_SHARE);
                let from = found.as_ref().unwrap_or(best).clone();
                work += self.begin(&from, target);
            }
            work += self.window();
        }
        (found, work)
    }

    /// Starts over from a solution, with a new limit.
    fn begin(&mut self, from: &Places, target: u64) -> u64 {
        self.offsets.copy_from_slice(&from.offsets);
        self.top = from.top;
        let gap = from.top - target.min(from.top);
        self.limit = from.top - gap.div_ceil(self.share).max(1).min(from.top);
        self.out.clear();
        for (i, item) in self.part.items.iter().enumerate() {
            self.is_out[i] = self.offsets[i].saturating_add(item.size) > self.limit;
            if self.is_out[i] {
                self.out.push(i as u32);
            }
        }
        self.stale = 0;
        self.best_area = self.area_out();
        self.part.items.len() as u64
    }

    fn area(&self, i: u32) -> u128 {
        let item = &self.part.items[i as usize];
        u128::from(item.size) * u128::from(item.length())
    }

    fn area_out(&self) -> u128 {
        self.out.iter().map(|&i| self.area(i)).sum()
    }

    /// One window around an item without a place; the work done.
    fn window(&mut self) -> u64 {
        let which = self.rng.next() as usize % self.out.len();
        let item = self.out[which];
        let (freed, mut work) = self.choose(item);
        let kind = self.rng.next() % 8;
        // Now and then the neighbours alone, placed otherwise.
        let with = kind != 0;
        let (success, spent) = self.place(&freed, with.then_some(item));
        work += spent;
        if !with {
            return work;
        }
        if success {
            self.out.swap_remove(which);
            self.is_out[item as usize] = false;
            self.note();
            return work;
        }
        self.stale += 1;
        self.blame[item as usize] += 1;
        // In exchange for another that is smaller, or was less in the way so far.
        let worth = |w: &Self, i: u32| w.area(i) * u128::from(1 + w.blame[i as usize]);
        let own = worth(self, item);
        let others: Vec<u32> = freed.iter().copied().filter(|&i| worth(self, i) < own).collect();
        if others.is_empty() {
            return work;
        }
        let other = others[self.rng.next() as usize % others.len()];
        let rest: Vec<u32> = freed.iter().copied().filter(|&i| i != other).collect();
        self.is_out[other as usize] = true;
        let (success, spent) = self.place(&rest, Some(item));
        if success {
            self.out[which] = other;
            self.is_out[item as usize] = false;
            self.note();
        } else {
            self.is_out[other as usize] = false;
        }
        work + spent
    }

    /// Notes whether less is without a place than ever before.
    fn note(&mut self) {
        let area = self.area_out();
        if area < self.best_area {
            (self.best_area, self.stale) = (area, 0);
        }
    }

    /// Neighbours of an item to be freed, and the work of finding them.
    fn choose(&mut self, item: u32) -> (Vec<u32>, u64) {
        let m = self.part.sections;
        let own = self.part.items[item as usize];
        let power = POWERS.start + self.rng.next() % (POWERS.end - POWERS.start);
        let wanted = LEAST_ITEMS + self.rng.next() % (1 << power);
        let longer = 1 << (self.rng.next() % 4);
        let spread = 1 << (self.rng.next() % 4);
        let mut work = 0;
        // Longer and longer windows around it, at random more to the left or to the right.
        let mut wider = 0;
        let mut freed = Vec::new();
        loop {
            let left = (self.rng.next() % u64::from(wider + 1)) as u32;
            let (from, to) = self.stretch(own, left, wider - left);
            freed.clear();
            // What lives far longer than the window is wide would make it as wide as that.
            let longest = u64::from(to - from) * longer;
            work += self.lifetimes.meeting(from, to, m, |i| {
                let free = (i as usize) < self.part.items.len() && i != item && !self.is_out[i as usize];
                if free && u64::from(self.part.items[i as usize].length()) <= longest {
                    freed.push(i);
                }
            });
            freed.sort_unstable();
            freed.dedup();
            if freed.len() as u64 >= wanted * spread || to - from >= m {
                break;
            }
            wider = (wider + 1 + wider / 2).min(m);
        }
        if freed.len() as u64 > wanted {
            // Those about an address.
            let at = self.part.base + self.rng.next() % (self.limit - self.part.base).max(1);
            let at = if self.rng.next().is_multiple_of(3) { self.limit } else { at };
            let middle = |i: u32| self.offsets[i as usize] + self.part.items[i as usize].size / 2;
            freed.sort_unstable_by_key(|&i| (middle(i).abs_diff(at), i));
            work += freed.len() as u64;
            freed.truncate(wanted as usize);
        }
        (freed, work)
    }

    /// The sections of an item and so many more; in a ring the end may be beyond the last.
    fn stretch(&self, item: Item, left: u32, right: u32) -> (u32, u32) {
        let m = self.part.sections;
        if !self.part.ring {
            return (item.lower.saturating_sub(left), (item.upper.saturating_add(right)).min(m));
        }
        let length = item.length().saturating_add(left).saturating_add(right).min(m);
        let from = (u64::from(item.lower) + u64::from(m) - u64::from(left % m)) % u64::from(m);
        (from as u32, from as u32 + length)
    }

    /// Places freed items, and one more, among all others.
    fn place(&mut self, freed: &[u32], more: Option<u32>) -> (bool, u64) {
        let mut chosen: Vec<u32> = freed.iter().copied().chain(more).collect();
        chosen.sort_unstable();
        let Some(window) = Window::new(self.part, &chosen) else { return (false, 1) };
        let mut work = chosen.len() as u64 * 4;
        let walls = window.walls(self, &chosen, &mut work);
        let mut exact = Exact::among(&window.part, walls, MEMORY);
        let style = self.style();
        let outcome = exact.run(self.limit, style, WORK_PER_ITEM * chosen.len() as u64);
        work += exact.work;
        if outcome == Outcome::Found {
            for (item, &offset) in window.part.items.iter().zip(&exact.offsets) {
                self.offsets[item.id as usize] = offset;
            }
        }
        (outcome == Outcome::Found, work)
    }

    fn style(&mut self) -> Style {
        let seed = self.rng.next();
        let choice = [Choice::Fewest, Choice::Few, Choice::Lowest][(seed % 3) as usize];
        Style {
            choice,
            taste: [Taste::Length, Taste::Area, Taste::Size, Taste::Any][(seed / 3 % 4) as usize],
            noise: [1, 4, 16][(seed / 12 % 3) as usize],
            seed,
            fit: true,
        }
    }
}

/// A few items as a part of their own, whose sections begin and end where they do.
struct Window {
    part: Part,
    /// First section of the window, and where each of its sections begins from there on.
    from: u32,
    begins: Vec<u32>,
    /// All sections of a ring, or those from `from` on.
    whole: bool,
}

impl Window {
    /// Of items in order; `None` of none, or if they go around a ring, but not the whole of it.
    fn new(part: &Part, chosen: &[u32]) -> Option<Window> {
        if chosen.is_empty() {
            return None;
        }
        let m = part.sections;
        let items = || chosen.iter().map(|&i| part.items[i as usize]);
        // In a ring the widest pause between lifetimes is left out; where there is none, all is taken.
        let (from, whole) = if part.ring { pause(&mut items().collect::<Vec<_>>(), m) } else { (0, false) };
        let away = |s: u32| if s >= from { s - from } else { s + m - from };
        let mut begins: Vec<u32> = Vec::with_capacity(2 * chosen.len() + 1);
        for item in items() {
            let lower = away(item.lower);
            begins.extend([lower, if whole { (lower + item.length()) % m } else { lower + item.length() }]);
        }
        if whole {
            begins.push(0);
        }
        begins.sort_unstable();
        begins.dedup();
        let count = begins.len() as u32 - u32::from(!whole);
        let at = |s: u32| begins.partition_point(|&b| b < s) as u32;
        let make = |&i: &u32| {
            let item = part.items[i as usize];
            let lower = away(item.lower);
            let end = lower + item.length();
            let upper = if whole && end >= m { count + at(end - m) } else { at(end) };
            Item { lower: at(lower), upper, id: i, ..item }
        };
        let mut items: Vec<Item> = chosen.iter().map(make).collect();
        // Where nothing of a ring ends or begins but the window itself.
        if whole && items.iter().any(|i| i.length() > count) {
            return None;
        }
        items.sort_unstable_by_key(|i| (i.lower, Reverse((i.upper, i.size)), i.align, i.id));
        let aligned = items.iter().any(|i| i.align > 1);
        let window = Part { items, sections: count, ring: whole, base: part.base, aligned, ..Part::default() };
        Some(Window { part: window, from, begins, whole })
    }

    /// All that keeps its place, where the window is.
    fn walls(&self, all: &Windows, chosen: &[u32], work: &mut u64) -> Walls {
        let m = all.part.sections;
        let count = self.part.sections as usize;
        let mut sections = vec![Vec::new(); count];
        let least = self.part.items.iter().map(|i| i.size).min().unwrap_or(1);
        let first = self.begins[0];
        let end = if self.whole { m } else { self.begins[count] };
        let mut add = |from: u32, to: u32, range: (u64, u64)| {
            // From and to, from where the window begins.
            let first = self.begins.partition_point(|&b| b <= from).saturating_sub(1);
            let last = self.begins.partition_point(|&b| b < to).min(count);
            for ranges in &mut sections[first..last] {
                ranges.push(range);
            }
            *work += 1 + (last - first) as u64;
        };
        let mut put = |item: &Item, offset: u64| {
            let range = (offset, offset.saturating_add(item.size));
            let lower = if item.lower >= self.from { item.lower - self.from } else { item.lower + m - self.from };
            let upper = lower + item.length();
            for (from, to) in [(lower, upper), (0, upper.saturating_sub(m))] {
                let (from, to) = (from.max(first), to.min(end));
                if from < to {
                    add(from, to, range);
                }
            }
        };
        let looked = all.lifetimes.meeting(self.from + first, self.from + end, m, |i| {
            if (i as usize) < all.part.items.len() {
                if !all.is_out[i as usize] && chosen.binary_search(&i).is_err() {
                    put(&all.part.items[i as usize], all.offsets[i as usize]);
                }
            } else {
                let (item, offset) = &all.part.fixed[i as usize - all.part.items.len()];
                put(item, *offset);
            }
        });
        *work += looked;
        *work += sections.iter().map(|ranges| ranges.len() as u64).sum::<u64>();
        let around = self.part.sections + u32::from(!self.part.ring);
        Walls::new(&mut sections, around, (self.part.base, least))
    }
}

/// Where in a ring a window begins: after the longest pause between some lifetimes; or, where there is none, at the
/// first section, and then the window is the whole ring.
fn pause(items: &mut [Item], m: u32) -> (u32, bool) {
    items.sort_unstable_by_key(|i| i.lower);
    // How far what began so far reaches, what began before the first section included.
    let mut reach = items.iter().map(|i| i.upper.saturating_sub(m)).max().unwrap_or(0);
    let mut longest = (0, 0);
    for item in items.iter() {
        if item.lower > reach {
            longest = longest.max((item.lower - reach, item.lower));
        }
        reach = reach.max(item.upper);
    }
    let first = items.first().map_or(0, |i| i.lower);
    let wrapped = items.iter().map(|i| i.upper.saturating_sub(m)).max().unwrap_or(0);
    if reach < m && wrapped == 0 {
        longest = longest.max((m - reach + first, first));
    }
    if longest.0 == 0 { (0, true) } else { (longest.1, false) }
}
