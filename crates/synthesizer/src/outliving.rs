//! Planned requests that outlive what was made of them.
//!
//! How long an entry lives is put together from what was seen of it in several steps, so that the plan holds for steps in any
//! order. Rarely a request of the recording itself lives longer than that. Its entry is dynamic, then: a plan of
//! all others is worth more than none.

use std::collections::BTreeMap;

use stalloc_plan::Plan;

use crate::sequence::Sequence;

/// Requests that are still alive where the plan puts a later one. O(n log n).
pub fn outliving(plan: &Plan, sequence: &Sequence) -> Vec<u32> {
    let slot = |request: usize| plan.trace_map[request].map(|slot| &plan.slots[slot as usize]);
    let mut ends: Vec<(u32, usize)> = (0..sequence.len()).map(|i| (sequence.dies[i], i)).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    // Live ones by their offset: who ends where. No two overlap, since who is overlapped is taken out.
    let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for request in 0..sequence.len() {
        while let Some((_, gone)) = ends.next_if(|&(dies, _)| dies as usize <= request) {
            let Some(slot) = slot(gone) else { continue };
            if live.get(&slot.offset).is_some_and(|&(_, owner)| owner == gone) {
                live.remove(&slot.offset);
            }
        }
        let Some(slot) = slot(request) else { continue };
        let end = slot.offset + slot.size;
        while let Some((&offset, &(_, older))) =
            live.range(..end).next_back().filter(|&(_, &(below, _))| below > slot.offset)
        {
            live.remove(&offset);
            found.push(older as u32);
        }
        live.insert(slot.offset, (end, request));
    }
    found
}
