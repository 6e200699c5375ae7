//! The fast orders: each a run of one placement rule over a part, tried in turn until the target is reached.

use std::sync::Mutex;

use crate::clock::{ORDER_WORK, SolveClock, Until};
use crate::finder::TreeLayout;
use crate::first_fit::FirstFit;
use crate::part::{Part, Places};
use crate::rules::{Heaviest, ItemOrder, Rule, all, arrange, core, long};
use crate::skyline::best_fit;
use crate::stretches::Stretches;
use crate::sweep::{sweep, sweep_around};

/// A way to place a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// First fit in order of time.
    Sweep { backwards: bool },
    /// First fit in order of time around what is fixed, in a ring too.
    Around,
    /// Stretches that are too high in the best so far, then the rest around them.
    Stretches,
    /// Best fit over the skyline.
    BestFit(ItemOrder),
    /// First fit, where some items are fixed.
    FirstFit(ItemOrder),
}

/// The fastest and most successful first.
const WAYS: [Way; 11] = [
    Way::Sweep { backwards: false },
    Way::Sweep { backwards: true },
    Way::Stretches,
    Way::BestFit(all(Rule::Lower)),
    Way::BestFit(all(Rule::Area)),
    Way::BestFit(core(0, Rule::Length, Rule::Length)),
    Way::BestFit(core(10, Rule::Length, Rule::Length)),
    Way::BestFit(all(Rule::Length)),
    Way::BestFit(all(Rule::Size)),
    Way::BestFit(all(Rule::Upper)),
    Way::BestFit(core(50, Rule::Size, Rule::Area)),
];

/// Orders for first fit, which is slower, but fills holes.
pub(crate) const FIRST_FITS: [ItemOrder; 14] = [
    long(100, Rule::Lower, Rule::Size),
    core(20, Rule::Size, Rule::Length),
    long(200, Rule::Lower, Rule::Size),
    all(Rule::Size),
    long(100, Rule::Upper, Rule::Size),
    all(Rule::Area),
    all(Rule::Lower),
    core(50, Rule::Size, Rule::Size),
    long(40, Rule::Lower, Rule::Length),
    core(10, Rule::Length, Rule::Area),
    core(100, Rule::Area, Rule::Area),
    long(200, Rule::Upper, Rule::Size),
    all(Rule::Length),
    all(Rule::Upper),
];

/// The best of the fast orders: by top, then by place in the list; and their work. Ends when `enough` is reached, or the work
/// or the time is spent; one way is always tried to its end.
pub(crate) fn greedy(part: &Part, enough: u64, clock: &SolveClock) -> Option<(Places, u64)> {
    let runs = Runs::new(part);
    let possible = |way: &Way| match way {
        Way::Sweep { .. } => part.fixed.is_empty() && !part.ring,
        Way::Stretches => clock.solver.is_some() && Stretches::can_place(part),
        Way::BestFit(_) => part.fixed.is_empty(),
        Way::Around | Way::FirstFit(_) => true,
    };
    let mut ways: Vec<Way> = WAYS.into_iter().filter(possible).collect();
    if ways.is_empty() {
        ways.push(Way::Around);
        ways.extend(FIRST_FITS.map(Way::FirstFit));
    }
    let (mut best, mut work): (Option<Places>, u64) = (None, 0);
    // A limit shorter than one run pays for one run only.
    let is_short = clock.work < ORDER_WORK * part.items.len() as u64;
    for batch in ways.chunks(if is_short { 1 } else { clock.threads_for(part) }) {
        if best.as_ref().is_some_and(|b| b.top <= enough || work > clock.work || clock.is_over()) {
            break;
        }
        let so_far = best.as_ref();
        let limit = so_far.map_or(u64::MAX, |b| b.top);
        // One is always tried to its end.
        let deadline = if best.is_some() { clock.until } else { Until::default() };
        let run = |way: &Way| match (way, so_far) {
            (Way::Stretches, Some(best)) => {
                let left = SolveClock { until: deadline, work: clock.work.saturating_sub(work), ..*clock };
                Stretches::fast().improve(part, best, enough, 0, &left)
            }
            _ => runs.run(*way, limit, clock.work.saturating_sub(work), deadline),
        };
        let before = work;
        for (found, spent) in clock.all(batch, run) {
            work = work.max(before + spent);
            match &best {
                Some(b) if b.top <= found.as_ref().map_or(u64::MAX, |f| f.top) || b.top <= enough => {}
                _ => best = found.or(best),
            }
        }
    }
    Some((best?, work))
}

/// What the runs over a part share.
struct Runs<'a> {
    part: &'a Part,
    layout: std::sync::OnceLock<TreeLayout>,
    heaviest: std::sync::OnceLock<Heaviest>,
    /// Idle first-fit structures.
    fits: Mutex<Vec<FirstFit<'a>>>,
}

impl<'a> Runs<'a> {
    fn new(part: &'a Part) -> Runs<'a> {
        Runs { part, layout: Default::default(), heaviest: Default::default(), fits: Mutex::new(Vec::new()) }
    }

    /// `None` if the way ends no lower than `limit`, if there is a limit and it takes more than `work`, or if it is not
    /// done in time; and its work.
    fn run(&self, way: Way, limit: u64, work: u64, deadline: Until) -> (Option<Places>, u64) {
        let part = self.part;
        let n = part.items.len() as u64;
        let most = if limit == u64::MAX { u64::MAX } else { work };
        let mut spent = ORDER_WORK * n;
        let arranged = |order| arrange(part, self.heaviest.get_or_init(|| Heaviest::new(part)), order);
        let offsets = match way {
            Way::Sweep { backwards } => sweep(part, backwards, limit),
            Way::Around => sweep_around(part, limit),
            Way::Stretches => None,
            Way::BestFit(order) => {
                let layout = self.layout.get_or_init(|| TreeLayout::new(&part.items));
                let (offsets, looked) = best_fit(part, layout, &arranged(order), (limit, most), deadline);
                spent = ORDER_WORK * n + looked;
                offsets
            }
            Way::FirstFit(order) => {
                let idle = self.fits.lock().ok().and_then(|mut fits| fits.pop());
                let mut fit = idle.unwrap_or_else(|| FirstFit::new(part));
                fit.deadline = deadline;
                let before = fit.work;
                let offsets = fit.run(&arranged(order), limit, most);
                spent = ORDER_WORK * n + fit.work - before;
                if let Ok(mut fits) = self.fits.lock() {
                    fits.push(fit);
                }
                offsets
            }
        };
        (offsets.map(|offsets| Places::new(part, offsets)), spent)
    }
}
