//! Merges that stand noise: of two lifetimes that are nearly one, and of two of one size with a pause between them.
//!
//! Where every end is a little off, nothing goes together exactly. But of two that belong together the ends are nearer, or the sizes
//! more alike, than chance would have it: so each pair is compared by how many as good ones are to be expected if all lay
//! at random, times the share that it leaves empty. What stays empty counts as load, and no load may exceed the limit.

use rustc_hash::FxHashMap;

use super::blocks::{Block, Blocks, Made};
use super::retry::Retry;
use crate::hash::Rng;

/// Others that begin next which a block is compared with, and those of its own size.
const OTHERS: usize = 48;
const NEXT: usize = 3;

/// Work of a look for pairs, for each whole block and for each pair that is found. With nothing for pairs, 60 million units took 1.8
/// instead of 1.0 s of CPU on shortened:3000:12.
const WORK_PER_BLOCK: u64 = 16;
const WORK_PER_PAIR: u64 = 4;

/// Ends of what is stacked differ by one in so many of the shorter one's sections, at most. Worst of blurred:1000:11 to 13,
/// shortened:3000:12 and ring:3000:13 at 60 million units: 1.074 with 4, 1.045 with 3, 1.089 with 2.
const DIFFER: u32 = 3;

/// Of all pairs, those go together at once that are no more likely to be chance than so many times the best.
const AT_ONCE: f64 = 4.0;

/// Pairs are in another order each time: by a random factor up to so much, at first and when some were taken apart.
const NOISE: [f64; 2] = [1.5, 5.0];

/// Tries without success that are enough.
const TRIES: u32 = 600;

/// A share that is taken to be empty in any pair.
const EMPTY: f64 = 0.05;

/// A pair, as the block that it would be.
struct Pair {
    block: Block,
    cost: f64,
}

impl Pair {
    fn new(block: Block, filled: f64, expected: f64) -> Pair {
        Pair { block, cost: expected * (EMPTY + 1.0 - filled) }
    }
}

/// Merges until nothing more is found, then takes some apart and merges them again for `length` times as long, of the work `left`
/// in all; the work done. Mean of 72 rows at 60 million units: 1.0129; for a half as long 1.0203, for three times 1.0144.
pub(super) fn merge_near(blocks: &mut Blocks, rng: &mut Rng, (length, left): (u64, u64)) -> u64 {
    let done = settle(blocks, 0, rng, left);
    let mut merge = |blocks: &mut Blocks, newest: u32, rng: &mut Rng| settle(blocks, newest, rng, left);
    let work = (done.saturating_mul(length), left.saturating_sub(done));
    done + Retry { merge: &mut merge, left: |blocks| blocks.count, work, tries: TRIES }.run(blocks, rng).1
}

/// Merges pairs of which one is no older than `newest`, until nothing more is found; the work done.
fn settle(blocks: &mut Blocks, newest: u32, rng: &mut Rng, most: u64) -> u64 {
    let noise = NOISE[usize::from(newest > 0)] - 1.0;
    let mut work = 0;
    while work < most && !blocks.is_late() {
        let before = blocks.work();
        blocks.merge_exact();
        let (mut pairs, looked) = pairs(blocks, newest);
        pairs.iter_mut().for_each(|pair| pair.cost *= 1.0 + noise * (rng.next() % 1024) as f64 / 1024.0);
        pairs.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let (mut last, mut merged) = (f64::MAX, 0);
        for pair in &pairs {
            if pair.cost > last {
                break;
            }
            if merge(blocks, pair) {
                merged += 1;
                last = if newest == 0 { last.min(pair.cost * AT_ONCE) } else { last };
            }
        }
        work += looked + WORK_PER_PAIR * pairs.len() as u64 + blocks.work() - before;
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

/// Pairs that nearly go together, one of each no older than `newest`, and the work of finding them.
fn pairs(blocks: &mut Blocks, newest: u32) -> (Vec<Pair>, u64) {
    let mut order = blocks.whole();
    order.sort_unstable_by_key(|&id| (blocks.all[id as usize].lower, id));
    let (count, sections) = (order.len() as f64, blocks.room().len() as f64);
    let mut sums: FxHashMap<u64, Vec<(u32, u32)>> = FxHashMap::default();
    let mut sizes: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    for &id in &order {
        let b = blocks.all[id as usize];
        sums.entry(b.size).or_default().push((b.lower, b.upper));
        sizes.entry(b.size).or_default().push(id);
    }
    let chance = chance(sizes.values().map(Vec::len));
    let mut found = Vec::new();
    let mut work = order.len() as u64 * WORK_PER_BLOCK;
    // `a` begins no later than `b`.
    let mut stack = |first: u32, second: u32| {
        let (a, b) = (blocks.all[first as usize], blocks.all[second as usize]);
        let later = blocks.distance(a.lower, b.lower);
        let shorter = a.length().min(b.length());
        if later > shorter / DIFFER {
            return later <= a.length() / DIFFER;
        }
        let (ends, own) = (later + b.length(), a.length());
        let length = ends.max(own);
        if ends.abs_diff(own) > shorter / DIFFER || !blocks.may_be(length) {
            return true;
        }
        let size = a.size.saturating_add(b.size);
        let block = Block { lower: a.lower, upper: a.lower + length, size, made: Made::Stack(first, second) };
        let expected =
            count * f64::from(2 * later + 1) * f64::from(2 * ends.abs_diff(own) + 1) / (sections * f64::from(shorter));
        found.push(Pair::new(block, (a.area() + b.area()) / block.area(), expected));
        sums.entry(size).or_default().push((block.lower, block.upper));
        true
    };
    for (n, &id) in order.iter().enumerate().filter(|(_, id)| **id >= newest) {
        let after = order[n + 1..].iter().chain(&order[..n]);
        for &other in after.take(OTHERS) {
            work += 1;
            if !stack(id, other) {
                break;
            }
        }
        let before = order[..n].iter().rev().chain(order[n + 1..].iter().rev());
        for &other in before.take(if newest > 0 { OTHERS } else { 0 }) {
            work += 1;
            let too_far = blocks.distance(blocks.all[other as usize].lower, blocks.all[id as usize].lower)
                > blocks.all[id as usize].length() / DIFFER;
            if too_far {
                break;
            }
            if other < newest {
                stack(other, id);
            }
        }
    }
    for (&size, alike) in sizes.iter().filter(|(_, alike)| alike.len() > 1) {
        // In order of their begins.
        for &id in alike {
            let a = blocks.all[id as usize];
            let from = alike.partition_point(|&k| blocks.all[k as usize].lower < blocks.wrap(a.upper));
            for &other in alike[from..].iter().chain(&alike[..from]).take(NEXT) {
                if other == id || id.max(other) < newest {
                    continue;
                }
                work += 1;
                let b = blocks.all[other as usize];
                let pause = blocks.distance(blocks.wrap(a.upper), b.lower);
                let block = blocks.joined(a, b, Made::Row(id, other));
                if pause < u32::MAX && blocks.may_be(block.length()) {
                    let expected = (alike.len() - 1) as f64 * chance * f64::from(pause + 1) / sections;
                    let filled = f64::from(a.length() + b.length()) / f64::from(block.length());
                    found.push(Pair::new(Block { size, ..block }, filled, expected));
                }
            }
        }
    }
    explain(blocks, &mut found, &sums);
    (found, work)
}

/// How many others of its size one has by chance, at most.
fn chance(counts: impl Iterator<Item = usize>) -> f64 {
    let (all, others) = counts.fold((0, 0), |(all, others), count| (all + count, others + count * (count - 1)));
    (others as f64 / all.max(1) as f64).min(1.0)
}

/// What is as high as something that ends where it begins, or begins where it ends, is less likely to be chance.
fn explain(blocks: &Blocks, pairs: &mut [Pair], sums: &FxHashMap<u64, Vec<(u32, u32)>>) {
    let chance = chance(sums.values().map(Vec::len));
    let sections = blocks.room().len() as f64;
    let away = |end: u32, begin: u32| blocks.between(blocks.wrap(end), begin);
    for pair in pairs {
        let Made::Stack(..) = pair.block.made else { continue };
        let own = pair.block;
        let alike = sums.get(&own.size).map_or(&[][..], Vec::as_slice);
        let pauses =
            alike.iter().take(OTHERS).map(|&(lower, upper)| away(own.upper, lower).min(away(upper, own.lower)));
        if let Some(pause) = pauses.min().filter(|&pause| pause <= own.length() / DIFFER) {
            pair.cost *= (alike.len() as f64 * chance * f64::from(2 * pause + 1) / sections).min(1.0);
        }
    }
}
