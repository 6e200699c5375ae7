//! Places: the addresses, which of them are taken, by which blocks, what the plan says of them, and what is free.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_gaps::Gaps;

use crate::cursor::Cursor;
use crate::marks::Marks;
use crate::ranges::RangeSet;
use crate::script::{Expect, GRANULE, Guess, Key, Script};
use crate::streams::bit;
use crate::tuning::{medium, small};

mod search;

/// This part of the addresses beyond the plan is for small blocks.
const SMALL_PART: u64 = 16;

/// A block in the arena, kept by its first granule: live, or given back and still used by another stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    granules: u32,
    /// What rounding added to the bytes that were asked for.
    pub padding: u16,
    /// Ordinal of the stream that it was allocated on.
    pub stream: u16,
    /// Other streams use it too.
    pub recorded: bool,
    /// The program gave it back, but another stream may still use it.
    pub pending: bool,
    /// It is cut out of the gaps.
    in_gaps: bool,
}

impl Block {
    /// A block that was asked for so.
    pub fn new(key: Key, padding: u16) -> Self {
        let (granules, stream) = (key.granules(), key.stream());
        Block { granules, padding, stream, recorded: false, pending: false, in_gaps: false }
    }

    /// The granules that it takes from a first one on.
    #[inline]
    pub fn range(&self, start: u32) -> Range<u32> {
        start..start + self.granules
    }

    /// Its length, rounded up.
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.granules) * GRANULE
    }
}

/// The address range in granules, and the plan for it.
#[derive(Debug)]
pub(super) struct Place {
    script: Script,
    cursor: Cursor,
    /// Followed from the next step on.
    next: Option<Box<Script>>,
    /// Followed before.
    retired: Option<Box<Script>>,
    taken: RangeSet,
    blocks: FxHashMap<u32, Block>,
    /// What is free, in the order of addresses: exact once the blocks of `uncut` are cut out.
    gaps: Gaps,
    /// First granules of blocks that were claimed at planned addresses, some of them gone.
    uncut: Marks,
    /// Where the addresses begin that are for large blocks, medium ones, and small ones; and where they end.
    regions: [u32; 4],
    /// In each of them, the granule from which on nobody has used anything.
    untouched: [u32; 3],
}

impl Place {
    /// So many granules of which nothing is taken, for a plan.
    pub fn new(script: Script, granules: u32) -> Self {
        let mut blocks = FxHashMap::default();
        blocks.reserve(script.slots.min(1 << 16) * 2);
        Place {
            cursor: Cursor::new(&script),
            next: None,
            retired: None,
            taken: RangeSet::new(granules as usize),
            blocks,
            gaps: Gaps::new(granules),
            uncut: Marks::new(granules),
            regions: [0, granules, granules, granules],
            untouched: [0, granules, granules],
            script,
        }
    }

    /// Gives small and medium blocks addresses of their own, in whole pages of the `growth` bytes beyond the plan.
    pub fn divide(&mut self, growth: u64, page: u64) {
        let part = ((growth / SMALL_PART).next_multiple_of(page) / GRANULE) as u32;
        let end = self.regions[3];
        if let Some(large) = end.checked_sub(2 * part).filter(|&large| large >= self.script.granules) {
            self.regions = [0, large, end - part, end];
            self.untouched = [0, large, end - part];
        }
    }

    /// Tells the cursor of a request: the plan's guess.
    #[inline]
    pub fn guess(&mut self, key: Key) -> Guess {
        self.cursor.advance(&self.script, key)
    }

    /// The entry that the plan expects next, if there is one for certain.
    pub fn expected(&self) -> Option<&Expect> {
        self.cursor.expected(&self.script)
    }

    /// True while a plan is followed, with offsets or without.
    #[inline]
    pub fn has_plan(&self) -> bool {
        !self.script.is_empty()
    }

    /// Granules of the plan's addresses.
    #[inline]
    pub fn planned(&self) -> u32 {
        self.script.granules
    }

    /// Most live bytes that the plan expects.
    pub fn expected_peak(&self) -> u64 {
        self.script.expected_peak
    }

    /// Whether a plan's addresses are all large blocks'.
    pub fn has_room_for(&self, script: &Script) -> bool {
        script.granules <= self.regions[1]
    }

    /// Follows a plan from the next step on.
    pub fn propose(&mut self, script: Script) {
        self.next = Some(Box::new(script));
    }

    /// Follows the plan that was proposed, if one was, from now on. What lives stays where it is.
    pub fn adopt(&mut self) -> bool {
        let Some(mut script) = self.next.take() else { return false };
        // What is not cut yet is at most what one plan has addresses for.
        self.update_gaps();
        // What a program needs has been seen in the steps that were learned from.
        script.expected_peak = 0;
        self.cursor = Cursor::new(&script);
        std::mem::swap(&mut self.script, &mut script);
        self.retired = Some(script);
        true
    }

    /// The plan before, once it was replaced.
    pub fn take_retired(&mut self) -> Option<Box<Script>> {
        self.retired.take()
    }

    /// A step begins, says the program.
    pub fn step_begin(&mut self) {
        self.cursor.step_begin(&self.script);
    }

    /// Granules in all.
    #[inline]
    pub fn len(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Whether no block takes any of a range: what decides, whatever plan or search propose.
    #[inline]
    pub fn is_free(&self, range: &Range<u32>) -> bool {
        self.taken.is_free(range.start as usize, range.end as usize)
    }

    /// Whether nobody has used anything from a granule on, in its region.
    pub fn is_untouched(&self, granule: u32) -> bool {
        let mut regions = self.untouched.iter().zip(self.regions.windows(2));
        regions.any(|(&untouched, region)| (untouched..region[1]).contains(&granule))
    }

    /// Where the addresses of large blocks end.
    #[inline]
    pub fn end_of_large(&self) -> u32 {
        self.regions[1]
    }

    /// All addresses, those first whose memory is missed least: those of no plan, small blocks' last of them.
    pub fn least_used_first(&self) -> [Range<u32>; 3] {
        let planned = self.script.granules.min(self.regions[1]);
        [planned..self.regions[1], self.regions[1]..u32::MAX, 0..planned]
    }

    /// The addresses for blocks of a size.
    #[inline]
    pub fn region(&self, key: Key) -> Range<u32> {
        let is_of = |limit: u32| key.granules() <= limit / GRANULE as u32;
        let region = if is_of(small()) { 2 } else { usize::from(is_of(medium())) };
        let own = self.regions[region]..self.regions[region + 1];
        if own.is_empty() { self.regions[0]..self.regions[1] } else { own }
    }

    /// Puts a block into a free range. `found`: by a search of the gaps, which are up to date.
    #[inline]
    pub fn take(&mut self, start: u32, block: Block, found: bool) {
        let range = block.range(start);
        self.taken.insert(range.start as usize, range.end as usize);
        for (untouched, region) in self.untouched.iter_mut().zip(self.regions.windows(2)) {
            if range.start < region[1] && range.end > *untouched {
                *untouched = range.end.min(region[1]);
            }
        }
        self.blocks.insert(start, Block { in_gaps: found, ..block });
        if found {
            self.gaps.take(range);
        } else {
            self.uncut.insert(start);
        }
    }

    /// The block that begins at a granule.
    pub fn block(&self, start: u32) -> Option<&Block> {
        self.blocks.get(&start)
    }

    /// The same, to note that streams use it.
    #[inline]
    pub fn block_mut(&mut self, start: u32) -> Option<&mut Block> {
        self.blocks.get_mut(&start)
    }

    /// Takes a block from the blocks. Its range stays taken until it is [given](Self::give).
    #[inline]
    pub fn remove(&mut self, start: u32) -> Option<Block> {
        self.blocks.remove(&start)
    }

    /// Puts a block back that was removed: other streams may still use it.
    pub fn keep_pending(&mut self, start: u32, block: Block) {
        self.blocks.insert(start, Block { pending: true, ..block });
    }

    /// The range of a block that was removed is free from now on.
    #[inline]
    pub fn give(&mut self, start: u32, block: Block) {
        let range = block.range(start);
        self.taken.remove(range.start as usize, range.end as usize);
        if block.in_gaps {
            self.gaps.give_of(range, bit(block.stream));
        }
    }

    /// All blocks, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, Block)> + '_ {
        self.blocks.iter().map(|(&start, &block)| (start, block))
    }

    /// The block that a granule lies in: itself by where it starts, or the next one behind a gap that reaches it.
    pub fn block_at(&self, granule: u32) -> Option<(u32, Block)> {
        if self.is_free(&(granule..granule + 1)) {
            return None;
        }
        if let Some(&block) = self.blocks.get(&granule) {
            return Some((granule, block));
        }
        let contains = |start: u32, block: &Block| block.range(start).contains(&granule);
        let mut start = self.gaps.starting_by(granule).map_or(0, |gap| gap.end);
        while let Some(&block) = self.blocks.get(&start).filter(|_| start <= granule) {
            if contains(start, &block) {
                return Some((start, block));
            }
            start += block.granules;
        }
        // What was claimed at a planned address is not cut out of the gaps yet.
        self.blocks().find(|(start, block)| contains(*start, block))
    }

    /// Cuts the blocks at planned addresses out of the gaps. They are not cut when they are claimed, since most die before anything is
    /// searched among planned addresses: each costs this once at most.
    fn update_gaps(&mut self) {
        while let Some(start) = self.uncut.pop() {
            if let Some(block) = self.blocks.get_mut(&start)
                && !block.in_gaps
            {
                block.in_gaps = true;
                let range = block.range(start);
                self.gaps.take(range);
            }
        }
    }
}

#[cfg(test)]
mod tests;
