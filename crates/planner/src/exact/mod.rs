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
//! A node costs what it changes: children are counted again only in valleys whose items, walls or loads changed.
//!
//! Canonical placement and section-wise tests follow MiniMalloc (Moffitt, ASPLOS 2023); choosing the valley by fewest
//! children, the two-sided branching and the split are ours.

mod branch;
mod style;
mod terrain;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use style::{Choice, Style, Taste};

use crate::hash::Rng;
use crate::problem::{Item, Part};
use terrain::{Run, Stretch, Terrain, Valley};
use waiting::Waiting;

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

#[derive(Clone, Copy, Debug)]
struct Child {
    /// `NONE` to raise the floor.
    item: u32,
    score: u64,
}

const NONE: u32 = u32::MAX;

/// A node on the way to the one at hand.
#[derive(Clone, Copy, Debug)]
struct Frame {
    here: Stretch,
    valley: Valley,
    side: usize,
    key: u128,
    /// Its children in `children`: the next one, and where they begin.
    next: u32,
    children: u32,
    /// The stretches that its child left in `stretches`: the next one to search, and where they begin.
    todo: u32,
    stretches: u32,
    /// What to go back to before the next child.
    terrain: usize,
    placed: u32,
}

/// The search and its state.
pub(crate) struct Exact<'a> {
    part: &'a Part,
    limit: u64,
    /// Sections, with the wall that makes a ring of a line.
    around: u32,
    terrain: Terrain,
    /// Load of the items waiting.
    load: Vec<u64>,
    pub offsets: Vec<u64>,
    waiting: Waiting,
    placed: Vec<u32>,
    frames: Vec<Frame>,
    children: Vec<Child>,
    stretches: Vec<Stretch>,
    /// The item before it that is alike in all.
    twin: Vec<u32>,
    /// Of the valley at hand: the largest load from either end of it to each section.
    most_left: Vec<u64>,
    most_right: Vec<u64>,
    changed: Vec<Run>,
    runs: Vec<Run>,
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
            terrain: Terrain::new(around),
            load: vec![0; m],
            offsets: vec![0; part.items.len()],
            waiting: Waiting::new(part),
            placed: Vec::new(),
            frames: Vec::new(),
            children: Vec::new(),
            stretches: Vec::new(),
            twin,
            most_left: vec![0; m],
            most_right: vec![0; m],
            changed: Vec::new(),
            runs: Vec::new(),
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
        self.back_to(0, 0);
        self.frames.clear();
        self.children.clear();
        self.stretches.clear();
        self.terrain.level(self.part.base);
        self.load.fill(0);
        let loads = crate::bound::loads(self.part);
        self.load[..loads.len()].copy_from_slice(&loads);
        if loads.iter().any(|l| l.saturating_add(self.part.base) > limit) {
            return Outcome::Impossible;
        }
        let items = self.keys.iter().fold(0, |all, key| all ^ key);
        let all = Stretch { first: 0, length: self.around, whole: true, items };
        let nothing = Valley::default();
        self.frames.push(self.frame(all, nothing, 0, 0));
        if self.load.contains(&0) {
            self.split(all);
        } else {
            self.changed.clear();
            self.changed.push(self.terrain.run(0));
            self.survey(&all);
            self.stretches.push(all);
        }
        self.search()
    }

    fn frame(&self, here: Stretch, valley: Valley, side: usize, key: u128) -> Frame {
        Frame {
            here,
            valley,
            side,
            key,
            next: self.children.len() as u32,
            children: self.children.len() as u32,
            todo: self.stretches.len() as u32,
            stretches: self.stretches.len() as u32,
            terrain: self.terrain.mark(),
            placed: self.placed.len() as u32,
        }
    }

    /// The search itself, with a stack of its own, as it goes as deep as there are items.
    fn search(&mut self) -> Outcome {
        loop {
            let Some(last) = self.frames.len().checked_sub(1) else { return Outcome::Impossible };
            let frame = &mut self.frames[last];
            if (frame.todo as usize) < self.stretches.len() {
                let here = self.stretches[frame.todo as usize];
                frame.todo += 1;
                if self.work > self.until {
                    return Outcome::OutOfWork;
                }
                if !self.enter(here) && !self.next_child() {
                    return Outcome::Impossible;
                }
            } else {
                // All that this child left is placed: one stretch less to search for the frame below.
                self.stretches.truncate(frame.stretches as usize);
                self.children.truncate(frame.children as usize);
                self.frames.pop();
                if self.frames.is_empty() {
                    return Outcome::Found;
                }
            }
        }
    }

    /// Begins the search of a stretch; false if it has failed.
    fn enter(&mut self, here: Stretch) -> bool {
        let children = self.children.len() as u32;
        let (chosen, key) = self.choose(&here);
        let slot = key as usize & (self.failed.len() - 1);
        if self.failed[slot] == key {
            return false;
        }
        let Some((valley, side)) = chosen else {
            self.failed[slot] = key;
            return false;
        };
        self.prepare_valley(&valley);
        self.list_children(&valley, side);
        self.children[children as usize..].sort_unstable_by_key(|c| (std::cmp::Reverse(c.score), c.item));
        let frame = self.frame(here, valley, side, key);
        self.frames.push(Frame { next: children, children, ..frame });
        self.next_child()
    }

    /// Goes on to the next child of the last frame, or of the one before if there is none, and so on; false if there
    /// is none at all.
    fn next_child(&mut self) -> bool {
        while let Some(last) = self.frames.len().checked_sub(1) {
            let frame = self.frames[last];
            self.back_to(frame.terrain, frame.placed as usize);
            self.stretches.truncate(frame.stretches as usize);
            if let Some(&Child { item, .. }) = self.children.get(frame.next as usize) {
                self.frames[last].next += 1;
                self.frames[last].todo = frame.stretches;
                self.apply(&frame, item);
                return true;
            }
            self.children.truncate(frame.children as usize);
            self.frames.pop();
            if last > 0 {
                let slot = frame.key as usize & (self.failed.len() - 1);
                self.failed[slot] = frame.key;
            }
        }
        false
    }

    /// Undoes all changes but so many of the terrain, and all placements but so many.
    fn back_to(&mut self, terrain: usize, placed: usize) {
        self.terrain.revert(terrain);
        while self.placed.len() > placed {
            let Some(i) = self.placed.pop() else { break };
            self.waiting.give(i);
            let item = &self.part.items[i as usize];
            for s in item.lower..item.upper {
                let s = self.terrain.wrap(s) as usize;
                self.load[s] += item.size;
            }
        }
    }

    /// Places an item (or raises the floor) and notes the stretches that are left to search.
    fn apply(&mut self, frame: &Frame, i: u32) {
        let (here, valley) = (frame.here, frame.valley);
        let flat = valley.length == self.around;
        let mut changed = std::mem::take(&mut self.changed);
        if i == NONE {
            let raised = (valley.length, valley.left.min(valley.right));
            let here = self.terrain.replace(&here, (valley.at, flat), [raised, (0, 0), (0, 0)], &mut changed);
            self.changed = changed;
            self.survey(&here);
            self.stretches.push(here);
            return;
        }
        let item = self.part.items[i as usize];
        let offset = self.rest(&valley, i);
        let top = offset + item.size;
        self.offsets[i as usize] = offset;
        self.placed.push(i);
        self.waiting.take(i);
        let before = if flat { 0 } else { self.terrain.from(valley.at, item.lower) };
        let after = valley.length - before - item.length();
        let (left, right) = match frame.side {
            _ if flat => (valley.floor, valley.floor),
            0 => (valley.left.min(top), valley.floor),
            _ => (valley.floor, valley.right.min(top)),
        };
        let at = if flat { self.terrain.wrap(item.lower) } else { valley.at };
        let pieces = [(before, left), (item.length(), top), (after, right)];
        let mut here = self.terrain.replace(&here, (at, flat), pieces, &mut changed);
        self.changed = changed;
        here.items ^= self.keys[i as usize];
        let mut closes = false;
        for s in item.lower..item.upper {
            let s = self.terrain.wrap(s) as usize;
            self.load[s] -= item.size;
            closes |= self.load[s] == 0;
        }
        self.work += u64::from(item.length());
        if closes {
            self.split(here);
        } else {
            self.survey(&here);
            self.stretches.push(here);
        }
    }

    /// Notes the open stretches of what was one.
    fn split(&mut self, whole: Stretch) {
        self.work += u64::from(whole.length);
        // A ring is walked from a closed section on: then no open stretch contains where the walk begins and ends.
        let closed = (0..whole.length).find(|&k| self.load[self.terrain.wrap(whole.first + k) as usize] == 0);
        let first = if whole.whole { self.terrain.wrap(whole.first + closed.unwrap_or(0)) } else { whole.first };
        let mut runs = std::mem::take(&mut self.runs);
        self.terrain.runs(&whole, &mut runs);
        let mut open: Option<u32> = None;
        for k in 0..=whole.length {
            let closed = k == whole.length || self.load[self.terrain.wrap(first + k) as usize] == 0;
            match open {
                None if !closed => open = Some(k),
                Some(from) if closed => {
                    open = None;
                    self.part_off(self.terrain.wrap(first + from), k - from, &runs);
                }
                _ => {}
            }
        }
        self.runs = runs;
    }

    fn part_off(&mut self, first: u32, length: u32, runs: &[Run]) {
        let mut part = Stretch { first, length, whole: false, items: 0 };
        let mut items = 0;
        self.each_within(first, length, |i| items ^= self.keys[i as usize]);
        part.items = items;
        let mut changed = std::mem::take(&mut self.changed);
        self.terrain.cut(&part, runs, &mut changed);
        self.changed = changed;
        self.survey(&part);
        self.stretches.push(part);
    }
}
