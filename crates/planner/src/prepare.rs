//! The instance made small: times become sections, sizes become multiples of one unit, and independent stretches of
//! time become parts.
//!
//! A **section** is a maximal set of buffers that live together, found as a run of starts between two runs of ends.
//! Moving each start to the first of its run and each end to the last of its run changes no pair's overlap, so a
//! lifetime is a range of sections and nothing is lost. (Sections are those of MiniMalloc, ASPLOS 2023; the merging
//! of runs makes every one a maximal clique of the interference graph, without building the graph.)
//!
//! A **part** is a stretch of sections that no lifetime leaves; parts share addresses freely and are solved apart.

use crate::part::{Item, Part, Problem};
use crate::split::split;
use crate::validate::validate;
use crate::{Error, Instance, bound};

/// Checks the instance and prepares it. O(n log n) time, O(n) memory.
pub(crate) fn prepare(instance: &Instance) -> Result<Problem, Error> {
    validate(instance)?;
    let unit = unit(instance);
    let mut problem = Problem { unit, ..Problem::default() };
    let mut items = Vec::with_capacity(instance.buffers.len());
    let mut fixed = Vec::new();
    for (id, b) in instance.buffers.iter().enumerate() {
        let id = id as u32;
        match b.fixed {
            // A multiple of the unit, or it is in nobody's way and the caller's own value is kept.
            Some(offset) if b.counts() => fixed.push((id, offset / unit)),
            Some(_) => {}
            None if !b.counts() => problem.decided.push((id, 0)),
            None => items.push(id),
        }
    }
    let sections = SectionMap::find(instance, items.iter().copied().chain(fixed.iter().map(|f| f.0)));
    let make = |id: u32| {
        let b = &instance.buffers[id as usize];
        let (lower, upper) = sections.range(b.lower, b.upper);
        let align = if unit.is_multiple_of(b.alignment) { 1 } else { b.alignment / unit };
        Item { lower, upper, size: b.size.div_ceil(unit), align, id }
    };
    let items: Vec<Item> = items.into_iter().map(make).collect();
    let fixed: Vec<(Item, u64)> = fixed.into_iter().map(|(id, offset)| (make(id), offset)).collect();
    split(Part { items, fixed, sections: sections.count, ring: sections.ring, ..Part::default() }, &mut problem);
    bound::fill(instance, &mut problem)?;
    Ok(problem)
}

/// The largest unit in which every offset can be counted without losing the best solution.
///
/// Offsets lie on the grid of the alignments' and fixed places' common divisor, so sizes may be rounded up to it:
/// whatever comes above an item begins on the grid too. A solution pushed down as far as it goes has offsets that are
/// sums of these sizes, each rounded up to some alignment; so the unit is the sizes' divisor, and each alignment must
/// either divide it (and then asks for nothing) or be a multiple of it.
fn unit(instance: &Instance) -> u64 {
    let lives = || instance.buffers.iter().filter(|b| b.counts());
    let grid = lives().fold(0, |g, b| gcd(gcd(g, b.alignment), b.fixed.unwrap_or(0))).max(1);
    let steps = lives().fold(0, |g, b| gcd(gcd(g, b.size.div_ceil(grid)), b.fixed.unwrap_or(0) / grid)).max(1);
    let mut unit = grid.checked_mul(steps).unwrap_or(grid);
    loop {
        let lowered = lives().fold(unit, |u, b| if u.is_multiple_of(b.alignment) { u } else { gcd(u, b.alignment) });
        if lowered == unit {
            return unit;
        }
        unit = lowered;
    }
}

pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The map from times to sections.
struct SectionMap {
    /// Time at which each section begins, rotated so that the first is 0.
    begins: Vec<u64>,
    count: u32,
    ring: bool,
    period: u64,
    /// Time (in the instance) of the first section of a ring.
    origin: u64,
}

impl SectionMap {
    fn find(instance: &Instance, live: impl Iterator<Item = u32> + Clone) -> SectionMap {
        let period = instance.period.unwrap_or(0);
        let ring = period > 0;
        // In a ring, what lives always has neither start nor end.
        let passing = live.map(|id| &instance.buffers[id as usize]).filter(|b| !ring || b.upper - b.lower < period);
        let mut starts: Vec<u64> = passing.clone().map(|b| b.lower).collect();
        let mut ends: Vec<u64> = passing.map(|b| if ring { b.upper % period } else { b.upper }).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let mut begins = Vec::new();
        let mut e = 0;
        // Whether the last event was an end; in a ring the first event follows the last one of the cycle.
        let mut ended = !ring || ends.last() > starts.last();
        for &start in &starts {
            while e < ends.len() && ends[e] <= start {
                e += 1;
                ended = true;
            }
            if ended {
                begins.push(start);
                ended = false;
            }
        }
        let origin = if ring { begins.first().copied().unwrap_or(0) } else { 0 };
        begins.iter_mut().for_each(|t| *t -= origin);
        begins.shrink_to_fit();
        let count = (begins.len() as u32).max(1);
        SectionMap { begins, count, ring, period, origin }
    }

    /// The sections of a lifetime.
    fn range(&self, lower: u64, upper: u64) -> (u32, u32) {
        if self.ring && upper - lower >= self.period {
            return (0, self.count);
        }
        let first = |t: u64| self.begins.partition_point(|&b| b <= t) as u32 - 1;
        let before = |t: u64| self.begins.partition_point(|&b| b < t) as u32;
        if !self.ring {
            return (first(lower), before(upper));
        }
        let from = if lower >= self.origin { lower - self.origin } else { self.period - (self.origin - lower) };
        let (room, length) = (self.period - from, upper - lower);
        let to = if length <= room { before(from + length) } else { self.count + before(length - room) };
        (first(from), to)
    }
}
