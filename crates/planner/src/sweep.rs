//! First fit in order of time, forwards or backwards: what a simple allocator would do online.
//!
//! The live items are kept by their gaps only, so a run is one pass over the events: the fastest of all orders, and
//! close to the bound where sizes repeat.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::first_fit::FirstFit;
use crate::gaps::ChunkedGaps;
use crate::part::{Item, Part};

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
    let mut gaps = ChunkedGaps::new(part.base);
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

/// Places all items of a part, in order of time around what is fixed; those that live across the end of a ring first.
/// `None` as soon as a top reaches `limit`. O(n log n) where few fixed items begin during an item's life.
pub(crate) fn sweep_around(part: &Part, limit: u64) -> Option<Vec<u64>> {
    let m = part.sections;
    let mut wrapping: Vec<u32> = (0..part.items.len() as u32).filter(|&i| part.items[i as usize].upper > m).collect();
    wrapping.sort_by_key(|&i| Reverse(part.items[i as usize].length()));
    let mut fit = (!wrapping.is_empty()).then(|| FirstFit::new(part));
    let mut offsets = vec![0; part.items.len()];
    // What has its place already, piece by piece: (from when, until when, first address, one past the last).
    let mut solid: Vec<(u32, u32, u64, u64)> = Vec::new();
    let mut add = |item: &Item, offset: u64| {
        let (from, to) = (offset.max(part.base), offset.saturating_add(item.size).max(part.base));
        let pieces = [(item.lower, item.upper.min(m)), (0, item.upper.saturating_sub(m))];
        solid.extend(pieces.iter().filter(|p| p.0 < p.1 && from < to).map(|p| (p.0, p.1, from, to)));
    };
    part.fixed.iter().for_each(|(item, offset)| add(item, *offset));
    for i in wrapping {
        let item = &part.items[i as usize];
        let Some(top) = fit.as_mut().map(|fit| fit.place(i)) else { break };
        if top >= limit {
            return None;
        }
        offsets[i as usize] = top - item.size;
        add(item, top - item.size);
    }
    solid.sort_unstable();
    let mut gaps = ChunkedGaps::new(part.base);
    let mut ends: BinaryHeap<Reverse<(u32, u64, u64)>> = BinaryHeap::new();
    let mut begun = 0;
    let mut blocked: Vec<(u64, u64)> = Vec::new();
    for (i, item) in part.items.iter().enumerate().filter(|(_, item)| item.upper <= m) {
        // In order of time: what ends before something begins makes room for it.
        loop {
            let next = solid.get(begun).filter(|s| s.0 <= item.lower);
            let until = next.map_or(item.lower, |s| s.0);
            while let Some(&Reverse((_, from, to))) = ends.peek().filter(|end| end.0.0 <= until) {
                ends.pop();
                gaps.give(from, to);
            }
            let Some(&(_, upper, from, to)) = next else { break };
            gaps.claim(from, to);
            ends.push(Reverse((upper, from, to)));
            begun += 1;
        }
        let later = &solid[begun..];
        let later = &later[..later.partition_point(|s| s.0 < item.upper)];
        blocked.clear();
        blocked.extend(later.iter().map(|s| (s.2, s.3)));
        blocked.sort_unstable();
        let offset = gaps.take_clear_of(item.size, item.align, &blocked)?;
        let top = offset.saturating_add(item.size);
        if top >= limit {
            return None;
        }
        offsets[i] = offset;
        ends.push(Reverse((item.upper, offset, top)));
    }
    Some(offsets)
}
