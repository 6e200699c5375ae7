//! Exact search: can a part be placed below a given limit? Depth first over skylines, complete.
//!
//! At a node, every local valley of the skyline (not only the lowest) is a place where something must happen next:
//! either some waiting item rests on its floor, or none does. If none does, whatever comes over the valley rests on
//! one of its walls, so the floor may be raised to the lower wall. If some do, one of them is the leftmost: it is the
//! child, and what lies left of it is raised at once (to the wall or to the child's top, whichever is lower), which
//! both prunes and breaks the symmetry between orders of placement. The same holds from the right. So a node may
//! branch at any valley, from either side: it takes the one with the fewest children that pass the test below, and
//! fails at once when one has none.
//!
//! Test: at no section may the skyline and the load still waiting exceed the limit. Where nothing waits any more a
//! section is closed, and the stretches between closed sections are searched apart: when one of them fails, the
//! others need not be tried again. States that failed are remembered by hash.
//!
//! Canonical placement and section-wise tests follow MiniMalloc (Moffitt, ASPLOS 2023); choosing the valley by fewest
//! children, the two-sided branching and the split are ours.

use crate::hash::{Rng, mix};
use crate::problem::{Item, Part};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Placed; the offsets are in the search.
    Found,
    /// Proven impossible.
    Impossible,
    /// Not known.
    OutOfWork,
}

/// Which valley a node branches at. No rule is best everywhere, so restarts take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one with the fewest children, then the lowest.
    Fewest,
    /// The lowest of those that have few children: counts are compared by their logarithm.
    Few,
    /// The lowest, unless one leaves no choice.
    Lowest,
}

/// Which children are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taste {
    /// The longest.
    Length,
    /// The largest in time and size.
    Area,
    /// The largest.
    Size,
    /// None: as the noise has it.
    Any,
}

/// How a search goes about it; whatever the style, it is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub choice: Choice,
    pub taste: Taste,
    /// Scores are multiplied by a random factor from 1 to 1 + noise/16.
    pub noise: u64,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    /// `NONE` to raise the floor.
    item: u32,
    score: u64,
}

const NONE: u32 = u32::MAX;

/// A run of open sections, searched apart, with the items waiting there.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: u32,
    length: u32,
    /// The waiting items, in `waiting`.
    items: (u32, u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Valley {
    /// Position from the stretch's first section, and length.
    at: u32,
    length: u32,
    floor: u64,
    left: u64,
    right: u64,
    most: u64,
    /// Children from the left and from the right.
    count: [u32; 2],
}

/// The search and its state.
pub(crate) struct Exact<'a> {
    part: &'a Part,
    limit: u64,
    /// Sections, with the wall that makes a ring of a line.
    around: u32,
    height: Vec<u64>,
    /// Load of the items waiting.
    load: Vec<u64>,
    pub offsets: Vec<u64>,
    waiting: Vec<u32>,
    children: Vec<Child>,
    undo: Vec<(u32, u64)>,
    placed: Vec<u32>,
    is_placed: Vec<bool>,
    /// The item before it that is alike in all.
    twin: Vec<u32>,
    /// Of the node at hand: valley at each section and the largest load from either end of it.
    valley_at: Vec<u32>,
    most_left: Vec<u64>,
    most_right: Vec<u64>,
    valleys: Vec<Valley>,
    failed: Vec<u128>,
    keys: Vec<u128>,
    style: Style,
    rng: Rng,
    pub work: u64,
    until: u64,
}

impl<'a> Exact<'a> {
    /// Nothing placed. The part must have no fixed items.
    pub fn new(part: &'a Part, memory: usize) -> Exact<'a> {
        let around = part.sections + u32::from(!part.ring);
        let m = around as usize;
        let mut rng = Rng::new(0);
        let keys = part.items.iter().map(|_| u128::from(rng.next()) << 64 | u128::from(rng.next())).collect();
        // Alike items are neighbours in the part's order.
        let alike = |i: usize| i > 0 && Item { id: 0, ..part.items[i - 1] } == Item { id: 0, ..part.items[i] };
        let twin = (0..part.items.len()).map(|i| if alike(i) { i as u32 - 1 } else { NONE }).collect();
        Exact {
            part,
            limit: 0,
            around,
            height: vec![0; m],
            load: vec![0; m],
            offsets: vec![0; part.items.len()],
            waiting: Vec::new(),
            children: Vec::new(),
            undo: Vec::new(),
            placed: Vec::new(),
            is_placed: vec![false; part.items.len()],
            twin,
            valley_at: vec![NONE; m],
            most_left: vec![0; m],
            most_right: vec![0; m],
            valleys: Vec::new(),
            failed: vec![0; memory.next_power_of_two()],
            keys,
            style: Style { choice: Choice::Fewest, taste: Taste::Length, noise: 0, seed: 0 },
            rng,
            work: 0,
            until: 0,
        }
    }

    /// Whether the part fits below `limit` (inclusive), as far as `work` goes.
    pub fn run(&mut self, limit: u64, style: Style, work: u64) -> Outcome {
        if self.limit != limit {
            self.failed.fill(0);
        }
        (self.limit, self.style, self.rng) = (limit, style, Rng::new(style.seed));
        self.until = self.work.saturating_add(work);
        self.height.fill(self.part.base);
        self.load.fill(0);
        let loads = crate::bound::loads(self.part);
        self.load[..loads.len()].copy_from_slice(&loads);
        if loads.iter().any(|l| l.saturating_add(self.part.base) > limit) {
            return Outcome::Impossible;
        }
        self.waiting.clear();
        self.children.clear();
        self.undo.clear();
        self.placed.clear();
        self.is_placed.fill(false);
        self.waiting.extend(0..self.part.items.len() as u32);
        let all = Stretch { first: 0, length: self.around, items: (0, self.waiting.len() as u32) };
        self.split(all)
    }

    fn wrap(&self, section: u32) -> u32 {
        if section >= self.around { section - self.around } else { section }
    }

    /// Searches the open stretches of what was one.
    fn split(&mut self, whole: Stretch) -> Outcome {
        // Start behind a closed section, if there is one: then no open stretch wraps around within `whole`.
        let closed = (0..whole.length).find(|&k| self.load[self.wrap(whole.first + k) as usize] == 0);
        let Some(closed) = closed else { return self.node(whole) };
        let ring = whole.length == self.around;
        let (first, length) =
            if ring { (self.wrap(whole.first + closed), whole.length) } else { (whole.first, whole.length) };
        let base = self.waiting.len();
        let mut open: Option<u32> = None;
        for k in 0..=length {
            let s = self.wrap(first + k % self.around);
            let closed = k == length || self.load[s as usize] == 0;
            match open {
                None if !closed => open = Some(k),
                Some(from) if closed => {
                    open = None;
                    let items = self.waiting.len() as u32;
                    let at = self.wrap(first + from);
                    for w in whole.items.0..whole.items.1 {
                        let i = self.waiting[w as usize];
                        if self.from(at, self.part.items[i as usize].lower) < k - from {
                            self.waiting.push(i);
                        }
                    }
                    let part = Stretch { first: at, length: k - from, items: (items, self.waiting.len() as u32) };
                    let outcome = self.node(part);
                    if outcome != Outcome::Found {
                        self.waiting.truncate(base);
                        return outcome;
                    }
                    self.waiting.truncate(base);
                }
                _ => {}
            }
        }
        Outcome::Found
    }

    /// Sections from `first` on to `section`.
    fn from(&self, first: u32, section: u32) -> u32 {
        if section >= first { section - first } else { section + self.around - first }
    }

    fn node(&mut self, here: Stretch) -> Outcome {
        self.work += u64::from(here.length) + u64::from(here.items.1 - here.items.0);
        if self.work > self.until {
            return Outcome::OutOfWork;
        }
        let key = self.key(here);
        let slot = key as usize & (self.failed.len() - 1);
        if self.failed[slot] == key {
            return Outcome::Impossible;
        }
        let (children, undo, waiting) = (self.children.len(), self.undo.len(), self.waiting.len());
        let placed = self.placed.len();
        let Some((valley, side)) = self.choose(here) else {
            self.failed[slot] = key;
            return Outcome::Impossible;
        };
        let end = self.children.len();
        self.children[children..end].sort_unstable_by_key(|c| (std::cmp::Reverse(c.score), c.item));
        let mut outcome = Outcome::Impossible;
        for c in children..end {
            let Child { item, .. } = self.children[c];
            let below = self.apply(here, valley, side, item);
            outcome = self.split(below);
            if outcome == Outcome::Found {
                return outcome;
            }
            self.revert(undo, placed);
            self.waiting.truncate(waiting);
            if outcome == Outcome::OutOfWork {
                break;
            }
        }
        self.children.truncate(children);
        if outcome == Outcome::Impossible {
            self.failed[slot] = key;
        }
        outcome
    }

    /// Names a state: the items waiting and the skyline over the stretch.
    fn key(&self, here: Stretch) -> u128 {
        let mut key = 0u128;
        for w in here.items.0..here.items.1 {
            key ^= self.keys[self.waiting[w as usize] as usize];
        }
        let (mut low, mut high) = (key as u64, (key >> 64) as u64);
        for k in 0..here.length {
            let h = self.height[self.wrap(here.first + k) as usize];
            low = mix(low ^ h);
            high = mix(high.rotate_left(23) ^ h ^ 0x9e37_79b9_7f4a_7c15);
        }
        (u128::from(high) << 64 | u128::from(low)).max(1)
    }

    /// Finds the valleys of a stretch.
    fn survey(&mut self, here: Stretch) {
        self.valleys.clear();
        let ring = here.length == self.around;
        let h = |s: &Self, k: u32| s.height[s.wrap(here.first + k) as usize];
        // In a ring begin at a rise or a fall, so that no valley is seen in two pieces.
        let start = if ring {
            (0..here.length).find(|&k| h(self, k) != h(self, (k + here.length - 1) % here.length))
        } else {
            Some(0)
        };
        let flat = start.is_none();
        let start = start.unwrap_or(0);
        let mut k = 0;
        let mut before = if ring && !flat { h(self, (start + here.length - 1) % here.length) } else { u64::MAX };
        while k < here.length {
            let at = k;
            let floor = h(self, (start + k) % here.length);
            let mut most = 0;
            while k < here.length && h(self, (start + k) % here.length) == floor {
                let s = self.wrap(here.first + (start + k) % here.length) as usize;
                most = most.max(self.load[s]);
                self.most_left[s] = most;
                self.valley_at[s] = NONE;
                k += 1;
            }
            let right = if k < here.length {
                h(self, (start + k) % here.length)
            } else if ring && !flat {
                h(self, start)
            } else {
                u64::MAX
            };
            if before > floor && right > floor {
                let v = self.valleys.len() as u32;
                let mut most = 0;
                for k in (at..k).rev() {
                    let s = self.wrap(here.first + (start + k) % here.length) as usize;
                    most = most.max(self.load[s]);
                    self.most_right[s] = most;
                    self.valley_at[s] = v;
                }
                let raise = before.min(right);
                let count = u32::from(raise.saturating_add(most) <= self.limit);
                let first = self.wrap(here.first + (start + at) % here.length);
                self.valleys.push(Valley {
                    at: first,
                    length: k - at,
                    floor,
                    left: before,
                    right,
                    most,
                    count: [count; 2],
                });
            }
            before = floor;
        }
    }

    /// Whether an item may be the outermost that rests on a valley's floor, seen from a side.
    fn fits(&self, valley: &Valley, side: usize, i: u32) -> bool {
        let item = &self.part.items[i as usize];
        let top = self.rest(valley, i).saturating_add(item.size);
        if top > self.limit {
            return false;
        }
        if valley.length == self.around {
            return true;
        }
        let before = self.from(valley.at, item.lower);
        if side == 0 {
            if before == 0 {
                return true;
            }
            let s = self.wrap(valley.at + before - 1) as usize;
            return valley.left.min(top).saturating_add(self.most_left[s]) <= self.limit;
        }
        let after = before + item.length();
        if after == valley.length {
            return true;
        }
        let s = self.wrap(valley.at + after) as usize;
        valley.right.min(top).saturating_add(self.most_right[s]) <= self.limit
    }

    /// Where an item lies that rests on a valley's floor.
    fn rest(&self, valley: &Valley, i: u32) -> u64 {
        let align = self.part.items[i as usize].align;
        if align == 1 { valley.floor } else { valley.floor.checked_next_multiple_of(align).unwrap_or(u64::MAX) }
    }

    /// Of items alike in all, the first is placed first.
    fn waits_for_twin(&self, i: u32) -> bool {
        self.twin[i as usize] != NONE && !self.is_placed[self.twin[i as usize] as usize]
    }

    /// The valley in which an item could rest.
    fn home(&self, i: u32) -> Option<u32> {
        let item = &self.part.items[i as usize];
        let v = self.valley_at[item.lower as usize];
        if v == NONE {
            return None;
        }
        let valley = &self.valleys[v as usize];
        let inside = valley.length == self.around || self.from(valley.at, item.lower) + item.length() <= valley.length;
        if !inside {
            return None;
        }
        if item.align > 1 {
            let offset = self.rest(valley, i);
            let lost = (item.lower..item.upper).any(|s| {
                let s = self.wrap(s) as usize;
                offset.saturating_add(self.load[s]) > self.limit
            });
            if lost {
                return None;
            }
        }
        Some(v)
    }

    /// The valley and side with the fewest children, which are pushed; `None` if one has none at all.
    fn choose(&mut self, here: Stretch) -> Option<(Valley, usize)> {
        self.survey(here);
        for w in here.items.0..here.items.1 {
            let i = self.waiting[w as usize];
            if let Some(v) = self.home(i)
                && !self.waits_for_twin(i)
            {
                let valley = self.valleys[v as usize];
                for side in 0..2 {
                    if self.fits(&valley, side, i) {
                        self.valleys[v as usize].count[side] += 1;
                    }
                }
            }
        }
        let mut best = (u32::MAX, u64::MAX, 0, 0);
        for (v, valley) in self.valleys.iter().enumerate() {
            for (side, &count) in valley.count.iter().enumerate() {
                let class = match self.style.choice {
                    Choice::Fewest => count,
                    Choice::Few => count.checked_ilog2().map_or(0, |c| c + 1),
                    Choice::Lowest => count.min(2),
                };
                best = best.min((class, valley.floor, v, side));
            }
        }
        let (class, _, v, side) = best;
        if class == 0 {
            return None;
        }
        let valley = self.valleys[v];
        for w in here.items.0..here.items.1 {
            let i = self.waiting[w as usize];
            if self.home(i) == Some(v as u32) && !self.waits_for_twin(i) && self.fits(&valley, side, i) {
                let score = self.score(i);
                self.children.push(Child { item: i, score });
            }
        }
        if valley.left.min(valley.right).saturating_add(valley.most) <= self.limit {
            self.children.push(Child { item: NONE, score: 0 });
        }
        Some((valley, side))
    }

    fn score(&mut self, i: u32) -> u64 {
        let item = &self.part.items[i as usize];
        let (length, size) = (u64::from(item.length()), item.size);
        let value = match self.style.taste {
            Taste::Length => length << 32 | size.min(u64::from(u32::MAX)),
            Taste::Area => length.saturating_mul(size),
            Taste::Size => size,
            Taste::Any => 1 << 30,
        };
        if self.style.noise == 0 {
            return value.saturating_add(1);
        }
        let factor = 16 + self.rng.next() % (self.style.noise + 1);
        (value / 16).saturating_mul(factor).saturating_add(1)
    }

    /// Places an item (or raises the floor); the stretch that is left to search.
    fn apply(&mut self, here: Stretch, valley: Valley, side: usize, i: u32) -> Stretch {
        let from = self.waiting.len() as u32;
        if i == NONE {
            self.raise(valley.at, valley.length, valley.left.min(valley.right));
        } else {
            let item = self.part.items[i as usize];
            let offset = self.rest(&valley, i);
            let top = offset + item.size;
            self.offsets[i as usize] = offset;
            self.placed.push(i);
            self.is_placed[i as usize] = true;
            if valley.length < self.around {
                let before = self.from(valley.at, item.lower);
                let after = before + item.length();
                if side == 0 {
                    self.raise(valley.at, before, valley.left.min(top));
                } else {
                    self.raise(self.wrap(valley.at + after), valley.length - after, valley.right.min(top));
                }
            }
            self.raise(item.lower, item.length(), top);
            for s in item.lower..item.upper {
                let s = self.wrap(s) as usize;
                self.load[s] -= item.size;
            }
        }
        for w in here.items.0..here.items.1 {
            let other = self.waiting[w as usize];
            if other != i {
                self.waiting.push(other);
            }
        }
        Stretch { items: (from, self.waiting.len() as u32), ..here }
    }

    fn raise(&mut self, first: u32, length: u32, height: u64) {
        for k in 0..length {
            let s = self.wrap(first + k);
            self.undo.push((s, self.height[s as usize]));
            self.height[s as usize] = height;
        }
    }

    fn revert(&mut self, to: usize, placed: usize) {
        while self.undo.len() > to {
            if let Some((s, height)) = self.undo.pop() {
                self.height[s as usize] = height;
            }
        }
        // Also those of stretches that were searched to the end before another one failed.
        while self.placed.len() > placed {
            let Some(i) = self.placed.pop() else { break };
            self.is_placed[i as usize] = false;
            let item = self.part.items[i as usize];
            for s in item.lower..item.upper {
                let s = self.wrap(s) as usize;
                self.load[s] += item.size;
            }
        }
    }
}
