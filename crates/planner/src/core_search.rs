//! The hard core of a large part: what lives near the peak is placed by the exact search as if nothing else were
//! there, the others by first fit around it.
//!
//! Near the peak nothing may be wasted, so a good order of placement is not enough; but few buffers live there, and
//! those of equal lifetime may be taken as one. Everywhere else there is room for the rest, holes included. An item
//! that found no place below the target joins the core of the next attempt.

use std::collections::BTreeMap;

use crate::exact::{Exact, Outcome, Style};
use crate::first_fit::FirstFit;
use crate::problem::{Part, Problem, prepare};
use crate::{Buffer, Instance};

/// Items of one core, at most.
const LARGEST: usize = 2048;

/// A core: groups of items of equal lifetime, each group one buffer of the small problem.
pub(crate) struct Core {
    groups: Vec<Vec<u32>>,
    problem: Problem,
}

impl Core {
    /// Of the items chosen; `None` if they are too many.
    pub fn new(part: &Part, chosen: impl Fn(u32) -> bool) -> Option<Core> {
        let mut groups: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for i in (0..part.items.len() as u32).filter(|&i| chosen(i)) {
            let item = &part.items[i as usize];
            groups.entry((item.lower, item.upper)).or_default().push(i);
        }
        if groups.is_empty() || groups.len() > LARGEST {
            return None;
        }
        let buffer = |(&(lower, upper), group): (&(u32, u32), &Vec<u32>)| Buffer {
            lower: lower.into(),
            upper: upper.into(),
            size: group.iter().fold(0, |sum, &i| sum.saturating_add(part.items[i as usize].size)),
            alignment: 1,
            fixed: None,
        };
        let buffers = groups.iter().map(buffer).collect();
        let period = part.ring.then_some(u64::from(part.sections));
        let problem = prepare(&Instance { buffers, period }).ok()?;
        Some(Core { groups: groups.into_values().collect(), problem })
    }

    /// Items of the core from the lowest to the highest, in a solution below `limit` (over the part's base); and the
    /// work done.
    pub fn order(&self, limit: u64, style: Style, mut work: u64) -> (Option<Vec<u32>>, u64) {
        let allowed = work;
        let mut at: Vec<(u64, u32)> = self.problem.decided.iter().map(|&(id, offset)| (offset, id)).collect();
        for part in &self.problem.parts {
            let mut exact = Exact::new(part, 1 << 14);
            let outcome = exact.run(limit / self.problem.unit, style, work);
            work = work.saturating_sub(exact.work);
            if outcome != Outcome::Found {
                return (None, allowed - work);
            }
            at.extend(part.items.iter().zip(&exact.offsets).map(|(item, &offset)| (offset, item.id)));
        }
        at.sort_unstable();
        let order = at.into_iter().flat_map(|(_, group)| self.groups[group as usize].iter().copied()).collect();
        (Some(order), allowed - work)
    }
}

/// Completes an order of the core by the others in their order, and places all by first fit.
pub(crate) fn complete(fit: &mut FirstFit, mut core: Vec<u32>, others: &[u32]) -> Option<Vec<u64>> {
    let mut placed = vec![false; others.len()];
    core.iter().for_each(|&i| placed[i as usize] = true);
    core.extend(others.iter().copied().filter(|&i| !placed[i as usize]));
    fit.run(&core, u64::MAX)
}
