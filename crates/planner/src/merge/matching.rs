//! Merges that leave something empty.
//!
//! A **candidate** is a whole block, or what two or three would become that touch, begin together or end together. Two
//! candidates **match** if they go together and leave nothing more empty: with what is lost within them, they explain each
//! other. For two sizes in a row that this is so by chance is as unlikely as that two numbers are equal by chance; for two
//! lifetimes it is less so, as many begin at one section. So rows come first, and what loses the smallest share.

use rustc_hash::FxHashMap;

use super::blocks::{Block, Blocks, Made};
use crate::hash::Rng;

/// Candidates of one section or one key that are looked at, at most.
const NEAREST: usize = 24;

/// Blocks of one size that a block is tried in a row with, at most: those that begin next after its end.
const NEXT: usize = 4;

/// No member.
const NONE: u32 = u32::MAX;

/// What a round looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Matches in a row, of candidates of up to so many blocks.
    Rows(usize),
    /// Matches that are stacked.
    Stacks(usize),
}

/// A block, or what some would become.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Made of candidates; a whole block, of itself.
    block: Block,
    /// Area that stays empty within.
    lost: f64,
    members: [u32; 3],
}

impl Candidate {
    fn members(&self) -> impl Iterator<Item = u32> {
        self.members.into_iter().filter(|&member| member != NONE)
    }

    fn shares(&self, other: &Candidate) -> bool {
        self.members().any(|member| other.members.contains(&member))
    }
}

/// One round: merges all that is found, what loses least first, as far as there is room and the finds do not exclude each
/// other; no more once so much work is done. How many, and the work done.
pub(super) fn round(blocks: &mut Blocks, kind: Kind, rng: &mut Rng, most: u64) -> (usize, u64) {
    let mut candidates = Candidates::whole(blocks);
    match kind {
        Kind::Rows(most) | Kind::Stacks(most) => (2..=most).for_each(|_| candidates.grow(blocks)),
    }
    let mut found = match kind {
        Kind::Rows(_) => candidates.rows(blocks),
        Kind::Stacks(_) => candidates.stacks(),
    };
    let looking = 4 * (candidates.all.len() + found.len()) as u64;
    let before = blocks.work();
    // Noise, so that each time others come first.
    found.iter_mut().for_each(|f| f.0 *= 1.0 + (rng.next() % 1024) as f64 / 1024.0);
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged = 0;
    for (_, made) in found {
        if looking + blocks.work() - before > most {
            break;
        }
        merged += usize::from(candidates.merge(blocks, made));
    }
    (merged, looking + blocks.work() - before)
}

type Lists<K> = FxHashMap<K, Vec<u32>>;

fn of<K: std::hash::Hash + Eq>(lists: &Lists<K>, key: K) -> impl Iterator<Item = u32> {
    lists.get(&key).into_iter().flatten().copied().take(NEAREST)
}

struct Candidates {
    all: Vec<Candidate>,
    /// How many of them are whole blocks, which come first; and where those begin that were added last.
    whole: usize,
    newest: usize,
    starting: Lists<u32>,
    ending: Lists<u32>,
}

impl Candidates {
    fn whole(blocks: &mut Blocks) -> Candidates {
        let make = |blocks: &Blocks, id: u32| {
            let block = Block { made: Made::Item(id), ..blocks.all[id as usize] };
            Candidate { block, lost: 0.0, members: [id, NONE, NONE] }
        };
        let all: Vec<Candidate> = blocks.whole().into_iter().map(|id| make(blocks, id)).collect();
        let (mut starting, mut ending) = (Lists::default(), Lists::default());
        for (c, k) in all.iter().zip(0..) {
            starting.entry(c.block.lower).or_insert_with(Vec::new).push(k);
            ending.entry(blocks.wrap(c.block.upper)).or_insert_with(Vec::new).push(k);
        }
        Candidates { whole: all.len(), newest: 0, all, starting, ending }
    }

    /// Adds what those that were added last would become with one block more.
    fn grow(&mut self, blocks: &Blocks) {
        let first = self.newest == 0;
        let mut made = Vec::new();
        for k in self.newest as u32..self.all.len() as u32 {
            let block = self.all[k as usize].block;
            let (lower, upper) = (block.lower, blocks.wrap(block.upper));
            // Of two whole blocks, each pair once.
            let alike = of(&self.starting, lower).chain(of(&self.ending, upper)).filter(|&other| !first || other > k);
            made.extend(alike.map(|other| Made::Stack(k, other)));
            made.extend(of(&self.starting, upper).map(|other| Made::Row(k, other)));
            if !first {
                made.extend(of(&self.ending, lower).map(|other| Made::Row(other, k)));
            }
        }
        self.newest = self.all.len();
        made.into_iter().for_each(|made| self.add(blocks, made));
        if first {
            self.add_pauses(blocks);
        }
    }

    /// Adds rows of two of one size, the second after a pause.
    fn add_pauses(&mut self, blocks: &Blocks) {
        let mut order: Vec<u32> = (0..self.whole as u32).collect();
        order.sort_unstable_by_key(|&k| (self.all[k as usize].block.size, self.all[k as usize].block.lower, k));
        for (n, &k) in order.iter().enumerate() {
            let block = self.all[k as usize].block;
            // Those of one size are in order of their begins.
            let others = &order[n + 1..];
            let other = |o: u32| self.all[o as usize].block;
            let from = others.partition_point(|&o| (other(o).size, other(o).lower) <= (block.size, block.upper));
            let after: Vec<u32> =
                others[from..].iter().copied().take_while(|&o| other(o).size == block.size).take(NEXT).collect();
            after.into_iter().for_each(|other| self.add(blocks, Made::Row(k, other)));
        }
    }

    fn add(&mut self, blocks: &Blocks, made: Made) {
        let Some((a, b)) = made.pair() else { return };
        let (a, b) = (self.all[a as usize], self.all[b as usize]);
        let block = blocks.joined(a.block, b.block, made);
        if a.shares(&b) || !blocks.may_be(block.length()) {
            return;
        }
        let mut members = [NONE; 3];
        members.iter_mut().zip(a.members().chain(b.members())).for_each(|(slot, member)| *slot = member);
        let lost = a.lost + b.lost + (block.area() - a.block.area() - b.block.area());
        self.all.push(Candidate { block, lost, members });
    }

    /// What is lost of all that two take, if something is and they have no block in common.
    fn share(&self, a: u32, b: u32) -> Option<f64> {
        let (a, b) = (&self.all[a as usize], &self.all[b as usize]);
        let lost = a.lost + b.lost;
        (lost > 0.0 && !a.shares(b)).then(|| lost / (a.block.area() + b.block.area()))
    }

    /// Matches in a row, each with the share that it loses.
    fn rows(&self, blocks: &Blocks) -> Vec<(f64, Made)> {
        let mut starts: Lists<(u32, u64)> = Lists::default();
        for (c, k) in self.all.iter().zip(0..) {
            starts.entry((c.block.lower, c.block.size)).or_default().push(k);
        }
        let mut found = Vec::new();
        for (c, k) in self.all.iter().zip(0..) {
            for other in of(&starts, (blocks.wrap(c.block.upper), c.block.size)) {
                let length = c.block.length() + self.all[other as usize].block.length();
                let share = self.share(k, other).filter(|_| blocks.may_be(length));
                found.extend(share.map(|share| (share, Made::Row(k, other))));
            }
        }
        found
    }

    /// Matches that are stacked.
    fn stacks(&self) -> Vec<(f64, Made)> {
        let mut same: Lists<(u32, u32)> = Lists::default();
        let mut found = Vec::new();
        for (c, k) in self.all.iter().zip(0..) {
            let list = same.entry((c.block.lower, c.block.upper)).or_default();
            let others = list.iter().rev().take(NEAREST);
            found.extend(others.filter_map(|&other| Some((self.share(other, k)?, Made::Stack(other, k)))));
            list.push(k);
        }
        found
    }

    /// Merges two candidates, if all their blocks are whole still and there is room for what is lost.
    fn merge(&self, blocks: &mut Blocks, made: Made) -> bool {
        let Some((a, b)) = made.pair() else { return false };
        let members = || [a, b].into_iter().flat_map(|k| self.all[k as usize].members());
        let mut pieces = Vec::new();
        self.pieces(blocks, made, &mut pieces);
        if members().any(|member| !blocks.is_whole(member)) || !blocks.lose(&pieces) {
            return false;
        }
        self.realise(blocks, made);
        blocks.merge_exact();
        true
    }

    /// What stays empty: first section, sections, height.
    fn pieces(&self, blocks: &Blocks, made: Made, pieces: &mut Vec<(u32, u32, u64)>) {
        let Some((a, b)) = made.pair() else { return };
        let [a, b] = [a, b].map(|k| self.all[k as usize].block);
        self.pieces(blocks, a.made, pieces);
        self.pieces(blocks, b.made, pieces);
        let whole = blocks.joined(a, b, made);
        if let Made::Stack(..) = made {
            let (short, long) = if a.length() < b.length() { (a, b) } else { (b, a) };
            let from = if short.lower == long.lower { blocks.wrap(short.upper) } else { long.lower };
            pieces.push((from, long.length() - short.length(), short.size));
        } else {
            let pause = whole.length() - a.length() - b.length();
            pieces.push((a.lower, a.length(), whole.size - a.size));
            pieces.push((b.lower, b.length(), whole.size - b.size));
            pieces.push((blocks.wrap(a.upper), pause, whole.size));
        }
    }

    fn realise(&self, blocks: &mut Blocks, made: Made) -> u32 {
        let mut whole = |k: u32| self.realise(blocks, self.all[k as usize].block.made);
        let made = match made {
            Made::Item(block) => return block,
            // No candidate is made of these.
            Made::Hole | Made::Wheel(_) => return NONE,
            Made::Stack(a, b) => Made::Stack(whole(a), whole(b)),
            Made::Row(a, b) => Made::Row(whole(a), whole(b)),
        };
        blocks.merge(made)
    }
}
