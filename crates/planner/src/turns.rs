//! A part is improved in turns with what is left of it when its items are merged: both get the same work.

use std::cell::OnceCell;

use crate::clock::SolveClock;
use crate::greedy::greedy;
use crate::improve::Improver;
use crate::merge::Merged;
use crate::part::{Part, Places};

/// Work on the part itself before anything is merged, for each item. Training steps are solved by then.
const BEFORE_PER_ITEM: u64 = 2000;

/// Work counts one in so many where it led to a better plan (zero_bubble:3000:53 with 60 million units: 1.0079 instead of
/// 1.0105).
const SHARE: u64 = 8;

/// What is aimed at, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Goal<'a> {
    /// The least top that counts.
    pub target: u64,
    /// Work left.
    pub left: u64,
    pub seed: u64,
    pub clock: &'a SolveClock,
}

/// How far the turns of a part have come.
#[derive(Default)]
pub(crate) struct Turns<'a> {
    whole: Option<Improver<'a>>,
    merged: Option<(Improver<'a>, Places)>,
    /// Work done on the part itself, and on what is merged; all of it for what has no turns.
    spent: [u64; 2],
}

impl<'a> Turns<'a> {
    pub fn new(part: &Part) -> Turns<'a> {
        Turns { spent: [0, BEFORE_PER_ITEM * part.items.len() as u64], ..Turns::default() }
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
        let which = usize::from(self.spent[1] < self.spent[0]);
        let before = best.top;
        let work = if which == 0 {
            let improver = self.whole.get_or_insert_with(|| Improver::new(part, goal.seed, goal.clock));
            Some(improver.round(best, bound, goal.target, goal.left, goal.clock))
        } else {
            self.merged(part, merged, best, goal)
        };
        let counts = work.map_or(u64::MAX, |work| if best.top < before { work / SHARE } else { work });
        self.spent[which] = self.spent[which].saturating_add(counts);
        work.unwrap_or(0)
    }

    /// The turn of what is left when items are merged; `None` if that is all of them.
    fn merged(
        &mut self,
        part: &'a Part,
        merged: &'a OnceCell<Option<Merged>>,
        best: &mut Places,
        goal: Goal,
    ) -> Option<u64> {
        let is_worth = |made: &Merged| made.part.items.len() < part.items.len();
        let made = merged.get_or_init(|| Merged::new(part, goal.clock.until).filter(is_worth)).as_ref()?;
        let (places, work) = match &mut self.merged {
            // That blocks cannot be placed so low says nothing of the items.
            Some((improver, places)) => {
                let work = improver.round(places, &mut 0, goal.target, goal.left, goal.clock);
                (&*places, work)
            }
            None => {
                let (places, work) = greedy(&made.part, goal.target, &goal.clock.after(made.work, goal.left))?;
                let improver = Improver::new(&made.part, goal.seed, goal.clock);
                (&self.merged.insert((improver, places)).1, made.work + work)
            }
        };
        if places.top < best.top {
            *best = made.expand(part, places);
        }
        Some(work)
    }
}
