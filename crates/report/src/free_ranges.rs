//! The free ranges of an address axis without end.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges of about the wanted size that are looked at, lowest first, before a larger one is taken: bounds a search.
const LOOKED_AT: usize = 16;

/// Free ranges by address, and by size so that a low one that is large enough is found without a search of all.
pub struct FreeRanges {
    /// Ends by starts; no two touch. The last has no end.
    ranges: BTreeMap<u64, u64>,
    /// Starts, by the power of two that the size has reached.
    by_size: Vec<BTreeSet<u64>>,
}

fn class(size: u64) -> usize {
    size.max(1).ilog2() as usize
}

impl FreeRanges {
    /// Everything is free.
    pub fn new() -> Self {
        let mut free = FreeRanges { ranges: BTreeMap::new(), by_size: vec![BTreeSet::new(); 64] };
        free.insert(0, u64::MAX);
        free
    }

    fn insert(&mut self, from: u64, to: u64) {
        if from < to {
            self.ranges.insert(from, to);
            self.by_size[class(to - from)].insert(from);
        }
    }

    fn remove(&mut self, from: u64, to: u64) {
        self.ranges.remove(&from);
        self.by_size[class(to - from)].remove(&from);
    }

    /// Takes a range of a size and returns its start: the lowest of those that are surely large enough and of the
    /// lowest few that may be. The end of the axis where nothing is free, which no device reaches. O(log ranges).
    pub fn take(&mut self, size: u64) -> u64 {
        let fits = |from: &u64| self.ranges.get(from).is_some_and(|to| to - from >= size);
        let near = self.by_size[class(size)].iter().take(LOOKED_AT).copied().find(fits);
        let large = self.by_size[class(size) + 1..].iter().filter_map(|starts| starts.first().copied()).min();
        let Some(from) = near.into_iter().chain(large).min() else { return u64::MAX - size };
        if let Some(&to) = self.ranges.get(&from) {
            self.remove(from, to);
            self.insert(from + size, to);
        }
        from
    }

    /// Gives a range back. O(log ranges).
    pub fn give(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        if let Some((&below, &end)) = self.ranges.range(..from).next_back().filter(|&(_, &end)| end == from) {
            self.remove(below, end);
            from = below;
        }
        if let Some(&end) = self.ranges.get(&to) {
            self.remove(to, end);
            to = end;
        }
        self.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_range_that_is_large_enough_is_taken_and_neighbours_join_again() {
        let mut free = FreeRanges::new();
        assert_eq!([10, 20, 30].map(|size| free.take(size)), [0, 10, 30]);
        free.give(10, 30);
        assert_eq!(free.take(21), 60);
        assert_eq!(free.take(15), 10);
        free.give(0, 10);
        free.give(10, 25);
        assert_eq!(free.take(30), 0);
        free.give(0, 30);
        free.give(60, 81);
        free.give(30, 60);
        assert_eq!(free.ranges, BTreeMap::from([(0, u64::MAX)]));
    }

    #[test]
    fn what_no_address_axis_holds_is_put_at_its_end() {
        let mut free = FreeRanges::new();
        assert_eq!((free.take(u64::MAX), free.take(5)), (0, u64::MAX - 5));
        assert_eq!(free.take(0), u64::MAX);
    }
}
