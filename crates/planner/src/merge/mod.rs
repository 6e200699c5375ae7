//! Items that go together, merged into blocks, so that there are fewer to place.
//!
//! Two of one lifetime go on top of each other, and of two of one size, where one begins as the other ends, the second
//! takes the first one's place: nothing is lost, and what they become may go with another again. So a rectangle that was
//! cut into pieces is put together from its pieces, in O(n log n), and so are most of the published instances. Where pieces
//! are missing, blocks are merged that leave something empty, as long as there is room for it (`matching`).
//!
//! That a solution has them together is likely, not certain: blocks are placed in turns with the part itself.

mod blocks;
mod matching;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::time::Instant;

use crate::bound::loads;
use crate::clock::is_over;
use crate::greedy::Places;
use crate::hash::{Rng, mix};
use crate::problem::{Item, Part};
use blocks::{Blocks, Made};
use matching::Kind;

/// Merging more items than this takes more memory than it is worth.
const MOST_ITEMS: usize = 1 << 18;

/// Work counted for each item that is merged with nothing lost.
const WORK_PER_ITEM: u64 = 16;

/// What lossy merges look for, in turns; each until it finds nothing more, those to the left first.
const KINDS: [&[Kind]; 3] = [
    &[Kind::Rows(2), Kind::Rows(3)],
    &[Kind::Rows(2), Kind::Rows(3), Kind::Stacks(2), Kind::Stacks(3)],
    &[Kind::Pauses],
];

/// A part of fewer items, of which every solution is one of the whole part.
pub(crate) struct Merged {
    pub part: Part,
    /// All that there are; items of the part are numbered by them.
    blocks: Vec<blocks::Block>,
    /// Work that merging took.
    pub work: u64,
}

impl Merged {
    /// Lossy merges that differ in more than chance.
    pub const LOSSY: u64 = KINDS.len() as u64;

    /// Those that hardly anything but equal sizes brings together.
    pub const LIKELY: [u64; 2] = [0, 2];

    /// With nothing lost. `None` if it is not done in time, or if there are alignments or too many items.
    pub fn exact(part: &Part, until: Option<Instant>) -> Option<Merged> {
        Merged::new(part, 0, &[], 0, until)
    }

    /// Of those that lose something, but so little that no load exceeds `limit`, the `k`-th. `None` if it is not done in time.
    pub fn lossy(part: &Part, limit: u64, k: u64, seed: u64, until: Option<Instant>) -> Option<Merged> {
        let kinds = KINDS[k as usize % KINDS.len()];
        Merged::new(part, limit, kinds, mix(seed ^ mix(k)), until)
    }

    fn new(part: &Part, limit: u64, kinds: &[Kind], seed: u64, until: Option<Instant>) -> Option<Merged> {
        if part.aligned || part.items.len() > MOST_ITEMS {
            return None;
        }
        let mut blocks = Blocks::new(part, limit, until);
        let mut work = WORK_PER_ITEM * part.items.len() as u64;
        let mut rng = Rng::new(seed);
        blocks.merge_exact();
        while blocks.repair() {}
        // What is found by one kind may make room for those before it.
        let mut next = 0;
        while let Some(&kind) = kinds.get(next) {
            if is_over(until) {
                return None;
            }
            let (merged, looked) = matching::round(&mut blocks, kind, &mut rng);
            work += looked;
            next = if merged > 0 { 0 } else { next + 1 };
        }
        if blocks.late {
            return None;
        }
        Some(Merged { part: reduced(part, &blocks), blocks: blocks.all, work })
    }

    /// A solution of the part from one of the merged part.
    pub fn expand(&self, part: &Part, places: &Places) -> Places {
        let mut offsets = vec![part.base; part.items.len()];
        let mut rest: Vec<(u32, u64)> = self.part.items.iter().zip(&places.offsets).map(|(i, &o)| (i.id, o)).collect();
        while let Some((block, offset)) = rest.pop() {
            match self.blocks[block as usize].made {
                Made::Item(k) => offsets[k as usize] = offset,
                Made::Row(a, b) => rest.extend([(a, offset), (b, offset)]),
                Made::Stack(a, b) => {
                    rest.extend([(a, offset), (b, offset.saturating_add(self.blocks[a as usize].size))]);
                }
            }
        }
        Places::new(part, offsets)
    }
}

/// The whole blocks as items, by their blocks' numbers; in sections that begin where one of them begins or ends.
fn reduced(part: &Part, blocks: &Blocks) -> Part {
    let whole: Vec<u32> = blocks.whole().collect();
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
    let mut reduced =
        Part { items, fixed, sections: count, ring: part.ring, base: part.base, bound: part.bound, aligned: false };
    let load = loads(&reduced).into_iter().max().unwrap_or(0);
    reduced.bound = part.bound.max(part.base.saturating_add(load));
    reduced
}
