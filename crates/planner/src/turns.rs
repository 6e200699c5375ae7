//! A part is improved in turns with what is left of it when its items are merged: all three get the same work.

use std::cell::OnceCell;

use crate::Options;
use crate::clock::Clock;
use crate::greedy::{Places, greedy};
use crate::improve::Improver;
use crate::luby::luby;
use crate::merge::Merged;
use crate::problem::Part;

/// Work on one lossy merge, times a term of Luby's sequence.
const ON_ONE: u64 = 20_000_000;

/// Work on the part itself before anything is merged: for each item, and at most. Training steps are solved by then.
const BEFORE_PER_ITEM: u64 = 2000;
const BEFORE: u64 = 20_000_000;

/// A merge that leaves more than so many in ten of the items is not worth a turn.
const FEWER: usize = 9;

/// Lossy merges may fill the loads up to the target, or so many eighths of the gap above it, in turn.
const EIGHTHS: [u64; 4] = [0, 1, 2, 4];

/// What is aimed at, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Goal<'a> {
    /// The least top that counts.
    pub target: u64,
    /// Work left.
    pub left: u64,
    pub options: &'a Options,
    pub clock: &'a Clock,
}

/// How far the turns of a part have come.
pub(crate) struct Turns<'a> {
    whole: Option<Improver<'a>>,
    exact: Option<(Improver<'a>, Places)>,
    /// Lossy merges so far, and which of their kinds comes first.
    made: u64,
    first: Option<u64>,
    /// Work done on the part itself, with nothing lost, and with something lost; all of it for what has no turns.
    spent: [u64; 3],
}

impl<'a> Turns<'a> {
    pub fn new(part: &Part) -> Turns<'a> {
        let before = (BEFORE_PER_ITEM * part.items.len() as u64).min(BEFORE);
        Turns { whole: None, exact: None, made: 0, first: None, spent: [0, before, before] }
    }

    /// The turn of whatever had least work so far; the work done. `merged` is made when its turn comes.
    pub fn next(
        &mut self,
        part: &'a Part,
        merged: &'a OnceCell<Option<Merged>>,
        best: &mut Places,
        bound: &mut u64,
        goal: Goal,
    ) -> u64 {
        let kinds = if goal.options.parts.merges { 3 } else { 1 };
        let which = (0..kinds).min_by_key(|&k| self.spent[k]).unwrap_or(0);
        let threads = goal.clock.threads;
        let work = match which {
            0 => {
                let improver = self.whole.get_or_insert_with(|| Improver::new(part, threads, goal.options));
                Some(improver.round(best, bound, goal.target, goal.left, goal.clock))
            }
            1 => self.exact(part, merged, best, goal),
            _ => self.lossy(part, best, goal),
        };
        self.spent[which] = work.map_or(u64::MAX, |work| self.spent[which].saturating_add(work));
        work.unwrap_or(0)
    }

    /// What is left when items are merged and nothing is lost.
    fn exact(
        &mut self,
        part: &'a Part,
        merged: &'a OnceCell<Option<Merged>>,
        best: &mut Places,
        goal: Goal,
    ) -> Option<u64> {
        let made = merged.get_or_init(|| worth(part, Merged::exact(part, goal.clock.until)));
        let made = made.as_ref()?;
        let (improver, places) = match &mut self.exact {
            Some(exact) => exact,
            None => {
                let places = greedy(&made.part, goal.target, goal.options.parts, goal.clock)?;
                offer(made, part, &places, best);
                self.exact = Some((Improver::new(&made.part, goal.clock.threads, goal.options), places));
                return Some(made.work);
            }
        };
        // That blocks cannot be placed so low says nothing of the items.
        let work = improver.round(places, &mut 0, goal.target, goal.left, goal.clock);
        offer(made, part, places, best);
        Some(work)
    }

    /// Another merge that loses something, for a while.
    fn lossy(&mut self, part: &Part, best: &mut Places, goal: Goal) -> Option<u64> {
        let Goal { target, options, clock, .. } = goal;
        let gap = best.top - target;
        let merge = |limit: u64, k: u64| worth(part, Merged::lossy(part, limit, k, options.seed, clock.until));
        let made = match self.first {
            Some(first) => {
                let limit = target + gap / 8 * EIGHTHS[(self.made / Merged::LOSSY) as usize % EIGHTHS.len()];
                merge(limit, self.made + first)?
            }
            None => {
                // The kind that leaves the fewest items, of those that are likely to be right.
                let likely = Merged::LIKELY.into_iter().filter_map(|k| Some((k, merge(target, k)?)));
                let (first, made) = likely.min_by_key(|(k, made)| (made.part.items.len(), *k))?;
                self.first = Some(first);
                made
            }
        };
        self.made += 1;
        let mut places = greedy(&made.part, target, options.parts, clock)?;
        let mut improver = Improver::new(&made.part, clock.threads, options);
        let mut work = made.work;
        let most = goal.left.min(ON_ONE * luby(self.made));
        while work < most && places.top > target && !clock.is_over() {
            work += improver.round(&mut places, &mut 0, target, most - work, clock);
        }
        offer(&made, part, &places, best);
        Some(work)
    }
}

/// A merge, if it leaves so few items that it is worth a turn.
fn worth(part: &Part, merged: Option<Merged>) -> Option<Merged> {
    merged.filter(|merged| merged.part.items.len() * 10 <= part.items.len() * FEWER)
}

/// Takes a solution of what was merged, if it is better.
fn offer(merged: &Merged, part: &Part, places: &Places, best: &mut Places) {
    if places.top < best.top {
        *best = merged.expand(part, places);
    }
}
