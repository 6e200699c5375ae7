//! Blocks: items that keep their places to each other, seen from outside as one item.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::holes::Hole;
use super::wheels::{Wheel, merge_wheels};
use crate::bound::loads;
use crate::clock::{Until, is_over};
use crate::hash::Rng;
use crate::part::Part;

/// No block.
const NONE: u32 = u32::MAX;

/// Blocks of one key that are looked at, at most.
const LOOKED_AT: usize = 16;

/// Sections that are looked at in the time of one unit of work, and how many of them a look for blocks of a key is worth.
const LOOKED_AT_FOR_A_UNIT: u64 = 32;
const KEY: u64 = 128;

/// Blocks after which one looks at the clock.
const BETWEEN_LOOKS: u32 = 1024;

/// What a block is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Item(u32),
    /// Nothing: what is likely to be missing.
    Hole,
    /// The second on top of the first.
    Stack(u32, u32),
    /// Both on one floor, the second after the first.
    Row(u32, u32),
    /// One of the wheels.
    Wheel(u32),
}

impl Made {
    /// The two that it is made of.
    pub fn pair(self) -> Option<(u32, u32)> {
        match self {
            Made::Item(_) | Made::Hole | Made::Wheel(_) => None,
            Made::Stack(a, b) | Made::Row(a, b) => Some((a, b)),
        }
    }
}

/// Where what goes with a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// On top of it, or below.
    Same,
    After,
    Before,
}

/// The lifetime and the size that hold all that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub lower: u32,
    /// One past the last section; in a ring it may exceed their number.
    pub upper: u32,
    pub size: u64,
    pub made: Made,
}

impl Block {
    pub fn length(&self) -> u32 {
        self.upper - self.lower
    }

    pub fn area(&self) -> f64 {
        f64::from(self.length()) * self.size as f64
    }
}

/// Blocks by two of their lifetime's ends and size.
#[derive(Default)]
struct Index(FxHashMap<(u32, u64), Vec<u32>>);

impl Index {
    fn add(&mut self, key: (u32, u64), block: u32) {
        self.0.entry(key).or_default().push(block);
    }

    /// The newest whole one, but none of some.
    fn find(&mut self, key: (u32, u64), whole: &[bool], but: [u32; 2]) -> Option<u32> {
        let list = self.0.get_mut(&key)?;
        while list.last().is_some_and(|&block| !whole[block as usize]) {
            list.pop();
        }
        list.iter().rev().take(LOOKED_AT).copied().find(|block| whole[*block as usize] && !but.contains(block))
    }
}

/// How far merging had come.
#[derive(Clone)]
pub(super) struct Snapshot {
    whole: Vec<u32>,
    all: usize,
    room: Vec<u64>,
}

/// The blocks of a part.
pub(super) struct Blocks {
    pub all: Vec<Block>,
    pub wheels: Vec<Wheel>,
    /// Whether wheels are merged.
    pub merges_wheels: bool,
    /// Whether it is in no other.
    whole: Vec<bool>,
    /// Those that are, and some that were.
    alive: Vec<u32>,
    /// How many are.
    pub count: usize,
    sections: u32,
    ring: bool,
    /// What may still be lost, by section.
    room: Vec<u64>,
    /// Sections and keys looked at so far.
    looked_at: u64,
    same: Index,
    starts: Index,
    ends: Index,
    until: Until,
    /// Merges tried so far, and whether the time is up.
    tried: u32,
    pub late: bool,
    /// Whole blocks of which it is not known whether they go with another.
    new: VecDeque<u32>,
}

impl Blocks {
    /// Each item a block; so much may be lost that no load exceeds `limit`. O(n).
    pub fn new(part: &Part, limit: u64, until: Until) -> Blocks {
        let room = loads(part).into_iter().map(|load| limit.saturating_sub(part.base).saturating_sub(load)).collect();
        let mut blocks = Blocks {
            all: Vec::with_capacity(2 * part.items.len()),
            whole: Vec::with_capacity(2 * part.items.len()),
            wheels: Vec::new(),
            merges_wheels: !part.ring,
            alive: Vec::new(),
            count: 0,
            sections: part.sections,
            ring: part.ring,
            room,
            looked_at: 0,
            same: Index::default(),
            starts: Index::default(),
            ends: Index::default(),
            until,
            tried: 0,
            late: false,
            new: VecDeque::new(),
        };
        for (item, k) in part.items.iter().zip(0..) {
            blocks.add(Block { lower: item.lower, upper: item.upper, size: item.size, made: Made::Item(k) });
        }
        blocks
    }

    /// By how much what is missing grows where a section begins.
    pub fn change(&self, section: u32) -> i64 {
        let at = |s: Option<u32>| s.and_then(|s| self.room.get(s as usize)).map_or(0, |&room| room as i64);
        at(Some(section)) - at(section.checked_sub(1))
    }

    /// The work of looking at keys and sections so far.
    pub fn work(&self) -> u64 {
        self.looked_at / LOOKED_AT_FOR_A_UNIT
    }

    /// What may still be lost, by section.
    pub fn room(&self) -> &[u64] {
        &self.room
    }

    /// Adds what is likely to be missing, if there is room.
    pub fn add_hole(&mut self, (lower, upper, size): Hole) -> Option<u32> {
        let block = Block { lower, upper, size, made: Made::Hole };
        self.lose(&[(lower, upper - lower, size)]).then(|| self.add(block))
    }

    /// What is whole, and what may still be lost.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot { whole: self.whole(), all: self.all.len(), room: self.room.clone() }
    }

    /// As it was when a snapshot was taken.
    pub fn restore(&mut self, from: &Snapshot) {
        self.all.truncate(from.all);
        self.whole.clear();
        self.whole.resize(from.all, false);
        self.alive.clone_from(&from.whole);
        self.room.copy_from_slice(&from.room);
        self.count = from.whole.len();
        self.new.clear();
        (self.same, self.starts, self.ends) = Default::default();
        for &id in &from.whole {
            self.whole[id as usize] = true;
            self.index(id);
        }
    }

    /// Takes a whole block apart, so many levels of it; holes that come out are gone.
    pub fn open(&mut self, block: u32, levels: u32, rng: &mut Rng) {
        self.remove(block);
        let mut rest = vec![(block, levels)];
        while let Some((id, levels)) = rest.pop() {
            let b = self.all[id as usize];
            if self.is_hole(id) {
                (b.lower..b.upper).for_each(|s| self.room[s as usize] += b.size);
                continue;
            }
            if let Made::Wheel(wheel) = b.made
                && levels > 0
            {
                rest.extend(self.wheels[wheel as usize].map(|k| (k, levels - 1)));
                continue;
            }
            match b.made.pair().filter(|_| levels > 0) {
                Some((x, y)) => {
                    self.gain(b, x, y);
                    rest.extend([(x, levels - 1), (y, levels - 1)]);
                    let (last, other) = (rest.len() - 1, rng.next() as usize % rest.len());
                    rest.swap(last, other);
                }
                None => {
                    self.add(b);
                }
            }
        }
    }

    /// Gives back what was lost when two became one.
    fn gain(&mut self, whole: Block, x: u32, y: u32) {
        let (x, y) = (self.all[x as usize], self.all[y as usize]);
        for s in whole.lower..whole.upper {
            let s = self.wrap(s);
            let height = |b: Block| if self.distance(b.lower, s) < b.length() { b.size } else { 0 };
            let inside =
                if let Made::Stack(..) = whole.made { height(x) + height(y) } else { height(x).max(height(y)) };
            self.room[s as usize] += whole.size - inside;
        }
    }

    /// Takes away the holes that went with nothing.
    pub fn drop_holes(&mut self) {
        for block in self.whole() {
            let b = self.all[block as usize];
            if self.is_hole(block) {
                self.remove(block);
                (b.lower..b.upper).for_each(|s| self.room[s as usize] += b.size);
            }
        }
    }

    /// Whether there is nothing in it.
    fn is_hole(&self, block: u32) -> bool {
        match self.all[block as usize].made {
            Made::Hole => true,
            Made::Item(_) | Made::Wheel(_) => false,
            Made::Stack(a, b) | Made::Row(a, b) => self.is_hole(a) && self.is_hole(b),
        }
    }

    /// Whether the time is up.
    pub fn is_late(&mut self) -> bool {
        self.late = self.late || is_over(self.until);
        self.late
    }

    /// The same, asked so often that one looks at the clock now and then only.
    fn is_late_now_and_then(&mut self) -> bool {
        self.tried = self.tried.wrapping_add(1);
        if self.tried.is_multiple_of(BETWEEN_LOOKS) { self.is_late() } else { self.late }
    }

    /// The whole ones.
    pub fn whole(&mut self) -> Vec<u32> {
        self.alive.retain(|&block| self.whole[block as usize]);
        self.alive.clone()
    }

    pub fn is_whole(&self, block: u32) -> bool {
        self.whole[block as usize]
    }

    /// A section, or the one around the ring that it is.
    pub fn wrap(&self, section: u32) -> u32 {
        if self.ring && section >= self.sections { section - self.sections } else { section }
    }

    pub fn add(&mut self, block: Block) -> u32 {
        let id = self.all.len() as u32;
        self.all.push(block);
        self.whole.push(true);
        self.alive.push(id);
        self.index(id);
        self.new.push_back(id);
        self.count += 1;
        id
    }

    fn index(&mut self, id: u32) {
        let block = self.all[id as usize];
        self.same.add((block.lower, u64::from(block.upper)), id);
        self.starts.add((block.lower, block.size), id);
        self.ends.add((self.wrap(block.upper), block.size), id);
    }

    fn remove(&mut self, block: u32) {
        self.whole[block as usize] = false;
        self.count -= 1;
    }

    /// A whole one that begins at a section and has some size, but none of some.
    pub fn starting(&mut self, lower: u32, size: u64, but: [u32; 2]) -> Option<u32> {
        self.starts.find((lower, size), &self.whole, but)
    }

    /// A whole one of a lifetime, but none of some.
    pub fn living(&mut self, lower: u32, upper: u32, but: [u32; 2]) -> Option<u32> {
        self.same.find((lower, u64::from(upper)), &self.whole, but)
    }

    /// Five as one.
    pub fn merge_wheel(&mut self, block: Block, wheel: Wheel) {
        wheel.into_iter().for_each(|k| self.remove(k));
        self.wheels.push(wheel);
        self.add(Block { made: Made::Wheel(self.wheels.len() as u32 - 1), ..block });
    }

    /// Two as one. In a ring no row may go all around.
    pub fn merge(&mut self, made: Made) -> u32 {
        let Some((a, b)) = made.pair() else { return NONE };
        let block = self.joined(self.all[a as usize], self.all[b as usize], made);
        self.remove(a);
        self.remove(b);
        self.add(block)
    }

    /// Two as one that may be longer than both.
    pub fn merge_as(&mut self, block: Block) {
        let Some((a, b)) = block.made.pair() else { return };
        self.remove(a);
        self.remove(b);
        self.add(block);
    }

    /// Sections from one to another, around a ring where that is needed; in a line, far if the other comes first.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        match to.checked_sub(from) {
            Some(distance) => distance,
            None if self.ring => to + self.sections - from,
            None => u32::MAX,
        }
    }

    /// Sections from one to another, whichever comes first.
    pub fn between(&self, one: u32, other: u32) -> u32 {
        self.distance(one, other).min(self.distance(other, one))
    }

    /// One that holds two, which begin or end together if they are stacked.
    pub fn joined(&self, a: Block, b: Block, made: Made) -> Block {
        if let Made::Row(..) = made {
            let end = self.wrap(a.upper);
            let gap = if b.lower >= end { b.lower - end } else { b.lower + self.sections - end };
            return Block { lower: a.lower, upper: a.upper + gap + b.length(), size: a.size.max(b.size), made };
        }
        let longer = if a.length() >= b.length() { a } else { b };
        Block { size: a.size.saturating_add(b.size), made, ..longer }
    }

    /// Whether a row of so many sections may be.
    pub fn may_be(&self, length: u32) -> bool {
        !self.ring || length < self.sections
    }

    /// One that goes with a block and leaves nothing empty.
    pub fn partner(&mut self, of: u32, but: u32) -> Option<Made> {
        match self.partner_of(self.all[of as usize], [of, but])? {
            (other, Side::Same) => Some(Made::Stack(of, other)),
            (other, Side::After) => Some(Made::Row(of, other)),
            (other, Side::Before) => Some(Made::Row(other, of)),
        }
    }

    /// One that goes with such a block, but none of some.
    pub fn partner_of(&mut self, block: Block, but: [u32; 2]) -> Option<(u32, Side)> {
        self.looked_at += KEY;
        if let Some(other) = self.same.find((block.lower, u64::from(block.upper)), &self.whole, but) {
            return Some((other, Side::Same));
        }
        let fits = |blocks: &Blocks, other: u32| blocks.may_be(block.length() + blocks.all[other as usize].length());
        let after = self.wrap(block.upper);
        let next = self.starts.find((after, block.size), &self.whole, but).filter(|&other| fits(self, other));
        if let Some(other) = next {
            return Some((other, Side::After));
        }
        let before = self.ends.find((block.lower, block.size), &self.whole, but).filter(|&other| fits(self, other));
        before.map(|other| (other, Side::Before))
    }

    /// Merges all that goes together and leaves nothing empty, what went together by chance otherwise.
    pub fn merge_all(&mut self) {
        self.merge_exact();
        while !self.late && (self.repair() || (self.merges_wheels && merge_wheels(self) > 0)) {}
    }

    /// Merges pairs that go together and leave nothing empty, until none does.
    pub fn merge_exact(&mut self) {
        while let Some(block) = self.new.pop_front() {
            if self.is_late_now_and_then() {
                self.new.clear();
                return;
            }
            if self.is_whole(block)
                && let Some(made) = self.partner(block, block)
            {
                self.merge(made);
            }
        }
    }

    /// What was merged, but goes no further, is taken apart where one of the two goes with another: what went together by
    /// chance is most often left over. True if fewer blocks are left.
    pub fn repair(&mut self) -> bool {
        let count = self.count;
        for block in self.whole() {
            let Some((a, b)) = self.all[block as usize].made.pair() else { continue };
            if !self.is_whole(block) || self.late {
                continue;
            }
            self.remove(block);
            let other =
                [(a, b), (b, a)].into_iter().find_map(|(one, rest)| Some((self.partner(one, rest)?, one, rest)));
            match other {
                Some((made, one, rest)) => {
                    // `one` is whole for a moment.
                    self.whole[one as usize] = true;
                    self.count += 1;
                    self.add(self.all[rest as usize]);
                    self.merge(made);
                    self.merge_exact();
                }
                None => {
                    self.whole[block as usize] = true;
                    self.count += 1;
                }
            }
        }
        self.count < count
    }

    /// Takes the room that something lost of a section and so many more takes, if there is so much.
    pub fn lose(&mut self, pieces: &[(u32, u32, u64)]) -> bool {
        for (k, &(from, length, height)) in pieces.iter().enumerate() {
            self.looked_at += u64::from(length);
            let sections = || (from..from + length).map(|s| self.wrap(s) as usize);
            if sections().any(|s| self.room[s] < height) {
                for &(from, length, height) in &pieces[..k] {
                    for s in from..from + length {
                        let s = self.wrap(s) as usize;
                        self.room[s] += height;
                    }
                }
                return false;
            }
            for s in from..from + length {
                let s = self.wrap(s) as usize;
                self.room[s] -= height;
            }
        }
        true
    }
}
