//! What a section finds alive when it begins.
//!
//! Slots that are carried into the same section need no check against each other: if both are alive on one path of
//! sections, they were alive together at the end of the section before, and were checked there; if they come by
//! different paths, they may share an address. So it is enough to know, for each address, how long into the section
//! the longest-living of them stays.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::{CARRIED, FOREVER, Plan};

/// Carried slots of every section: `(slot, until)`, `until` on the clock of the section carried into, `u32::MAX` for
/// its whole length.
pub fn carried_into(plan: &Plan) -> Vec<Vec<(u32, u32)>> {
    let mut carried = vec![Vec::new(); plan.sections.len()];
    let mut releases: Vec<(u32, u32, u32)> = Vec::new();
    for (i, section) in plan.sections.iter().enumerate() {
        releases.extend(section.releases.iter().map(|r| (r.slot, i as u32, r.at)));
    }
    releases.sort_unstable();
    let mut walk = PathWalk { plan, seen: vec![0; plan.sections.len()], pass: 0 };
    for (i, section) in plan.sections.iter().enumerate() {
        // What lives for ever reaches the same sections, whichever slot of this section it is.
        let reached = walk.from(i, |_| None);
        for (slot, planned) in slots_of(plan, section) {
            if planned.upper == FOREVER {
                for &(target, until) in &reached {
                    carried[target].push((slot, until));
                }
            } else if planned.upper == CARRIED {
                let first = releases.partition_point(|&(s, ..)| s < slot);
                let own = &releases[first..];
                let own = &own[..own.partition_point(|&(s, ..)| s == slot)];
                // A slot released twice in a section counts until the later one.
                let until = |target: usize| own.iter().rev().find(|r| r.1 == target as u32).map(|r| r.2);
                for (target, until) in walk.from(i, until) {
                    carried[target].push((slot, until));
                }
            }
        }
    }
    carried
}

fn slots_of<'a>(plan: &'a Plan, section: &'a crate::Section) -> impl Iterator<Item = (u32, &'a crate::Slot)> {
    section.entries.iter().filter_map(|entry| match *entry {
        crate::Entry::Slot(slot) => plan.slots.get(slot as usize).map(|planned| (slot, planned)),
        crate::Entry::WithoutOffset { .. } => None,
    })
}

/// Follows the paths that lead out of a section.
struct PathWalk<'a> {
    plan: &'a Plan,
    seen: Vec<u32>,
    pass: u32,
}

impl PathWalk<'_> {
    /// The sections that something alive at the end of `start` reaches, and how long it lives in each; `until` says
    /// where a section ends it.
    fn from(&mut self, start: usize, until: impl Fn(usize) -> Option<u32>) -> Vec<(usize, u32)> {
        self.pass += 1;
        let mut reached = Vec::new();
        let mut open = vec![start];
        while let Some(from) = open.pop() {
            for &target in &self.plan.sections[from].followers {
                let target = target as usize;
                if self.seen.get(target).is_none_or(|&pass| pass == self.pass) {
                    continue;
                }
                self.seen[target] = self.pass;
                let end = until(target);
                reached.push((target, end.unwrap_or(u32::MAX)));
                if end.is_none() {
                    open.push(target);
                }
            }
        }
        reached
    }
}

/// For each address, how long the longest-living carried slot there stays, and which one it is.
pub struct SlotSkyline {
    /// Where each step of the skyline begins, ascending.
    starts: Vec<u64>,
    /// `table[k][i]`: the highest of the `2^k` steps from `i` on.
    table: Vec<Vec<(u32, u32)>>,
}

impl SlotSkyline {
    /// The skyline of `(start, end, until, slot)`. O(n log n).
    pub fn new(mut ranges: Vec<(u64, u64, u32, u32)>) -> Self {
        ranges.retain(|&(start, end, until, _)| start < end && until > 0);
        ranges.sort_unstable();
        let edges: BTreeSet<u64> = ranges.iter().flat_map(|&(start, end, ..)| [start, end]).collect();
        let starts: Vec<u64> = edges.into_iter().collect();
        let mut heights = Vec::with_capacity(starts.len());
        let mut open: BinaryHeap<(u32, u32, Reverse<u64>)> = BinaryHeap::new();
        let mut next = ranges.into_iter().peekable();
        for &at in &starts {
            while let Some((_, end, until, slot)) = next.next_if(|&(start, ..)| start <= at) {
                open.push((until, slot, Reverse(end)));
            }
            while open.peek().is_some_and(|&(.., Reverse(end))| end <= at) {
                open.pop();
            }
            heights.push(open.peek().map_or((0, 0), |&(until, slot, _)| (until, slot)));
        }
        let mut table = vec![heights];
        let mut width = 1;
        while let Some(last) = table.last().filter(|last| last.len() > width) {
            let wider = (0..last.len() - width).map(|i| last[i].max(last[i + width])).collect();
            table.push(wider);
            width *= 2;
        }
        SlotSkyline { starts, table }
    }

    /// The longest stay over `[start, end)`, and the slot that stays; `(0, _)` where nothing is.
    pub fn longest(&self, start: u64, end: u64) -> (u32, u32) {
        let first = self.starts.partition_point(|&s| s <= start).saturating_sub(1);
        let last = self.starts.partition_point(|&s| s < end);
        if first >= last || start >= end {
            return (0, 0);
        }
        let level = (last - first).ilog2() as usize;
        let row = &self.table[level];
        row[first].max(row[last - (1 << level)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_skyline_answers_as_a_search_of_all_ranges_does(
            ranges in prop::collection::vec((0u64..40, 0u64..12, 0u32..9), 0..20),
            start in 0u64..45,
            length in 0u64..20,
        ) {
            let ranges: Vec<_> =
                ranges.into_iter().enumerate().map(|(i, (s, l, until))| (s, s + l, until, i as u32)).collect();
            let end = start + length;
            let expected = ranges
                .iter()
                .filter(|&&(s, e, ..)| s.max(start) < e.min(end))
                .map(|&(.., until, _)| until)
                .max()
                .unwrap_or(0);
            prop_assert_eq!(SlotSkyline::new(ranges).longest(start, end).0, expected);
        }
    }
}
