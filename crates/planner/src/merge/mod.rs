//! Items that go together, merged into blocks, so that there are fewer to place.
//!
//! Two of one lifetime go on top of each other, and of two of one size, where one begins as the other ends, the second
//! takes the first one's place: nothing is lost, and what they become may go with another again. So a rectangle that was
//! cut into pieces is put together from its pieces, in O(n log n), and so are most of the published instances. Where pieces
//! are missing, what the loads say of them is filled in (`holes`, `fill`); where ends have noise, blocks are merged that leave
//! something empty, as long as there is room for it (`near`).
//!
//! That a solution has them together is likely, not certain: blocks are placed in turns with the part itself.

mod blocks;
mod fill;
mod holes;
mod near;
mod retry;
#[cfg(test)]
mod tests;
mod times;
mod wheels;

use std::cmp::Reverse;

use crate::Instance;
use crate::bound::loads;
use crate::clock::Until;
use crate::hash::{Rng, mix};
use crate::part::{Item, Part, Places};
use blocks::{Blocks, Made};
use wheels::Wheel;

/// Merging more items than this takes more memory than it is worth.
const MOST_ITEMS: usize = 1 << 18;

/// Work counted for each item that is merged with nothing lost.
const WORK_PER_ITEM: u64 = 16;

/// Work on filling in of the shortest merge for each item, and at most on that and on what loses something (pangu_2.6B, with which
/// little goes together: 1.7 s of CPU; without it 4.3).
const FILL_PER_ITEM: u64 = 8000;
const MOST_WORK: u64 = 40_000_000;

/// What is lost above this is not computed with.
const HIGHEST: u64 = i64::MAX as u64 / 16;

/// How items are merged that lose something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lossy<'a> {
    pub instance: &'a Instance,
    /// No load may exceed it.
    pub limit: u64,
    /// Which of all that there are.
    pub k: u64,
    pub seed: u64,
    /// How many times as long as the shortest.
    pub length: u64,
    /// Work left: what comes of more is not used, and how it is done does not depend on it.
    pub left: u64,
}

/// A part of fewer items, of which every solution is one of the whole part.
pub(crate) struct Merged {
    pub part: Part,
    /// All that there are; items of the part are numbered by them.
    blocks: Vec<blocks::Block>,
    wheels: Vec<Wheel>,
    /// Whether the part seems to be a rectangle of which pieces are missing.
    pub likely: bool,
    /// Work that merging took.
    pub work: u64,
}

impl Merged {
    /// With nothing lost. `None` if it is not done in time, or if there are alignments or too many items.
    pub fn exact(part: &Part, until: Until) -> Option<Merged> {
        let mut merging = Merging::new(part, 0, until)?;
        merging.blocks.merge_all();
        merging.end(part)
    }

    /// One that loses something, but so little that no load exceeds the limit. `None` if it is not done in time.
    pub fn lossy(part: &Part, how: Lossy, until: Until) -> Option<Merged> {
        if how.limit >= HIGHEST {
            return None;
        }
        let mut rng = Rng::new(mix(how.seed ^ mix(how.k)));
        let part = &times::exact_times(part, how.instance);
        let mut merging = Merging::new(part, how.limit, until)?;
        let blocks = &mut merging.blocks;
        blocks.merge_all();
        if !part.ring {
            let work = (FILL_PER_ITEM * part.items.len() as u64).min(MOST_WORK).saturating_mul(how.length);
            let (likely, done) = fill::fill(blocks, &mut rng, (work, how.left));
            (merging.likely, merging.work) = (likely, merging.work + done);
        }
        let left = how.left.saturating_sub(merging.work).min(MOST_WORK.saturating_mul(how.length));
        merging.work += near::merge_near(blocks, &mut rng, (how.length, left));
        merging.end(part)
    }

    /// A solution of the part from one of the merged part.
    pub fn expand(&self, part: &Part, places: &Places) -> Places {
        let mut offsets = vec![part.base; part.items.len()];
        let mut rest: Vec<(u32, u64)> = self.part.items.iter().zip(&places.offsets).map(|(i, &o)| (i.id, o)).collect();
        while let Some((block, offset)) = rest.pop() {
            match self.blocks[block as usize].made {
                Made::Item(k) => offsets[k as usize] = offset,
                Made::Hole => {}
                Made::Wheel(wheel) => {
                    let wheel = self.wheels[wheel as usize];
                    let [below, middle] = [wheel[0], wheel[1]].map(|k| self.blocks[k as usize].size);
                    let first = offset.saturating_add(below);
                    let above = [offset, first, first.saturating_add(middle), first, offset];
                    rest.extend(wheel.into_iter().zip(above));
                }
                Made::Row(a, b) => rest.extend([(a, offset), (b, offset)]),
                Made::Stack(a, b) => {
                    rest.extend([(a, offset), (b, offset.saturating_add(self.blocks[a as usize].size))]);
                }
            }
        }
        Places::new(part, offsets)
    }
}

/// A merge at work.
struct Merging {
    blocks: Blocks,
    likely: bool,
    work: u64,
}

impl Merging {
    /// `None` if there are alignments or too many items.
    fn new(part: &Part, limit: u64, until: Until) -> Option<Merging> {
        if part.aligned || part.items.len() > MOST_ITEMS {
            return None;
        }
        let blocks = Blocks::new(part, limit, until);
        Some(Merging { blocks, likely: false, work: WORK_PER_ITEM * part.items.len() as u64 })
    }

    /// What is left; `None` if the time was up.
    fn end(mut self, part: &Part) -> Option<Merged> {
        if self.blocks.late {
            return None;
        }
        let reduced = reduced(part, &mut self.blocks);
        Some(Merged {
            part: reduced,
            blocks: self.blocks.all,
            wheels: self.blocks.wheels,
            likely: self.likely,
            work: self.work,
        })
    }
}

/// The whole blocks as items, by their blocks' numbers; in sections that begin where one of them begins or ends.
fn reduced(part: &Part, blocks: &mut Blocks) -> Part {
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
    let mut reduced =
        Part { items, fixed, sections: count, ring: part.ring, base: part.base, bound: part.bound, aligned: false };
    let load = loads(&reduced).into_iter().max().unwrap_or(0);
    reduced.bound = part.bound.max(part.base.saturating_add(load));
    reduced
}
