//! First fit in order of time, forwards or backwards: what a simple allocator would do online.
//!
//! The live items are kept by their gaps only, so a run is one pass over the events: the fastest of all orders, and
//! close to the bound where sizes repeat.

use crate::gaps::Gaps;
use crate::problem::Part;

/// Places all items of a part that is neither a ring nor has fixed items. `None` as soon as a top reaches `limit`.
/// O(n log n), and O(n * gaps / 64) at worst.
pub(crate) fn sweep(part: &Part, backwards: bool, limit: u64) -> Option<Vec<u64>> {
    let m = part.sections;
    let span = |i: u32| {
        let item = &part.items[i as usize];
        if backwards { (m - item.upper, m - item.lower) } else { (item.lower, item.upper) }
    };
    let n = part.items.len() as u32;
    let mut starts: Vec<u32> = (0..n).collect();
    // What starts together is placed longest first.
    starts.sort_unstable_by_key(|&i| {
        let (from, to) = span(i);
        (from, !to, !part.items[i as usize].size, i)
    });
    let mut ends: Vec<u32> = (0..n).collect();
    ends.sort_unstable_by_key(|&i| (span(i).1, i));
    let mut gaps = Gaps::new(part.base);
    let mut offsets = vec![0; n as usize];
    let mut gone = 0;
    for &i in &starts {
        let (from, _) = span(i);
        while gone < ends.len() && span(ends[gone]).1 <= from {
            let e = ends[gone] as usize;
            gaps.give(offsets[e], offsets[e] + part.items[e].size);
            gone += 1;
        }
        let item = &part.items[i as usize];
        let offset = gaps.take(item.size, item.align)?;
        if offset.saturating_add(item.size) >= limit {
            return None;
        }
        offsets[i as usize] = offset;
    }
    Some(offsets)
}
