//! A part is improved in turns with what is left of it when its items are merged: all three get the same work.

use std::cell::OnceCell;

use crate::clock::Clock;
use crate::greedy::greedy;
use crate::improve::Improver;
use crate::luby::luby;
use crate::merge::{Lossy, Merged};
use crate::part::{Part, Places};
use crate::{Instance, Options};

/// Work on what one lossy merge leaves, times a term of Luby's sequence.
const ON_ONE: u64 = 20_000_000;

/// And, where what is left is few items, for each: then chance in merging decides, and many merges find more than much work on one
/// (shortened:1000: solved with 3 million units, or not with 20).
const ON_ONE_PER_ITEM: u64 = 40_000;

/// Work on the part itself before anything is merged: for each item, and at most. Training steps are solved by then.
const BEFORE_PER_ITEM: u64 = 2000;
const BEFORE: u64 = 20_000_000;

/// A merge that leaves more than so many in ten of the items is not worth a turn.
const FEWER: usize = 9;

/// After so many merges on end that were not worth it there are no more.
const IDLE: u64 = 3;

/// Work counts one in so many where it led to a better plan, or something is likely to be missing (zero_bubble:3000:53 with 60 million
/// units: 1.0079 instead of 1.0105).
const SHARE: u64 = 8;

/// Lossy merges may fill the loads up to the target, or so many eighths of the gap above it, in turn.
const EIGHTHS: [u64; 4] = [0, 1, 2, 4];

/// What is aimed at, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Goal<'a> {
    pub instance: &'a Instance,
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
    /// Lossy merges so far, and how many of the last were not worth it.
    made: u64,
    idle: u64,
    /// Work done on the part itself, with nothing lost, and with something lost; all of it for what has no turns.
    spent: [u64; 3],
}

impl<'a> Turns<'a> {
    pub fn new(part: &Part) -> Turns<'a> {
        let before = (BEFORE_PER_ITEM * part.items.len() as u64).min(BEFORE);
        Turns { whole: None, exact: None, made: 0, idle: 0, spent: [0, before, before] }
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
        let which = (0..3).min_by_key(|&k| self.spent[k]).unwrap_or(0);
        let threads = goal.clock.threads;
        let (before, mut likely) = (best.top, false);
        let work = match which {
            0 => {
                let improver = self.whole.get_or_insert_with(|| Improver::new(part, threads, goal.options));
                Some(improver.round(best, bound, goal.target, goal.left, goal.clock))
            }
            1 => self.exact(part, merged, best, goal),
            _ => self.lossy(part, best, &mut likely, goal),
        };
        let gained = best.top < before || likely;
        let counts = work.map_or(u64::MAX, |work| if gained { work / SHARE } else { work });
        self.spent[which] = self.spent[which].saturating_add(counts);
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
        let made = merged.get_or_init(|| Merged::exact(part, goal.clock.until).filter(|made| is_worth(part, made)));
        let made = made.as_ref()?;
        let (improver, places) = match &mut self.exact {
            Some(exact) => exact,
            None => {
                let (places, greedy_work) = greedy(&made.part, goal.target, &goal.clock.after(made.work, goal.left))?;
                offer(made, part, &places, best);
                self.exact = Some((Improver::new(&made.part, goal.clock.threads, goal.options), places));
                return Some(made.work + greedy_work);
            }
        };
        // That blocks cannot be placed so low says nothing of the items.
        let work = improver.round(places, &mut 0, goal.target, goal.left, goal.clock);
        offer(made, part, places, best);
        Some(work)
    }

    /// Another merge that loses something, for a while. `None` if none was worth it so far.
    fn lossy(&mut self, part: &Part, best: &mut Places, likely: &mut bool, goal: Goal) -> Option<u64> {
        let Goal { target, options, clock, .. } = goal;
        let gap = best.top - target;
        let limit = target + gap / 8 * EIGHTHS[self.made as usize % EIGHTHS.len()];
        let length = luby(self.made + 1);
        let how = Lossy { instance: goal.instance, limit, k: self.made, seed: options.seed, length, left: goal.left };
        let made = Merged::lossy(part, how, clock.until)?;
        self.made += 1;
        // What was cut short, a longer limit would not see.
        if made.work >= goal.left {
            return Some(made.work);
        }
        if !is_worth(part, &made) {
            self.idle += 1;
            return (self.idle < IDLE).then_some(made.work);
        }
        self.idle = 0;
        let (mut places, greedy_work) = greedy(&made.part, target, &clock.after(made.work, goal.left))?;
        let mut work = made.work + greedy_work;
        let mut improver = Improver::new(&made.part, clock.threads, options);
        let most = ON_ONE.min(ON_ONE_PER_ITEM * made.part.items.len() as u64).saturating_mul(length);
        let until = made.work + most.min(goal.left.saturating_sub(work));
        while work < until && places.top > target && !clock.is_over() {
            work += improver.round(&mut places, &mut 0, target, until - work, clock);
        }
        *likely = made.likely;
        offer(&made, part, &places, best);
        Some(work)
    }
}

/// Whether a merge leaves so few items that it is worth a turn.
fn is_worth(part: &Part, merged: &Merged) -> bool {
    merged.part.items.len() * 10 <= part.items.len() * FEWER
}

/// Takes a solution of what was merged, if it is better.
fn offer(merged: &Merged, part: &Part, places: &Places, best: &mut Places) {
    if places.top < best.top {
        *best = merged.expand(part, places);
    }
}
