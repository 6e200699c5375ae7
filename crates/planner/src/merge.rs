//! Items that go together, merged into blocks, so that there are fewer to place.
//!
//! Two of one lifetime go on top of each other, and of two of one size, where one begins as the other ends, the second
//! takes the first one's place: nothing is lost, and what they become may go with another again. So a rectangle that was
//! cut into pieces is put together from its pieces, in O(n log n), and so are most of the published instances.
//!
//! That a solution has them together is likely, not certain: blocks are placed in turns with the part itself.

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::{ORDER_WORK, Until, is_seen_over};
use crate::part::{Item, Part, Places};

/// Blocks of one key that are looked at, at most.
const LOOKED_AT: usize = 16;

/// A part of fewer items, of which every solution is one of the whole part.
pub(crate) struct Merged {
    pub part: Part,
    /// All blocks that there were; items of the part are numbered by them.
    blocks: Vec<ItemBlock>,
    /// Work that merging took.
    pub work: u64,
}

impl Merged {
    /// `None` if it is not done in time, or if there are alignments or too many items.
    pub fn new(part: &Part, until: Until) -> Option<Merged> {
        if part.aligned || part.is_huge() {
            return None;
        }
        let mut blocks = ItemBlocks::new(part, until);
        blocks.merge();
        while !blocks.late && blocks.repair() {}
        if blocks.late {
            return None;
        }
        let work = ORDER_WORK * part.items.len() as u64;
        Some(Merged { part: reduced(part, &mut blocks), blocks: blocks.all, work })
    }

    /// A solution of the part from one of the merged part.
    pub fn expand(&self, part: &Part, places: &Places) -> Places {
        let mut offsets = vec![part.base; part.items.len()];
        let mut rest: Vec<(u32, u64)> = self.part.items.iter().zip(&places.offsets).map(|(i, &o)| (i.id, o)).collect();
        while let Some((block, offset)) = rest.pop() {
            match self.blocks[block as usize].made {
                Composition::Item(k) => offsets[k as usize] = offset,
                Composition::Row(a, b) => rest.extend([(a, offset), (b, offset)]),
                Composition::Stack(a, b) => {
                    rest.extend([(a, offset), (b, offset.saturating_add(self.blocks[a as usize].size))]);
                }
            }
        }
        Places::new(part, offsets)
    }
}

/// The whole blocks as items, by their blocks' numbers; in sections that begin where one of them begins or ends.
fn reduced(part: &Part, blocks: &mut ItemBlocks) -> Part {
    let whole: Vec<u32> = blocks.whole();
    let make = |&id: &u32| {
        let b = blocks.all[id as usize];
        Item { lower: b.lower, upper: b.upper, size: b.size, align: 1, id }
    };
    let mut items: Vec<Item> = whole.iter().map(make).collect();
    let mut fixed = part.fixed.clone();
    let all = || items.iter().chain(fixed.iter().map(|f| &f.0));
    let mut begins: Vec<u32> = all().flat_map(|i| [i.lower, blocks.wrap(i.upper)]).collect();
    begins.sort_unstable();
    begins.dedup();
    let count = begins.len() as u32 - u32::from(!part.ring);
    let rank = |s: u32| begins.partition_point(|&b| b < s) as u32;
    let place = |i: &mut Item| {
        let upper =
            if part.ring && i.upper >= part.sections { count + rank(i.upper - part.sections) } else { rank(i.upper) };
        (i.lower, i.upper) = (rank(i.lower), upper);
    };
    items.iter_mut().for_each(place);
    fixed.iter_mut().for_each(|f| place(&mut f.0));
    items.sort_unstable_by_key(|i| (i.lower, Reverse((i.upper, i.size)), i.id));
    Part { items, fixed, sections: count, ring: part.ring, base: part.base, bound: part.bound, aligned: false }
}

/// How a block came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Composition {
    Item(u32),
    /// The second on top of the first.
    Stack(u32, u32),
    /// Both on one floor, the second after the first.
    Row(u32, u32),
}

/// Items that keep their places to each other, seen from outside as one: the lifetime and the size that hold them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemBlock {
    lower: u32,
    /// One past the last section; in a ring it may exceed their number.
    upper: u32,
    size: u64,
    made: Composition,
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

/// The blocks of a part.
struct ItemBlocks {
    all: Vec<ItemBlock>,
    /// True for a block that is in no other.
    whole: Vec<bool>,
    /// Those that are, and some that were.
    alive: Vec<u32>,
    /// Their number.
    count: usize,
    sections: u32,
    ring: bool,
    same: Index,
    starts: Index,
    ends: Index,
    until: Until,
    /// Merges tried so far, and whether the time is up.
    tried: usize,
    late: bool,
    /// Whole blocks of which it is not known whether they go with another.
    new: VecDeque<u32>,
}

impl ItemBlocks {
    /// Each item a block. O(n).
    fn new(part: &Part, until: Until) -> ItemBlocks {
        let mut blocks = ItemBlocks {
            all: Vec::with_capacity(2 * part.items.len()),
            whole: Vec::with_capacity(2 * part.items.len()),
            alive: Vec::new(),
            count: 0,
            sections: part.sections,
            ring: part.ring,
            same: Index::default(),
            starts: Index::default(),
            ends: Index::default(),
            until,
            tried: 0,
            late: false,
            new: VecDeque::new(),
        };
        for (item, k) in part.items.iter().zip(0..) {
            blocks.add(ItemBlock { lower: item.lower, upper: item.upper, size: item.size, made: Composition::Item(k) });
        }
        blocks
    }

    /// The whole ones.
    fn whole(&mut self) -> Vec<u32> {
        self.alive.retain(|&block| self.whole[block as usize]);
        self.alive.clone()
    }

    /// A section, or the one around the ring that it is.
    fn wrap(&self, section: u32) -> u32 {
        if self.ring && section >= self.sections { section - self.sections } else { section }
    }

    fn add(&mut self, block: ItemBlock) {
        let id = self.all.len() as u32;
        self.all.push(block);
        self.whole.push(true);
        self.alive.push(id);
        self.same.add((block.lower, u64::from(block.upper)), id);
        self.starts.add((block.lower, block.size), id);
        self.ends.add((self.wrap(block.upper), block.size), id);
        self.new.push_back(id);
        self.count += 1;
    }

    fn set_whole(&mut self, block: u32, whole: bool) {
        self.whole[block as usize] = whole;
        self.count = if whole { self.count + 1 } else { self.count - 1 };
    }

    /// Two as one.
    fn join(&mut self, made: Composition) {
        let (Composition::Stack(a, b) | Composition::Row(a, b)) = made else { return };
        let (mut block, second) = (self.all[a as usize], self.all[b as usize]);
        block.made = made;
        if let Composition::Row(..) = made {
            block.upper += second.upper - second.lower;
        } else {
            block.size = block.size.saturating_add(second.size);
        }
        self.set_whole(a, false);
        self.set_whole(b, false);
        self.add(block);
    }

    /// How a block goes with another that is not `but`. In a ring no row may go all around.
    fn partner(&mut self, of: u32, but: u32) -> Option<Composition> {
        let (ItemBlock { lower, upper, size, .. }, but) = (self.all[of as usize], [of, but]);
        if let Some(other) = self.same.find((lower, u64::from(upper)), &self.whole, but) {
            return Some(Composition::Stack(of, other));
        }
        let (all, most) = (&self.all, if self.ring { self.sections } else { u32::MAX });
        let fits = |other: &u32| upper - lower + all[*other as usize].upper - all[*other as usize].lower < most;
        let after = if self.ring && upper >= self.sections { upper - self.sections } else { upper };
        if let Some(next) = self.starts.find((after, size), &self.whole, but).filter(fits) {
            return Some(Composition::Row(of, next));
        }
        self.ends.find((lower, size), &self.whole, but).filter(fits).map(|before| Composition::Row(before, of))
    }

    /// Merges pairs that go together, until none does.
    fn merge(&mut self) {
        while let Some(block) = self.new.pop_front() {
            self.tried = self.tried.wrapping_add(1);
            self.late |= is_seen_over(self.tried, self.until);
            if self.late {
                return;
            }
            if self.whole[block as usize]
                && let Some(made) = self.partner(block, block)
            {
                self.join(made);
            }
        }
    }

    /// What was merged, but goes no further, is taken apart where one of the two goes with another: what went together by
    /// chance is most often left over. True if fewer blocks are left.
    fn repair(&mut self) -> bool {
        let count = self.count;
        for block in self.whole() {
            let (Composition::Stack(a, b) | Composition::Row(a, b)) = self.all[block as usize].made else { continue };
            if !self.whole[block as usize] || self.late {
                continue;
            }
            self.set_whole(block, false);
            let other =
                [(a, b), (b, a)].into_iter().find_map(|(one, rest)| Some((self.partner(one, rest)?, one, rest)));
            if let Some((made, one, rest)) = other {
                // `one` is whole for a moment.
                self.set_whole(one, true);
                self.add(self.all[rest as usize]);
                self.join(made);
                self.merge();
            } else {
                self.set_whole(block, true);
            }
        }
        self.count < count
    }
}

#[cfg(test)]
mod tests;
