//! Merges that stand noise: of two lifetimes that are nearly one, and of two of one size with a pause between them.
//!
//! Where every end is a little off, nothing goes together exactly, but sizes tell: that two of one size follow each other, or two
//! stacks of one height, is unlikely to be chance. So what is explained by equal sizes goes first, what leaves the smallest share
//! empty before the rest, and stacks that nothing explains only where there is nothing else. What stays empty counts as load,
//! and no load may exceed the limit.

use rustc_hash::FxHashMap;

use super::blocks::{Block, Blocks, Made};
use crate::hash::Rng;

/// Others that begin next which a block is compared with, and those of its own size.
const OTHERS: usize = 48;
const NEXT: usize = 3;

/// One in so many of the stacks that nothing explains is merged before the others are looked for again.
const UNEXPLAINED: usize = 8;

/// How much less what equal sizes explain seems to lose.
const EXPLAINED: f64 = 1.0 / 8.0;

/// A pair, as the block that it would be.
struct Pair {
    block: Block,
    cost: f64,
    is_explained: bool,
}

/// Merges until nothing more is found, or the work is done; how much that was. Ends differ by one in `differ` of the shorter one's
/// sections, at most.
pub(super) fn merge_near(blocks: &mut Blocks, differ: u32, rng: &mut Rng, most: u64) -> u64 {
    let mut work = 0;
    while work < most && !blocks.is_late() {
        let before = blocks.work();
        let (mut pairs, looked) = pairs(blocks, differ);
        pairs.iter_mut().for_each(|pair| pair.cost *= 1.0 + (rng.next() % 1024) as f64 / 4096.0);
        pairs.sort_by(|a, b| {
            (!a.is_explained, a.cost).partial_cmp(&(!b.is_explained, b.cost)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let explained = pairs.iter().filter(|pair| pair.is_explained).count();
        let mut merged = 0;
        for (k, pair) in pairs.iter().enumerate() {
            let enough = if k < explained { usize::MAX } else { (pairs.len() - explained).div_ceil(UNEXPLAINED) };
            if k >= explained && (merged >= enough || explained > 0 && merged > 0) {
                break;
            }
            merged += usize::from(merge(blocks, pair));
        }
        work += looked + blocks.work() - before;
        if merged == 0 {
            break;
        }
    }
    work
}

fn merge(blocks: &mut Blocks, pair: &Pair) -> bool {
    let Some((a, b)) = pair.block.made.pair() else { return false };
    if !blocks.is_whole(a) || !blocks.is_whole(b) {
        return false;
    }
    let mut empty = Vec::new();
    let whole = pair.block;
    if let Made::Row(..) = whole.made {
        let [a, b] = [a, b].map(|k| blocks.all[k as usize]);
        empty.push((blocks.wrap(a.upper), whole.length() - a.length() - b.length(), whole.size));
    } else {
        for k in [a, b] {
            let part = blocks.all[k as usize];
            let before = blocks.distance(whole.lower, part.lower);
            empty.push((whole.lower, before, part.size));
            empty.push((blocks.wrap(part.upper), whole.length() - before - part.length(), part.size));
        }
    }
    if !blocks.lose(&empty) {
        return false;
    }
    blocks.merge_as(whole);
    blocks.merge_exact();
    true
}

/// All pairs that nearly go together, and the work of finding them.
fn pairs(blocks: &mut Blocks, differ: u32) -> (Vec<Pair>, u64) {
    let mut order = blocks.whole();
    order.sort_unstable_by_key(|&id| (blocks.all[id as usize].lower, id));
    let mut found = Vec::new();
    let mut sums: FxHashMap<u64, Vec<(u32, u32)>> = FxHashMap::default();
    let mut sizes: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    for &id in &order {
        let b = blocks.all[id as usize];
        sums.entry(b.size).or_default().push((b.lower, b.upper));
        sizes.entry(b.size).or_default().push(id);
    }
    let mut work = order.len() as u64 * 4;
    for (n, &id) in order.iter().enumerate() {
        let a = blocks.all[id as usize];
        let others = order[n + 1..].iter().chain(&order[..n]).take(OTHERS);
        for &other in others {
            work += 1;
            let b = blocks.all[other as usize];
            let later = blocks.distance(a.lower, b.lower);
            if later > a.length() / differ {
                break;
            }
            let (end, ends) = (later + b.length(), a.length());
            let near = a.length().min(b.length()) / differ;
            if later > near || end.abs_diff(ends) > near || !blocks.may_be(end.max(ends)) {
                continue;
            }
            let size = a.size.saturating_add(b.size);
            let block = Block { lower: a.lower, upper: a.lower + end.max(ends), size, made: Made::Stack(id, other) };
            let cost = 1.0 - (a.area() + b.area()) / block.area();
            found.push(Pair { block, cost, is_explained: false });
            sums.entry(size).or_default().push((block.lower, block.upper));
        }
        // Those of one size are in order of their begins.
        let alike = &sizes[&a.size];
        let from = alike.partition_point(|&k| blocks.all[k as usize].lower < blocks.wrap(a.upper));
        for &other in alike[from..].iter().chain(&alike[..from]).take(NEXT).filter(|&&other| other != id) {
            work += 1;
            let b = blocks.all[other as usize];
            let pause = blocks.distance(blocks.wrap(a.upper), b.lower);
            if pause == u32::MAX {
                continue;
            }
            let block = blocks.joined(a, b, Made::Row(id, other));
            if blocks.may_be(block.length()) {
                let cost = EXPLAINED * f64::from(pause) / f64::from(block.length());
                found.push(Pair { block, cost, is_explained: true });
            }
        }
    }
    for pair in &mut found {
        let Made::Stack(..) = pair.block.made else { continue };
        let own = pair.block;
        let near = |from: u32, to: u32| {
            let ahead = blocks.distance(blocks.wrap(from), blocks.wrap(to));
            ahead.min(blocks.distance(blocks.wrap(to), blocks.wrap(from))) <= own.length() / differ
        };
        let alike = sums.get(&own.size).map_or(&[][..], Vec::as_slice);
        work += alike.len().min(OTHERS) as u64;
        if alike.iter().take(OTHERS).any(|&(lower, upper)| near(own.upper, lower) || near(upper, own.lower)) {
            (pair.is_explained, pair.cost) = (true, pair.cost * EXPLAINED);
        }
    }
    (found, work)
}
