//! Merges of a rectangle's pieces of which some are missing.
//!
//! What is likely to be missing (`holes`) is held to be items of which nothing is known but that they take room, and then all is
//! merged as if nothing were missing. Where the loads tell only one end of a hole, a block next to it tells the other, if with it
//! the block goes together with a third; and a block that is alone in a hole is as large as the hole.

use super::blocks::{Block, Blocks, Made};
use super::holes::{Hole, MOST, changes, holes};
use super::retry::Retry;
use crate::hash::Rng;

/// Blocks that begin or end with one, and changes on either side of one, that are looked at, at most.
const NEAREST: usize = 12;

/// Blocks of one size that begin next after one's end, of which one may be what follows a hole.
const NEXT: usize = 4;

/// Where something is missing and more than one block in so many is left at once, it is no such rectangle, and no more is tried.
const PROMISING: usize = 2;

/// Merges with what is likely to be missing of a line of which all is merged that leaves nothing empty. Whether it seems to be such a
/// rectangle, and the work done, of not much more than `work` or what is `left` in all; if it does not, all is as it was.
pub(super) fn fill(blocks: &mut Blocks, rng: &mut Rng, (work, left): (u64, u64)) -> (bool, u64) {
    let most_left = if changes(blocks.room()).is_empty() { usize::MAX } else { blocks.count / PROMISING };
    let untouched = blocks.snapshot();
    let mut done = 0;
    for most in 2..=MOST {
        done += settle(blocks, most, rng);
        if blocks.count > most_left || blocks.is_late() {
            blocks.restore(&untouched);
            return (false, done);
        }
    }
    let mut merge = |blocks: &mut Blocks, _: u32, rng: &mut Rng| {
        settle(blocks, 2, rng) + settle(blocks, 3 + rng.next() as usize % (MOST - 2), rng)
    };
    let work = (work.saturating_sub(done), left.saturating_sub(done));
    let left = |blocks: &Blocks| blocks.count + changes(blocks.room()).len();
    let retry = Retry { merge: &mut merge, left, work, tries: u32::MAX };
    let (given_up, spent) = retry.run(blocks, rng);
    done += spent;
    if given_up {
        blocks.restore(&untouched);
    }
    (!given_up, done)
}

/// Merges with holes of which up to so many changes tell, until nothing more is found; the work done.
fn settle(blocks: &mut Blocks, most: usize, rng: &mut Rng) -> u64 {
    blocks.merge_exact();
    let mut changes = changes(blocks.room());
    let mut work = 4 * changes.len() as u64 + blocks.room().len() as u64 / 2;
    let mut found = holes(&mut changes, most);
    found.sort_by_cached_key(|&(lower, upper, _)| u64::from(upper - lower) * (8 + rng.next() % 8));
    for hole in found {
        // Each time without some others.
        if !rng.next().is_multiple_of(8) {
            blocks.add_hole(hole);
        }
    }
    work += 16 * blocks.count as u64;
    blocks.merge_all();
    while !blocks.is_late() {
        let (confirmed, looked) = confirm(blocks, rng);
        let (floating, more) = float(blocks);
        work += looked + more;
        if confirmed + floating == 0 {
            break;
        }
    }
    blocks.merge_all();
    blocks.drop_holes();
    work
}

/// Merges blocks with what is missing next to them, where the loads say that it begins or ends there and what they become goes
/// with another block. How many, and the work done.
fn confirm(blocks: &mut Blocks, rng: &mut Rng) -> (usize, u64) {
    let whole: Vec<u32> = blocks.whole();
    let lifetime = |k: &u32| (blocks.all[*k as usize].lower, blocks.all[*k as usize].upper);
    let mut starting: Vec<(u32, u32)> = whole.iter().map(lifetime).collect();
    let mut ending: Vec<(u32, u32)> = starting.iter().map(|&(lower, upper)| (upper, lower)).collect();
    starting.sort_unstable();
    ending.sort_unstable();
    let mut order = whole.clone();
    order.sort_unstable_by_key(|&k| (blocks.all[k as usize].size, blocks.all[k as usize].lower, k));
    let mut found: Vec<(f64, u32, Hole)> = Vec::new();
    let mut work = 32 * whole.len() as u64;
    for (n, &k) in order.iter().enumerate() {
        let Block { lower, upper, size, .. } = blocks.all[k as usize];
        let (first, last) = (blocks.change(lower), blocks.change(upper));
        let mut add = |hole: Hole| {
            let noise = 1.0 + (rng.next() % 1024) as f64 / 1024.0;
            found.push((f64::from(hole.1 - hole.0) * hole.2 as f64 * noise, k, hole));
        };
        if first > 0 {
            add((lower, upper, first as u64));
        }
        if last < 0 {
            add((lower, upper, last.unsigned_abs()));
        }
        let size_change = size as i64;
        // Those of one size are in order of their begins.
        let others = &order[n + 1..];
        let other = |o: u32| blocks.all[o as usize];
        let after = others.partition_point(|&o| (other(o).size, other(o).lower) <= (size, upper));
        let nexts = others[after..].iter().map(|&o| other(o)).take_while(|b| b.size == size).take(NEXT);
        let nexts = nexts.map(|b| b.lower);
        let from = starting.partition_point(|&l| l <= (lower, upper));
        let ends = starting[from..].iter().take(NEAREST).take_while(|l| l.0 == lower).map(|l| l.1);
        for end in nexts.chain(ends) {
            work += 4;
            if last == size_change || blocks.change(end) == -size_change {
                add((upper, end, size));
            }
        }
        let to = ending.partition_point(|&l| l < (upper, lower));
        let begins = ending[..to].iter().rev().take(NEAREST).take_while(|l| l.0 == upper).map(|l| l.1);
        for begin in begins {
            work += 4;
            if first == -size_change || blocks.change(begin) == size_change {
                add((begin, lower, size));
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged = 0;
    for (_, k, hole) in found {
        merged += usize::from(take(blocks, k, hole));
    }
    (merged, work)
}

/// Puts blocks into holes in which they are alone. How many, and the work done.
fn float(blocks: &mut Blocks) -> (usize, u64) {
    let whole: Vec<u32> = blocks.whole();
    let changes = changes(blocks.room());
    let work = 4 * whole.len() as u64;
    let mut merged = 0;
    for k in whole {
        let Block { lower, upper, size, .. } = blocks.all[k as usize];
        if !blocks.is_whole(k) {
            continue;
        }
        // As if it were not there.
        let change = |at: u32| blocks.change(at) + size as i64 * (i64::from(at == lower) - i64::from(at == upper));
        let after = changes.partition_point(|c| c.at < upper);
        let before = changes.partition_point(|c| c.at <= lower);
        let begins = changes[before.saturating_sub(NEAREST)..before].iter().rev().map(|c| c.at);
        let hole = begins.filter(|&a| change(a) > size as i64).find_map(|a| {
            let s = change(a);
            let ends = changes[after..].iter().take(NEAREST).map(|c| c.at);
            ends.into_iter().find(|&b| change(b) == -s).map(|b| (a, b, s as u64))
        });
        let Some((a, b, s)) = hole else { continue };
        let pieces = [(a, lower - a, s), (lower, upper - lower, s - size), (upper, b - upper, s)];
        if !blocks.lose(&pieces) {
            continue;
        }
        let hole = |lower: u32, upper: u32, size: u64| Block { lower, upper, size, made: Made::Hole };
        let above = blocks.add(hole(lower, upper, s - size));
        let mut all = blocks.merge(Made::Stack(k, above));
        if a < lower {
            let before = blocks.add(hole(a, lower, s));
            all = blocks.merge(Made::Row(before, all));
        }
        if upper < b {
            let after = blocks.add(hole(upper, b, s));
            blocks.merge(Made::Row(all, after));
        }
        blocks.merge_exact();
        merged += 1;
    }
    (merged, work)
}

/// Merges a block with a hole, if what they become goes with another block.
fn take(blocks: &mut Blocks, k: u32, hole: Hole) -> bool {
    let (lower, upper, size) = hole;
    let block = blocks.all[k as usize];
    let begins = blocks.change(lower) == size as i64;
    if !blocks.is_whole(k) || !(begins || blocks.change(upper) == -(size as i64)) {
        return false;
    }
    let stacked = (lower, upper) == (block.lower, block.upper);
    let both = Block {
        lower: lower.min(block.lower),
        upper: upper.max(block.upper),
        size: if stacked { size + block.size } else { size },
        ..block
    };
    if blocks.partner_of(both, [k, k]).is_none() {
        return false;
    }
    let Some(hole) = blocks.add_hole(hole) else { return false };
    blocks.merge(match (stacked, lower < block.lower) {
        (true, _) => Made::Stack(k, hole),
        (false, true) => Made::Row(hole, k),
        (false, false) => Made::Row(k, hole),
    });
    blocks.merge_exact();
    true
}
