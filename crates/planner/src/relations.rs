//! Instances in which more than lifetimes decides who may share addresses: conflicts of buffers that do not live together, and
//! gaps, in which one needs less than all of its bytes.
//!
//! What is known of plain instances is used twice. Each buffer without its gaps is a plain one, whose plan says in what order
//! to place all by first fit; and the pieces between gaps, as if each could lie anywhere, are plain ones, whose bound holds.

use std::cmp::Reverse;

use crate::clock::SolveClock;
use crate::hash::{Rng, mix};
use crate::lifetimes::Lifetimes;
use crate::part::{Item, Part};
use crate::solve::solve_within;
use crate::{Buffer, Error, Instance, SearchProgress, Solution, SolveOptions, SolverWatch, check};

/// What a buffer takes between its gaps: when, and which of its bytes, from its offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub buffer: usize,
    pub lower: u64,
    pub upper: u64,
    pub first: u64,
    pub last: u64,
}

impl Instance {
    /// What all buffers take; nothing of those that are in nobody's way.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable_by_key(|gap| (gap.buffer, gap.lower, gap.upper));
        let pieces = move |(buffer, b): (usize, &Buffer)| {
            let own = gaps.partition_point(|gap| gap.buffer < buffer);
            let mut made = Vec::with_capacity(1);
            let mut from = b.lower;
            for gap in gaps[own..].iter().take_while(|gap| gap.buffer == buffer) {
                made.push(Piece { buffer, lower: from, upper: gap.lower, first: 0, last: b.size });
                let (first, last) = gap.window.unwrap_or((0, 0));
                made.push(Piece { buffer, lower: gap.lower, upper: gap.upper, first, last });
                from = gap.upper;
            }
            made.push(Piece { buffer, lower: from, upper: b.upper, first: 0, last: b.size });
            made.retain(|piece| piece.lower < piece.upper && piece.first < piece.last);
            // A piece of a lifetime that wraps around may begin after that.
            for piece in &mut made {
                let around = self.period.filter(|&period| piece.lower >= period).unwrap_or(0);
                (piece.lower, piece.upper) = (piece.lower - around, piece.upper - around);
            }
            made
        };
        self.buffers.iter().enumerate().flat_map(pieces)
    }
}

/// One in so many parts of the work goes into the plain instances.
const SHARE: u64 = 3;

/// Finds a place for every buffer of an instance with gaps or conflicts.
pub(crate) fn solve(
    instance: &Instance,
    options: &SolveOptions,
    clock: &SolveClock,
    watch: &mut SolverWatch,
) -> Result<Solution, Error> {
    crate::validate::validate(instance)?;
    let third = SolveClock { work: clock.work / SHARE, ..clock.clone() };
    let piece = |p: Piece| Buffer { lower: p.lower, upper: p.upper, size: p.last - p.first, alignment: 1, fixed: None };
    let pieces =
        Instance { buffers: instance.pieces().map(piece).collect(), period: instance.period, ..Instance::default() };
    let mut nothing_yet = |_: &SearchProgress| watch(&SearchProgress { peak: u64::MAX, lower_bound: 0 });
    let below = solve_within(&pieces, &SolveOptions { enough: 0, ..*options }, &third, &mut nothing_yet)?;
    // A buffer ends no lower than at its size, whatever its gaps.
    let least = |b: &Buffer| b.fixed.unwrap_or(0).saturating_add(b.size);
    let least = instance.buffers.iter().filter(|b| b.counts()).map(least).max();
    let lower_bound = below.lower_bound.max(least.unwrap_or(0));
    let whole = Instance { gaps: vec![], conflicts: vec![], ..instance.clone() };
    // Where fixed ones may overlap thanks to gaps there is no such plan.
    let plain = solve_within(&whole, options, &third, &mut nothing_yet).ok();
    let spent = below.work.saturating_add(plain.as_ref().map_or(0, |plain| plain.work));
    let mut search = PieceSearch::new(instance);
    let mut best: Option<(u64, Vec<u64>)> = None;
    let mut order: Vec<usize> = (0..instance.buffers.len()).filter(|&i| instance.buffers[i].counts()).collect();
    let size = |i: usize| Reverse((instance.buffers[i].size, instance.buffers[i].upper - instance.buffers[i].lower));
    match &plain {
        Some(plain) => order.sort_by_key(|&i| (plain.offsets[i], size(i))),
        None => order.sort_by_key(|&i| size(i)),
    }
    if let Some(plain) = plain {
        let solution = Solution { lower_bound: plain.lower_bound.min(plain.peak), ..plain };
        if check(instance, &Solution { optimal: false, ..solution.clone() }).is_ok() {
            best = Some((solution.peak, solution.offsets));
        }
    }
    let enough = lower_bound.max(options.enough);
    let mut rng = Rng::new(mix(options.seed));
    let (mut now, mut kept, mut stale) = (order.clone(), order, 0u64);
    for run in 0u64.. {
        let done = best.as_ref().is_some_and(|best| best.0 <= enough);
        if done || best.is_some() && (spent.saturating_add(search.work) >= clock.work || clock.is_over()) {
            break;
        }
        let offsets = search.first_fit(&now).ok_or(Error::TooLarge)?;
        let top = search.top(&offsets);
        if best.as_ref().is_none_or(|best| top < best.0) {
            best = Some((top, offsets.clone()));
            (kept, stale) = (now.clone(), 0);
            if !watch(&SearchProgress { peak: top, lower_bound }) {
                break;
            }
        }
        stale += 1;
        if run == 0 {
            now.sort_by_key(|&i| size(i));
            continue;
        }
        // In the best order what stuck out goes earlier, and a few others by chance.
        let aim = best.as_ref().map_or(top, |best| best.0);
        now.clone_from(&kept);
        let high = |i: &usize| offsets[*i].saturating_add(instance.buffers[*i].size) >= aim;
        let Some(from) = now.iter().position(high).filter(|_| !now.is_empty()) else { continue };
        let earlier = rng.next() as usize % (from + 1);
        now[earlier..=from].rotate_right(1);
        for _ in 0..stale % 8 {
            let (a, b) = (rng.next() as usize % now.len(), rng.next() as usize % now.len());
            now.swap(a, b);
        }
    }
    let (peak, offsets) = best.ok_or(Error::TooLarge)?;
    let work = spent.saturating_add(search.work);
    Ok(Solution { offsets, peak, lower_bound, optimal: peak == lower_bound, work })
}

/// First fit over pieces.
struct PieceSearch<'a> {
    instance: &'a Instance,
    pieces: Vec<Piece>,
    /// Pieces of each buffer, which are neighbours.
    of: Vec<(u32, u32)>,
    part: Part,
    lifetimes: Lifetimes,
    conflicts: Vec<Vec<usize>>,
    work: u64,
}

impl<'a> PieceSearch<'a> {
    fn new(instance: &'a Instance) -> PieceSearch<'a> {
        let pieces: Vec<Piece> = instance.pieces().collect();
        let mut of = vec![(0, 0); instance.buffers.len()];
        for (k, piece) in pieces.iter().enumerate() {
            let own = &mut of[piece.buffer];
            *own = (if own.0 == own.1 { k as u32 } else { own.0 }, k as u32 + 1);
        }
        let period = instance.period.unwrap_or(u64::MAX);
        let wrap = |t: u64| if instance.period.is_some() { t % period } else { t };
        let mut times: Vec<u64> = pieces.iter().flat_map(|p| [wrap(p.lower), wrap(p.upper)]).collect();
        times.push(0);
        times.sort_unstable();
        times.dedup();
        let count = times.len() as u32;
        let rank = |t: u64| times.partition_point(|&other| other < t) as u32;
        let item = |(id, p): (usize, &Piece)| {
            let (lower, mut upper) = (rank(wrap(p.lower)), rank(wrap(p.upper)));
            if p.upper - p.lower >= period {
                upper = lower + count;
            } else if upper <= lower {
                upper += count;
            }
            Item { lower, upper, size: p.last - p.first, align: 1, id: id as u32 }
        };
        let items = pieces.iter().enumerate().map(item).collect();
        let part = Part { items, sections: count, ring: instance.period.is_some(), ..Part::default() };
        let mut conflicts = vec![Vec::new(); instance.buffers.len()];
        for &(a, b) in &instance.conflicts {
            conflicts[a].push(b);
            conflicts[b].push(a);
        }
        PieceSearch { instance, lifetimes: Lifetimes::new(&part), pieces, of, part, conflicts, work: 0 }
    }

    /// Places buffers in an order, each at the lowest offset that is free; `None` if no address reaches so far.
    fn first_fit(&mut self, order: &[usize]) -> Option<Vec<u64>> {
        let buffers = &self.instance.buffers;
        let mut offsets: Vec<Option<u64>> = buffers.iter().map(|b| b.fixed.filter(|_| b.counts())).collect();
        let mut taken: Vec<(i128, i128)> = Vec::new();
        for &i in order {
            let b = &buffers[i];
            // Even what is all gap, so that whoever runs this until its work is done comes to an end.
            self.work += 1;
            if b.fixed.is_some() {
                continue;
            }
            // Offsets that would overlap with what has its place: after the first, before the second.
            taken.clear();
            for k in self.of[i].0..self.of[i].1 {
                let (own, item) = (self.pieces[k as usize], self.part.items[k as usize]);
                let pieces = &self.pieces;
                self.work += self.lifetimes.meeting(item.lower, item.upper, self.part.sections, |other| {
                    let other = pieces[other as usize];
                    if let Some(offset) = offsets[other.buffer].filter(|_| other.buffer != i) {
                        let at = |byte: u64| i128::from(offset) + i128::from(byte);
                        taken.push((at(other.first) - i128::from(own.last), at(other.last) - i128::from(own.first)));
                    }
                });
            }
            for &other in &self.conflicts[i] {
                if let Some(offset) = offsets[other] {
                    let at = i128::from(offset);
                    taken.push((at - i128::from(b.size), at + i128::from(buffers[other].size)));
                }
            }
            taken.sort_unstable();
            let align = i128::from(b.alignment);
            let mut offset = 0i128;
            for &(from, to) in &taken {
                if from < offset && offset < to {
                    offset = (to + align - 1) / align * align;
                }
            }
            offsets[i] = Some(u64::try_from(offset).ok().filter(|offset| offset.checked_add(b.size).is_some())?);
        }
        Some(buffers.iter().zip(offsets).map(|(b, offset)| offset.or(b.fixed).unwrap_or(0)).collect())
    }

    fn top(&self, offsets: &[u64]) -> u64 {
        let tops = self.instance.buffers.iter().zip(offsets).filter(|(b, _)| b.counts());
        tops.map(|(b, offset)| offset.saturating_add(b.size)).max().unwrap_or(0)
    }
}
