//! From a draft to a plan: ends, sections, offsets.

use std::ops::Range;

use stalloc_plan::{Entry, Plan, Release, Section, Slot};
use stalloc_planner::Effort;

use crate::draft::Draft;
use crate::ends::{self, End, Ends};
use crate::error::Error;
use crate::layout::{self, ALIGNMENT, Work};
use crate::outline::{Outline, outline};
use crate::tuning::running_work;

/// Where the steps of a running program are placed: what lives already and stays keeps its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// As low as possible, between what stays: most of the memory that is mapped now is used where it is.
    Between,
    /// Above it, where all that lives at once would have room: steps are packed as tightly as if nothing were there, on memory that has
    /// to be remapped once. What is lost is what pages that hold something of it have left over.
    Above,
}

/// A plan that was made while its program runs, and the ranges of live blocks that stay where they are.
#[derive(Clone, Debug)]
pub struct Drafted {
    /// The plan.
    pub plan: Plan,
    /// What lives already and stays, bytes: disjoint, ascending.
    pub staying: Vec<Range<u64>>,
}

impl Draft {
    /// A plan for the running program: what lives now and stays keeps its offset (bytes), which `fixed` knows by what the
    /// caller calls a request; `None` where it is not in the arena. A draft of nothing gives a plan without slots.
    ///
    /// # Errors
    /// If the planner refuses, or the plan does not pass its independent check.
    pub fn plan(&self, fixed: impl Fn(u64) -> Option<u64>, around: Around) -> Result<Drafted, Error> {
        let options = stalloc_planner::SolveOptions {
            effort: Effort::Quick,
            work_limit: Some(running_work()),
            ..stalloc_planner::SolveOptions::default()
        };
        let ends = ends::find(self);
        let staying = ends.staying.iter().filter_map(|live| Some((fixed(live.id)?, live.size)));
        let staying = merged(staying.map(|(start, size)| start..start.saturating_add(size)).collect());
        // What stays above a room for all that lives is no wall: a planner that saw it there would find any plan low enough.
        let (near, above) = staying.split_at(below_room(&staying, self.peak));
        let all = near.last().map(|last| 0..last.end);
        let walls = if around == Around::Above { all.as_slice() } else { near };
        let plan = self.make(ends, walls, &mut Work::new(&options))?.plan;
        if above.first().is_some_and(|first| plan.arena > first.start) {
            return Err(Error::NoRoom);
        }
        let verdict = plan.check();
        if verdict.ok {
            Ok(Drafted { plan, staying })
        } else {
            Err(Error::Unsound(verdict.problems.into_iter().next().unwrap_or_default()))
        }
    }

    /// A plan around walls.
    pub(crate) fn make(&self, mut ends: Ends, walls: &[Range<u64>], budget: &mut Work) -> Result<Made, Error> {
        let (outline, items) = loop {
            let outline = outline(self, &ends);
            let items = outline.items();
            // What may still be alive where it is made again has no offset in any order of steps.
            let meets_itself: Vec<usize> = (0..items.len()).filter(|&i| items[i].meets_itself()).collect();
            if meets_itself.is_empty() {
                break (outline, items);
            }
            for slot in meets_itself {
                let slot = &outline.slots[slot];
                ends.of[outline.sections[slot.section].part][slot.lower as usize] = End::Open;
            }
        };
        let layout = layout::place(&outline.shapes(), &items, walls, budget)?;
        let slots = outline.slots.iter().zip(&layout.offsets).map(|(slot, &offset)| Slot {
            size: slot.size,
            offset,
            stream: slot.stream,
            lower: slot.lower,
            upper: slot.upper,
        });
        let sections = outline.sections.iter().map(|section| {
            let mut releases: Vec<Release> =
                section.releases.iter().map(|(&slot, &at)| Release { at, slot: slot as u32 }).collect();
            releases.sort_unstable();
            let entry = |(slot, key): (&Option<usize>, &crate::RequestKey)| match *slot {
                Some(slot) => Entry::Slot(slot as u32),
                None => Entry::WithoutOffset { size: key.size, stream: key.stream },
            };
            Section {
                kind: section.kind,
                name: section.name.clone(),
                runs: section.runs,
                entries: section.slot_of.iter().zip(&self.kinds[section.part].known.keys).map(entry).collect(),
                releases,
                followers: section.followers.iter().map(|&next| next as u32).collect(),
            }
        });
        let plan = Plan {
            alignment: ALIGNMENT,
            arena: layout.top,
            lower_bound: layout.lower_bound,
            expected_peak: self.peak,
            slots: slots.collect(),
            sections: sections.collect(),
            ..Plan::default()
        };
        Ok(Made { plan, outline, ends })
    }
}

/// A plan and what it was made of.
pub(crate) struct Made {
    pub plan: Plan,
    pub outline: Outline,
    pub ends: Ends,
}

/// How many disjoint ranges, ascending, lie below the first room of so many bytes between them.
fn below_room(ranges: &[Range<u64>], room: u64) -> usize {
    let is_below = |pair: &[Range<u64>]| pair[1].start - pair[0].end >= room;
    ranges.windows(2).position(is_below).map_or(ranges.len(), |last| last + 1)
}

/// Ranges as disjoint ones, ascending, in whole units of the plan's alignment; those that touch are one.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut walls: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let (start, end) =
            (range.start / ALIGNMENT * ALIGNMENT, range.end.saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        match walls.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => walls.push(start..end),
        }
    }
    walls
}

#[cfg(test)]
mod tests;
