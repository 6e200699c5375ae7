//! Which addresses are taken at one moment.

use std::collections::BTreeMap;

/// Disjoint address ranges that are taken, each by somebody.
#[derive(Default)]
pub struct TakenRanges {
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl TakenRanges {
    /// Who holds part of `[start, end)`, if anybody.
    pub fn holder(&self, start: u64, end: u64) -> Option<u32> {
        let (_, &(last_end, owner)) = self.ranges.range(..end).next_back()?;
        (last_end > start && end > start).then_some(owner)
    }

    /// Takes `[start, end)`, which must be free, for `owner`; an empty range takes nothing.
    pub fn take(&mut self, start: u64, end: u64, owner: u32) {
        if start < end {
            self.ranges.insert(start, (end, owner));
        }
    }

    /// Gives back the range at `start` if `owner` holds it.
    pub fn give_back(&mut self, start: u64, owner: u32) {
        if self.ranges.get(&start).is_some_and(|&(_, holder)| holder == owner) {
            self.ranges.remove(&start);
        }
    }
}
