//! Where everything goes: from items with lifetimes in sections to offsets.
//!
//! 1. What the steady state always keeps (weights, optimizer states) lies at the bottom, in the order in which it is
//!    made. Nothing is lost by that: a buffer that always lives can be slid to the bottom of any plan.
//! 2. Each repeating part is planned above it as a cyclic instance, the heaviest first ([`part`]).
//! 3. What runs once (prologue, first step, what follows the last step) is planned around all that, in the same way.
//!
//! In a running program, what lives there already and stays is a *wall*: taken all the time.
//!
//! Streams get regions of their own unless sharing saves more than [`sharing_must_save`].

mod blocks;
mod budget;
mod part;

use std::ops::Range;

use stalloc_plan::SectionKind;
use stalloc_planner::Error;

use crate::tuning::sharing_must_save;

pub use budget::Work;

/// Every offset is a multiple of this.
pub const ALIGNMENT: u64 = stalloc_trace::ROUNDING;

/// Lives through a whole section.
pub const THROUGH: u32 = u32::MAX;

/// A request to place: bytes, stream, and when it lives in its own section and in later ones.
#[derive(Clone, Debug)]
pub struct Item {
    /// Section in which it is made.
    pub section: usize,
    /// When, on the section's clock.
    pub lower: u32,
    /// When it is gone, at most the section's period; the period if it lives on.
    pub upper: u32,
    /// Sections that it lives on into, and until when in each; [`THROUGH`] for all of it.
    pub reach: Vec<(usize, u32)>,
    /// Whether it is never released.
    pub forever: bool,
    /// Bytes, a multiple of [`ALIGNMENT`].
    pub size: u64,
    /// Stream.
    pub stream: u32,
}

impl Item {
    /// Whether it is still alive, on some path of sections, when it is made again.
    pub fn meets_itself(&self) -> bool {
        self.reach.iter().any(|&(section, until)| section == self.section && until > self.lower)
    }
}

/// A section, as far as layout is concerned.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its kind.
    pub kind: SectionKind,
    /// Its part: sections of one part are copies of each other, in the order in which they follow.
    pub part: usize,
    /// Length of its clock.
    pub period: u32,
}

/// The offset of each item, the end of the highest one, and what no layout can be below, bytes.
#[derive(Clone, Debug)]
pub struct ArenaLayout {
    /// Offset of each item.
    pub offsets: Vec<u64>,
    /// One past the highest address used.
    pub top: u64,
    /// No layout of the heaviest part can be lower than this.
    pub lower_bound: u64,
}

/// Places all items around walls: disjoint ranges of addresses, ascending, that are taken all the time.
pub fn place(shapes: &[Shape], items: &[Item], walls: &[Range<u64>], budget: &mut Work) -> Result<ArenaLayout, Error> {
    let streams = items.iter().map(|item| item.stream as usize + 1).max().unwrap_or(0);
    let mut used = vec![false; streams];
    items.iter().for_each(|item| used[item.stream as usize] = true);
    let all: Vec<usize> = (0..items.len()).collect();
    if used.iter().filter(|&&used| used).count() <= 1 {
        return Stage::new(shapes, items, &all, walls).run(budget);
    }
    let mut apart = ArenaLayout { offsets: vec![0; items.len()], top: 0, lower_bound: 0 };
    for stream in (0..streams as u32).filter(|&stream| used[stream as usize]) {
        let own: Vec<usize> = all.iter().copied().filter(|&i| items[i].stream == stream).collect();
        // The regions of earlier streams are one more wall.
        let top = apart.top;
        let above = walls.iter().filter(|wall| wall.end > top).map(|wall| wall.start.max(top)..wall.end);
        let walls: Vec<Range<u64>> = (top > 0).then_some(0..top).into_iter().chain(above).collect();
        let region = Stage::new(shapes, items, &own, &walls).run(budget)?;
        for i in own {
            apart.offsets[i] = region.offsets[i];
            apart.top = apart.top.max(region.offsets[i] + items[i].size);
        }
    }
    apart.top = walls.last().map_or(0, |wall| wall.end).max(apart.top);
    let shared = Stage::new(shapes, items, &all, walls).run(budget)?;
    if (shared.top as f64) < apart.top as f64 * (1.0 - sharing_must_save()) {
        return Ok(shared);
    }
    Ok(ArenaLayout { lower_bound: shared.lower_bound, ..apart })
}

/// A layout in the making.
struct Stage<'a> {
    shapes: &'a [Shape],
    items: &'a [Item],
    /// Items to place.
    own: &'a [usize],
    /// Taken all the time.
    walls: &'a [Range<u64>],
    /// Offsets found so far.
    offsets: Vec<Option<u64>>,
    /// Where the wall at the bottom ends.
    floor: u64,
    /// What the steady state always keeps ends here.
    base: u64,
    always: Vec<bool>,
    top: u64,
    lower_bound: u64,
}

impl<'a> Stage<'a> {
    fn new(shapes: &'a [Shape], items: &'a [Item], own: &'a [usize], walls: &'a [Range<u64>]) -> Self {
        let offsets = vec![None; items.len()];
        let always = vec![false; items.len()];
        // What always lives goes above a wall at the bottom.
        let (base, walls) = match walls.split_first() {
            Some((first, above)) if first.start == 0 => (first.end, above),
            _ => (0, walls),
        };
        let top = walls.last().map_or(base, |wall| wall.end);
        Stage { shapes, items, own, walls, floor: base, offsets, base, always, top, lower_bound: 0 }
    }

    fn run(mut self, budget: &mut Work) -> Result<ArenaLayout, Error> {
        self.stack_what_always_lives()?;
        for part in self.repeating_parts() {
            let copies: Vec<usize> = (0..self.shapes.len()).filter(|&s| self.shapes[s].part == part).collect();
            self.plan_part(&copies, budget)?;
        }
        for chain in self.chains() {
            self.plan_part(&chain, budget)?;
        }
        let offsets = self.offsets.iter().map(|offset| offset.unwrap_or(0)).collect();
        Ok(ArenaLayout { offsets, top: self.top, lower_bound: self.lower_bound })
    }

    fn repeats(&self, section: usize) -> bool {
        self.shapes[section].kind == SectionKind::Repeating
    }

    fn put(&mut self, item: usize, offset: u64) -> Result<(), Error> {
        let end = offset.checked_add(self.items[item].size).ok_or(Error::TooLarge)?;
        self.offsets[item] = Some(offset);
        self.top = self.top.max(end);
        Ok(())
    }

    /// Walls above the bottom are a running program's, whose plan has steps that repeat alone: nothing is stacked there.
    fn stack_what_always_lives(&mut self) -> Result<(), Error> {
        let repeating = (0..self.shapes.len()).filter(|&section| self.repeats(section)).count();
        let own = self.own;
        for &i in own {
            let item = &self.items[i];
            let through = item.reach.iter().filter(|&&(section, until)| self.repeats(section) && until == THROUGH);
            if !self.repeats(item.section) && through.count() == repeating {
                self.always[i] = true;
                self.put(i, self.base)?;
                self.base += item.size;
            }
        }
        self.lower_bound = self.base;
        Ok(())
    }

    /// The repeating parts, the heaviest first.
    fn repeating_parts(&self) -> Vec<usize> {
        let parts = self.shapes.iter().map(|shape| shape.part + 1).max().unwrap_or(0);
        let mut change: Vec<Vec<(u32, i128)>> = vec![Vec::new(); self.shapes.len()];
        for &i in self.own {
            let item = &self.items[i];
            let size = i128::from(item.size);
            change[item.section].extend([(item.lower, size), (item.upper, -size)]);
            for &(section, until) in item.reach.iter().filter(|(section, _)| self.repeats(*section)) {
                change[section].extend([(0, size), (until, -size)]);
            }
        }
        let mut heaviest = vec![-1i128; parts];
        for (section, mut change) in change.into_iter().enumerate() {
            change.sort_unstable();
            let mut load = 0;
            let peak = change.iter().map(|&(_, bytes)| {
                load += bytes;
                load
            });
            let peak = peak.max().unwrap_or(0);
            if self.repeats(section) {
                let part = self.shapes[section].part;
                heaviest[part] = heaviest[part].max(peak);
            }
        }
        let mut order: Vec<usize> = (0..parts).filter(|&part| heaviest[part] >= 0).collect();
        order.sort_by_key(|&part| std::cmp::Reverse(heaviest[part]));
        order
    }

    /// Runs of sections that run once, one right after the other.
    fn chains(&self) -> Vec<Vec<usize>> {
        let sections: Vec<usize> = (0..self.shapes.len()).collect();
        let chains = sections.chunk_by(|&a, &b| !self.repeats(a) && !self.repeats(b));
        chains.filter(|chain| !self.repeats(chain[0])).map(<[usize]>::to_vec).collect()
    }
}
