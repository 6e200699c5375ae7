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

use crate::clock::{Until, is_seen_over};
use crate::hash::Rng;
use crate::part::{Item, Part};
use terrain::{LevelRun, SearchedStretch, Terrain, Valley};
use waiting::Waiting;

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchOutcome {
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

/// States that failed and are remembered.
const MEMORY: usize = 1 << 14;

/// A node on the way to the one at hand.
#[derive(Clone, Copy, Debug)]
struct PathNode {
    here: SearchedStretch,
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
    /// The sections that its child changed, and those that the failures so far depend on.
    changed: Sections,
    blamed: Sections,
}

/// Sections from the first to the last, as the search counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sections {
    first: u32,
    last: u32,
}

impl Sections {
    fn meets(self, other: Sections) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn with(self, other: Sections) -> Sections {
        Sections { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// A state that failed, by its name, and the sections that its failure depends on.
#[derive(Clone, Copy, Debug, Default)]
struct FailedState {
    key: u128,
    blamed: Sections,
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
    frames: Vec<PathNode>,
    children: Vec<Child>,
    stretches: Vec<SearchedStretch>,
    /// The item before it that is alike in all.
    twin: Vec<u32>,
    /// Of the valley at hand: the largest load from either end of it to each section.
    most_left: Vec<u64>,
    most_right: Vec<u64>,
    changed: Vec<LevelRun>,
    runs: Vec<LevelRun>,
    failed: Vec<FailedState>,
    /// What the last failure depends on.
    conflict: Sections,
    keys: Vec<u128>,
    style: Style,
    rng: Rng,
    pub work: u64,
    /// The work at which the search ends, and the time.
    until: u64,
    pub deadline: Until,
    nodes: usize,
}

impl<'a> Exact<'a> {
    /// Nothing placed. The part has nothing fixed.
    pub fn new(part: &'a Part) -> Exact<'a> {
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
            failed: vec![FailedState::default(); MEMORY],
            conflict: Sections::default(),
            keys,
            style: Style { choice: Choice::Fewest, taste: Taste::Length, noise: 0, seed: 0, fit: false },
            rng,
            work: 0,
            until: 0,
            deadline: Until::default(),
            nodes: 0,
        }
    }

    /// Whether the part fits below `limit` (inclusive), as far as `work` goes.
    pub fn run(&mut self, limit: u64, style: Style, work: u64) -> SearchOutcome {
        if self.limit != limit {
            self.failed.fill(FailedState::default());
        }
        (self.limit, self.style, self.rng) = (limit, style, Rng::new(style.seed));
        self.until = self.work.saturating_add(work);
        self.back_to(0, 0);
        self.frames.clear();
        self.children.clear();
        self.stretches.clear();
        self.terrain.level(self.part.base);
        self.load.fill(0);
        for item in &self.part.items {
            for s in item.lower..item.upper {
                let s = self.terrain.wrap(s) as usize;
                self.load[s] = self.load[s].saturating_add(item.size);
            }
        }
        if self.load.iter().any(|&load| load > 0 && load.saturating_add(self.part.base) > limit) {
            return SearchOutcome::Impossible;
        }
        let items = self.keys.iter().fold(0, |all, key| all ^ key);
        let all = SearchedStretch { first: 0, length: self.around, whole: true, items };
        let nothing = Valley::default();
        self.frames.push(self.frame(all, nothing, 0, 0));
        let all = self.replace(&all, (0, true), [(self.around, self.part.base), (0, 0), (0, 0)]);
        if (0..self.around).any(|s| self.is_closed(s)) {
            self.split(all);
        } else {
            self.survey(&all);
            self.stretches.push(all);
        }
        self.search()
    }

    /// Whether nothing waits at a section any more.
    fn is_closed(&self, section: u32) -> bool {
        self.load[section as usize] == 0
    }

    /// Replaces a run of the skyline by pieces, each as high as said; the stretch as it is now. What changed is in `changed`.
    fn replace(&mut self, here: &SearchedStretch, run: (u32, bool), pieces: [(u32, u64); 3]) -> SearchedStretch {
        let mut changed = std::mem::take(&mut self.changed);
        let here = self.terrain.replace(here, run, &pieces, &mut changed);
        self.changed = changed;
        here
    }

    fn frame(&self, here: SearchedStretch, valley: Valley, side: usize, key: u128) -> PathNode {
        PathNode {
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
            changed: Sections::default(),
            blamed: Sections::default(),
        }
    }

    /// So many sections from one on; all, if they go around the ring.
    fn sections(&self, first: u32, length: u32) -> Sections {
        if first + length > self.around {
            return Sections { first: 0, last: self.around - 1 };
        }
        Sections { first, last: first + length - 1 }
    }

    /// What the children of a valley depend on: its sections and its walls.
    fn around_valley(&self, valley: &Valley) -> Sections {
        if valley.length + 2 > self.around {
            return Sections { first: 0, last: self.around - 1 };
        }
        let before = if valley.at == 0 { self.around - 1 } else { valley.at - 1 };
        self.sections(before, valley.length + 2)
    }

    /// The search itself, with a stack of its own, as it goes as deep as there are items.
    fn search(&mut self) -> SearchOutcome {
        loop {
            let Some(last) = self.frames.len().checked_sub(1) else { return SearchOutcome::Impossible };
            let frame = &mut self.frames[last];
            if (frame.todo as usize) < self.stretches.len() {
                let here = self.stretches[frame.todo as usize];
                frame.todo += 1;
                self.nodes = self.nodes.wrapping_add(1);
                if self.work > self.until || is_seen_over(self.nodes, self.deadline) {
                    return SearchOutcome::OutOfWork;
                }
                if !self.enter(here) && !self.go_back() {
                    return SearchOutcome::Impossible;
                }
            } else {
                // All that this child left is placed: one stretch less to search for the frame below.
                self.stretches.truncate(frame.stretches as usize);
                self.children.truncate(frame.children as usize);
                self.frames.pop();
                if self.frames.is_empty() {
                    return SearchOutcome::Found;
                }
            }
        }
    }

    /// Begins the search of a stretch; false if it has failed.
    fn enter(&mut self, here: SearchedStretch) -> bool {
        let children = self.children.len() as u32;
        let (valley, side, possible, key) = self.choose(&here);
        let slot = key as usize & (self.failed.len() - 1);
        if self.failed[slot].key == key {
            self.conflict = self.failed[slot].blamed;
            return false;
        }
        let blamed = self.around_valley(&valley);
        if !possible {
            self.conflict = blamed;
            self.failed[slot] = FailedState { key, blamed };
            return false;
        }
        self.prepare_valley(&valley);
        self.list_children(&valley, side);
        self.children[children as usize..].sort_unstable_by_key(|c| (std::cmp::Reverse(c.score), c.item));
        let frame = self.frame(here, valley, side, key);
        self.frames.push(PathNode { next: children, children, blamed, ..frame });
        self.next_child()
    }

    /// After a failure: goes on to the next child of the last frame whose child had a part in it; false if there is
    /// none. What a failure does not depend on need not be tried otherwise.
    fn go_back(&mut self) -> bool {
        while let Some(last) = self.frames.len().checked_sub(1) {
            let frame = &mut self.frames[last];
            if frame.changed.meets(self.conflict) {
                frame.blamed = frame.blamed.with(self.conflict);
                if self.next_child() {
                    return true;
                }
            } else {
                self.give_up(self.conflict);
            }
        }
        false
    }

    /// Goes on to the next child of the last frame; without one it has failed, and false is the answer.
    fn next_child(&mut self) -> bool {
        let Some(last) = self.frames.len().checked_sub(1) else { return false };
        let frame = self.frames[last];
        let Some(&Child { item, .. }) = self.children.get(frame.next as usize) else {
            self.give_up(frame.blamed);
            return false;
        };
        self.back_to(frame.terrain, frame.placed as usize);
        self.stretches.truncate(frame.stretches as usize);
        self.frames[last].next += 1;
        self.frames[last].todo = frame.stretches;
        self.frames[last].changed = self.apply(&frame, item);
        true
    }

    /// Ends the last frame, which has failed because of what is in some sections.
    fn give_up(&mut self, blamed: Sections) {
        let Some(frame) = self.frames.pop() else { return };
        self.back_to(frame.terrain, frame.placed as usize);
        self.stretches.truncate(frame.stretches as usize);
        self.children.truncate(frame.children as usize);
        self.conflict = blamed;
        if !self.frames.is_empty() {
            let slot = frame.key as usize & (self.failed.len() - 1);
            self.failed[slot] = FailedState { key: frame.key, blamed };
        }
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

    /// Places an item (or raises the floor) and notes the stretches that are left to search; the sections changed.
    fn apply(&mut self, frame: &PathNode, i: u32) -> Sections {
        let (here, valley) = (frame.here, frame.valley);
        let flat = valley.length == self.around;
        if i == NONE {
            let height = valley.left.min(valley.right);
            let here = self.replace(&here, (valley.at, flat), [(valley.length, height), (0, 0), (0, 0)]);
            self.survey(&here);
            self.stretches.push(here);
            return self.sections(valley.at, valley.length);
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
        let mut here = self.replace(&here, (at, flat), pieces);
        here.items ^= self.keys[i as usize];
        let mut closes = false;
        for s in item.lower..item.upper {
            let s = self.terrain.wrap(s);
            self.load[s as usize] -= item.size;
            closes |= self.is_closed(s);
        }
        self.work += u64::from(item.length());
        if closes {
            self.split(here);
        } else {
            self.survey(&here);
            self.stretches.push(here);
        }
        match frame.side {
            _ if flat => self.sections(0, self.around),
            0 => self.sections(valley.at, before + item.length()),
            _ => self.sections(self.terrain.wrap(item.lower), item.length() + after),
        }
    }

    /// Notes the open stretches of what was one.
    fn split(&mut self, whole: SearchedStretch) {
        self.work += u64::from(whole.length);
        // A ring is walked from a closed section on: then no open stretch contains where the walk begins and ends.
        let closed = (0..whole.length).find(|&k| self.is_closed(self.terrain.wrap(whole.first + k)));
        let first = if whole.whole { self.terrain.wrap(whole.first + closed.unwrap_or(0)) } else { whole.first };
        let mut runs = std::mem::take(&mut self.runs);
        self.terrain.runs(&whole, &mut runs);
        let mut open: Option<u32> = None;
        for k in 0..=whole.length {
            let closed = k == whole.length || self.is_closed(self.terrain.wrap(first + k));
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

    fn part_off(&mut self, first: u32, length: u32, runs: &[LevelRun]) {
        let mut part = SearchedStretch { first, length, whole: false, items: 0 };
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
