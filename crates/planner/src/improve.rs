//! Improvement of one part, in rounds: restarts of the exact search, ejections, and first fit in some orders.
//!
//! Each thread has a lane with its own memory. In a round every lane does a fixed amount of work that depends on the
//! seed, the round and what was best when it began, never on the clock or the other lanes; then the lanes' results
//! are merged in order. So the same seed and threads give the same plan, and more time only adds rounds.

use std::sync::{Mutex, PoisonError};

use crate::clock::{ORDER_WORK, SolveClock, WORK_PER_ITEM};
use crate::core_search::CoreSearch;
use crate::ejections::Ejections;
use crate::exact::{Choice, Exact, SearchOutcome, Style, Taste};
use crate::first_fit::FirstFit;
use crate::greedy::FIRST_FITS;
use crate::hash::mix;
use crate::luby::luby;
use crate::part::{Part, Places};
use crate::rules::{Heaviest, arrange};
use crate::stretches::Stretches;

/// Between the target and the top, dives aim a half of the gap below the top, a quarter, and so on: the next one after so many dives
/// without success.
const RUNG_PATIENCE: u32 = 4;

/// One restart in so many aims at the target itself.
const STRAIGHT: u64 = 3;

/// What a round may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundKind {
    /// Exact search, from nothing to a solution.
    Dive,
    /// Exact search for a core, the others around it.
    Core,
    /// Ejections from the best solution.
    Eject,
    /// First fit in some order.
    Order,
    /// Stretches that are too high, all else around them.
    Stretch,
}
use RoundKind::{Core, Dive, Eject, Order, Stretch};

/// Rounds of parts of few items: at first, and then repeatedly.
const FEW_FIRST: [RoundKind; 8] = [Dive, Dive, Dive, Dive, Dive, Dive, Order, Dive];
const FEW_THEN: [RoundKind; 8] = [Dive, Eject, Dive, Eject, Dive, Eject, Dive, Order];

/// And of parts of many: training steps are most often solved by the first cores.
const MANY_FIRST: [RoundKind; 8] = [Stretch, Core, Order, Core, Core, Stretch, Order, Core];
const MANY_THEN: [RoundKind; 8] = [Dive, Eject, Core, Eject, Stretch, Eject, Order, Eject];

/// Styles that differ in more than noise and seed.
const CHOICES: [Choice; 3] = [Choice::Fewest, Choice::Few, Choice::Lowest];
const TASTES: [Taste; 4] = [Taste::Length, Taste::Area, Taste::Size, Taste::Any];
const STYLES: u64 = (CHOICES.len() * TASTES.len()) as u64;

/// Styles in turn.
fn style(k: u64, seed: u64) -> Style {
    let turn = k as usize;
    Style {
        choice: CHOICES[turn % CHOICES.len()],
        taste: TASTES[turn / CHOICES.len() % TASTES.len()],
        noise: [1, 4, 16][(k / STYLES % 3) as usize],
        seed: mix(seed ^ mix(k)),
        fit: true,
    }
}

/// What one lane found in a round.
struct LaneResult {
    places: Option<Places>,
    /// Proven: nothing at or below this.
    impossible: Option<u64>,
    work: u64,
}

/// A part being improved.
pub(crate) struct Improver<'a> {
    part: &'a Part,
    lanes: Vec<Mutex<Lane<'a>>>,
    round: u64,
}

impl<'a> Improver<'a> {
    pub fn new(part: &'a Part, seed: u64, clock: &SolveClock) -> Improver<'a> {
        let lanes = (0..clock.threads as u64).map(|k| Mutex::new(Lane::new(part, k, seed, clock))).collect();
        Improver { part, lanes, round: 0 }
    }

    /// One round towards `target`, the least top that counts, of not much more than the work `left`; the work that a lane
    /// did at most.
    pub fn round(&mut self, best: &mut Places, bound: &mut u64, target: u64, left: u64, clock: &SolveClock) -> u64 {
        let round = self.round;
        self.round += 1;
        let start = &*best;
        let mut work = 0;
        let results = clock.all(&self.lanes, |lane| {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            lane.clock = clock.after(0, left);
            lane.work(round, start, target)
        });
        for found in results {
            work = work.max(found.work);
            if let Some(places) = found.places
                && places.top < best.top
            {
                *best = places;
            }
            if let Some(limit) = found.impossible {
                *bound = (*bound).max(limit + 1);
            }
        }
        work + self.part.items.len() as u64
    }
}

struct Lane<'a> {
    part: &'a Part,
    number: u64,
    seed: u64,
    /// Work and time left.
    clock: SolveClock,
    /// Towards the bound, and towards heights in between.
    exact: [Option<Box<Exact<'a>>>; 2],
    fit: Option<FirstFit<'a>>,
    heaviest: Option<Heaviest>,
    cores: CoreSearch,
    ejections: Option<Ejections<'a>>,
    stretches: Stretches,
    dives: Ladder,
    /// Rounds of each kind so far.
    turns: [u64; 5],
}

/// Heights between the target and the top, aimed at in turn: a half of the gap below the top, a quarter, and so on; lower
/// after a success, higher after some failures, and from the highest lowest again.
#[derive(Clone, Copy, Debug, Default)]
struct Ladder {
    rung: u32,
    failures: u32,
}

impl Ladder {
    /// The height to aim at.
    fn limit(&self, top: u64, target: u64) -> u64 {
        top - u128::from(top - target).div_ceil(2 << self.rung) as u64
    }

    /// Notes whether something was found, and whether that was aimed at from just below the top.
    fn note(&mut self, success: bool, was_highest: bool) {
        self.failures = if success { 0 } else { self.failures + 1 };
        if success {
            self.rung = self.rung.saturating_sub(1);
        } else if self.failures >= RUNG_PATIENCE {
            (self.rung, self.failures) = (if was_highest { 0 } else { self.rung + 1 }, 0);
        }
    }
}

impl<'a> Lane<'a> {
    fn new(part: &'a Part, number: u64, seed: u64, clock: &SolveClock) -> Lane<'a> {
        Lane {
            part,
            number,
            seed,
            clock: clock.clone(),
            exact: [None, None],
            fit: None,
            heaviest: None,
            cores: CoreSearch::default(),
            ejections: None,
            stretches: Stretches::thorough(),
            dives: Ladder::default(),
            turns: [0; 5],
        }
    }

    fn work(&mut self, round: u64, best: &Places, target: u64) -> LaneResult {
        let top = best.top;
        let kind = self.kind(round);
        // The turn of this lane among all of a kind.
        let turn = self.turns[kind as usize] * self.clock.threads as u64 + self.number;
        self.turns[kind as usize] += 1;
        match kind {
            RoundKind::Dive => self.search(turn, top, target),
            RoundKind::Core => self.search_core(turn, top, target),
            RoundKind::Eject => self.eject(best, target),
            RoundKind::Order => self.reorder(turn, best, target),
            RoundKind::Stretch => self.search_stretches(best, target),
        }
    }

    /// What to do in a round: what the list says, or if that is left out, what comes nearest to it.
    fn kind(&self, round: u64) -> RoundKind {
        let (first, then) = if self.part.is_small() { (&FEW_FIRST, &FEW_THEN) } else { (&MANY_FIRST, &MANY_THEN) };
        let round = round as usize;
        let kind = first.get(round).copied().unwrap_or(then[round % then.len()]);
        let dives = !self.part.is_huge() && self.part.fixed.is_empty();
        let stretches = self.clock.solver.is_some() && Stretches::can_place(self.part);
        let cores = !self.part.aligned && self.part.fixed.is_empty();
        match kind {
            Dive if dives => kind,
            Dive | Eject => Eject,
            Stretch if stretches => kind,
            Core | Stretch if cores => Core,
            _ => RoundKind::Order,
        }
    }

    /// Ejections from the best solution so far.
    fn eject(&mut self, best: &Places, target: u64) -> LaneResult {
        let (part, seed) = (self.part, mix(self.seed ^ mix(self.number)));
        let ejections = self.ejections.get_or_insert_with(|| Ejections::new(part, seed));
        let (places, work) = ejections.improve(best, target, self.clock.work, self.clock.until);
        LaneResult { places, impossible: None, work }
    }

    /// Stretches of the best solution so far, or of those before.
    fn search_stretches(&mut self, best: &Places, target: u64) -> LaneResult {
        let seed = mix(self.seed ^ mix(self.number));
        let (places, work) = self.stretches.improve(self.part, best, target, seed, &self.clock);
        LaneResult { places, impossible: None, work }
    }

    /// Exact search for a core, first fit for the rest.
    fn search_core(&mut self, k: u64, top: u64, target: u64) -> LaneResult {
        let part = self.part;
        let heaviest = self.heaviest.get_or_insert_with(|| Heaviest::new(part));
        let fit = self.fit.get_or_insert_with(|| FirstFit::new(part));
        fit.deadline = self.clock.until;
        let (places, work) = self.cores.attempt(part, heaviest, fit, (k, self.seed), target);
        LaneResult { places: places.filter(|places| places.top < top), impossible: None, work }
    }

    /// A restart of the exact search.
    fn search(&mut self, k: u64, top: u64, target: u64) -> LaneResult {
        // Where the target is out of reach, something below the top is what can be had.
        let between = !k.is_multiple_of(STRAIGHT) && top > target + 1;
        let limit = if between { self.dives.limit(top, target) } else { target };
        let which = usize::from(between);
        let exact = self.exact[which].get_or_insert_with(|| Box::new(Exact::new(self.part)));
        let turn = if between { k } else { k / STRAIGHT };
        let before = exact.work;
        // In between a dive that never turns back takes half as long.
        let first = (WORK_PER_ITEM >> which) * self.part.items.len() as u64;
        let allowed = first.saturating_mul(luby(turn / STYLES + 1));
        exact.deadline = self.clock.until;
        let outcome = exact.run(limit, style(turn, self.seed), allowed.min(self.clock.work));
        let work = exact.work - before;
        let found = outcome == SearchOutcome::Found;
        let places = found.then(|| Places::new(self.part, exact.offsets.clone()));
        if between {
            self.dives.note(found, limit + 1 == top);
        }
        LaneResult { places, impossible: (outcome == SearchOutcome::Impossible).then_some(limit), work }
    }

    /// First fit in the orders of the list, then ejections.
    fn reorder(&mut self, k: u64, best: &Places, target: u64) -> LaneResult {
        let Some(&order) = FIRST_FITS.get(k as usize) else { return self.eject(best, target) };
        let (part, top) = (self.part, best.top);
        let heaviest = self.heaviest.get_or_insert_with(|| Heaviest::new(part));
        let fit = self.fit.get_or_insert_with(|| FirstFit::new(part));
        fit.deadline = self.clock.until;
        let before = fit.work;
        let offsets = fit.run(&arrange(part, heaviest, order), top, u64::MAX);
        let places = offsets.map(|offsets| Places::new(part, offsets));
        let work = fit.work - before + ORDER_WORK * part.items.len() as u64;
        LaneResult { places, impossible: None, work }
    }
}
