//! What went together by chance is stuck sooner or later: so some neighbours are taken apart and merged again in another order, as
//! long as there is time, and what leaves less is kept (large neighbourhood search, Shaw 1998).

use super::blocks::Blocks;
use crate::hash::Rng;

/// Tries without success before one goes back to the best that was found.
const PATIENCE: u32 = 300;

/// Blocks that are taken apart, at most, and how far down; more by one after so many tries without success.
const OPENED: usize = 6;
const LEVELS: u32 = 6;
const MORE_OPENED: u32 = 50;
const MORE_LEVELS: u32 = 20;

/// After one share in so many of the work all is as good as lost if the rest, at the rate so far, would take so many times the work.
/// Rectangles of which 5 to 20 % are missing are at 0.3 to 1.5 times then, the instance pangu_2.6B at 3 to 5.
const SHARE: u64 = 8;
const REACH: u64 = 2;

/// Work of a try for each whole block, besides merging.
const WORK_PER_BLOCK: u64 = 4;

/// How it is done.
pub(super) struct Retry<'a> {
    /// Merges what was taken apart, which has this number and higher ones; the work done.
    pub merge: &'a mut dyn FnMut(&mut Blocks, u32, &mut Rng) -> u64,
    /// What is to be little.
    pub left: fn(&Blocks) -> usize,
    /// Work and tries without success, at most; and after what work all ends, which nothing else depends on.
    pub work: (u64, u64),
    pub tries: u32,
}

impl Retry<'_> {
    /// Goes on until one block is left or it is not worth more work, and leaves the best that was found; whether it was given
    /// up after a share of the work, and the work done.
    pub fn run(self, blocks: &mut Blocks, rng: &mut Rng) -> (bool, u64) {
        let Retry { merge, left, work: (work, end), tries } = self;
        let first = left(blocks);
        let (mut now, mut kept) = (first, blocks.snapshot());
        let mut best = (now, kept.clone());
        let (mut stale, mut failed, mut done) = (0, 0, 0);
        let (mut look, mut given_up) = (Some(work / SHARE), false);
        while blocks.count > 1 && done < work.min(end) && failed < tries && !blocks.is_late() {
            if look.take_if(|look| done >= *look).is_some() {
                let gained = (first - best.0) as u64;
                if done.saturating_mul(best.0 as u64) > REACH.saturating_mul(work).saturating_mul(gained) {
                    given_up = true;
                    break;
                }
            }
            stale += 1;
            failed += 1;
            if stale > PATIENCE {
                (now, kept, stale) = (best.0, best.1.clone(), 0);
                blocks.restore(&kept);
            }
            let newest = blocks.all.len() as u32;
            done += take_apart(blocks, stale, rng);
            done += merge(blocks, newest, rng);
            let after = left(blocks);
            // Now and then a little worse is good enough.
            if after <= now + (rng.next() % 2) as usize {
                (now, kept) = (after, blocks.snapshot());
            } else {
                blocks.restore(&kept);
            }
            if now < best.0 {
                (best, stale, failed) = ((now, kept.clone()), 0, 0);
            }
        }
        if best.0 < now {
            blocks.restore(&best.1);
        }
        (given_up, done)
    }
}

/// Takes some neighbours apart; the work done.
fn take_apart(blocks: &mut Blocks, stale: u32, rng: &mut Rng) -> u64 {
    let whole = blocks.whole();
    let around = blocks.all[whole[rng.next() as usize % whole.len()] as usize];
    let at = if rng.next().is_multiple_of(2) { around.lower } else { blocks.wrap(around.upper) };
    let away = |k: u32| {
        let block = blocks.all[k as usize];
        blocks.between(block.lower, at).min(blocks.between(blocks.wrap(block.upper), at))
    };
    let mut near: Vec<(u32, u32)> = whole.iter().map(|&k| (away(k), k)).collect();
    near.sort_unstable();
    near.truncate(1 + rng.next() as usize % (OPENED + (stale / MORE_OPENED) as usize));
    for n in (1..near.len()).rev() {
        near.swap(n, rng.next() as usize % (n + 1));
    }
    for &(_, k) in &near {
        let levels = 1 + rng.next() as u32 % (LEVELS + stale / MORE_LEVELS);
        blocks.open(k, levels, rng);
    }
    blocks.drop_holes();
    WORK_PER_BLOCK * whole.len() as u64
}
