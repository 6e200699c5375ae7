//! The hard core of a large part: what lives near the peak is placed by the exact search as if nothing else were
//! there, the others by first fit around it.
//!
//! Near the peak nothing may be wasted, so a good order of placement is not enough; but few buffers live there, and
//! those of equal lifetime may be taken as one. Everywhere else there is room for the rest, holes included. An item
//! that found no place below the target joins the core of the next attempt (`pangu_2.6B` takes 1.7 s of CPU, and 35 without).

use std::collections::BTreeMap;

use crate::clock::{ORDER_WORK, Until, WORK_PER_ITEM};
use crate::exact::{Choice, Exact, SearchOutcome, Style, Taste};
use crate::first_fit::FirstFit;
use crate::hash::mix;
use crate::luby::luby;
use crate::part::{Part, Places, Problem};
use crate::prepare::prepare;
use crate::rules::{Heaviest, Rule, all, arrange};
use crate::{Buffer, Instance};

/// Groups of one core, at most.
const LARGEST: usize = 2048;

/// Cores tried in turn: what lives where the load is within so many thousandths of its maximum.
const MARGINS: [u64; 10] = [0, 10, 20, 30, 50, 75, 100, 150, 200, 300];

/// The best styles for cores fill the lowest valleys with what lives longest, with little noise or none. By what fits the steps of two
/// recorded pipelines ended 0.1 and 0.2 % above the bound.
fn style(turn: u64, seed: u64) -> Style {
    let choice = [Choice::Few, Choice::Lowest, Choice::Fewest][(turn % 3) as usize];
    Style { choice, taste: Taste::Length, noise: [0, 1, 2, 4][(turn / 3 % 4) as usize], seed, fit: false }
}

/// What was learnt about the cores of a part.
#[derive(Default)]
pub(crate) struct CoreSearch {
    /// How often each item found no place around a core.
    blame: Vec<u32>,
}

impl CoreSearch {
    /// Places the `k`-th core by exact search towards `target`, and the rest around it; the result, if there is one,
    /// and the work that it took.
    pub fn attempt(
        &mut self,
        part: &Part,
        heaviest: &Heaviest,
        fit: &mut FirstFit,
        (k, seed): (u64, u64),
        target: u64,
    ) -> (Option<Places>, u64) {
        let cores = MARGINS.len() as u64;
        let turn = k / cores;
        self.blame.resize(part.items.len(), 0);
        let least = heaviest.least(MARGINS[(k % cores) as usize]);
        let blame = &self.blame;
        let chosen = |i: u32| heaviest.of(i) >= least || blame[i as usize] > 0;
        let Some(core) = ItemCore::new(part, chosen) else { return (None, part.items.len() as u64) };
        let allowed = WORK_PER_ITEM.saturating_mul(core.groups.len() as u64).saturating_mul(luby(turn + 1));
        let (order, mut work) = core.order(target - part.base, style(turn, mix(seed ^ mix(k))), allowed, fit.deadline);
        work += part.items.len() as u64;
        let Some(order) = order else { return (None, work) };
        let others = arrange(part, heaviest, all(Rule::Size));
        let before = fit.work;
        let offsets = complete(fit, order, &others);
        work += fit.work - before + ORDER_WORK * others.len() as u64;
        let Some(offsets) = offsets else { return (None, work) };
        for (i, (item, offset)) in part.items.iter().zip(&offsets).enumerate() {
            self.blame[i] += u32::from(offset.saturating_add(item.size) > target);
        }
        (Some(Places::new(part, offsets)), work)
    }
}

/// A core: groups of items of equal lifetime, each group one buffer of the small problem.
struct ItemCore {
    groups: Vec<Vec<u32>>,
    problem: Problem,
}

impl ItemCore {
    /// Of the items chosen; `None` if they are too many.
    fn new(part: &Part, chosen: impl Fn(u32) -> bool) -> Option<ItemCore> {
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
        let problem = prepare(&Instance { buffers, period, ..Instance::default() }).ok()?;
        Some(ItemCore { groups: groups.into_values().collect(), problem })
    }

    /// Items of the core from the lowest to the highest, in a solution below `limit` (over the part's base); and the
    /// work done.
    fn order(&self, limit: u64, style: Style, mut work: u64, deadline: Until) -> (Option<Vec<u32>>, u64) {
        let allowed = work;
        let mut at: Vec<(u64, u32)> = self.problem.decided.iter().map(|&(id, offset)| (offset, id)).collect();
        for part in &self.problem.parts {
            let mut exact = Exact::new(part);
            exact.deadline = deadline;
            let outcome = exact.run(limit / self.problem.unit, style, work);
            work = work.saturating_sub(exact.work);
            if outcome != SearchOutcome::Found {
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
fn complete(fit: &mut FirstFit, mut core: Vec<u32>, others: &[u32]) -> Option<Vec<u64>> {
    let mut placed = vec![false; others.len()];
    core.iter().for_each(|&i| placed[i as usize] = true);
    core.extend(others.iter().copied().filter(|&i| !placed[i as usize]));
    fit.run(&core, u64::MAX, u64::MAX)
}
