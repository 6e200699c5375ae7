//! A piece of physical memory, and which parts of it blocks take.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of memory that are mapped together, wherever they are.
#[derive(Debug)]
pub(super) struct PoolPiece {
    /// Its length.
    pub granules: u32,
    /// The first of its places, for each of its addresses; never none.
    pub views: Vec<u32>,
    /// What blocks take of it: granules, start to end.
    pub taken: BTreeMap<u32, u32>,
}

impl PoolPiece {
    /// Whether no block takes any of these granules.
    pub fn is_free(&self, part: &Range<u32>) -> bool {
        self.taken.range(..part.end).next_back().is_none_or(|(_, &end)| end <= part.start)
    }

    /// Free granules at its beginning.
    pub fn before(&self) -> u32 {
        self.taken.first_key_value().map_or(self.granules, |(&start, _)| start)
    }

    /// Free granules at its end.
    pub fn after(&self) -> u32 {
        self.taken.last_key_value().map_or(self.granules, |(_, &end)| self.granules - end)
    }

    /// What no block takes: granules.
    pub fn free_parts(&self) -> Vec<Range<u32>> {
        let starts = self.taken.keys().copied().chain([self.granules]);
        let ends = [0].into_iter().chain(self.taken.values().copied());
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }
}
