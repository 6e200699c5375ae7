//! The whole: prepare, solve each part, improve the worst, put the parts together.

use std::cell::OnceCell;

use crate::clock::{ORDER_WORK, SolveClock};
use crate::greedy::greedy;
use crate::merge::Merged;
use crate::part::{Part, Places, Problem};
use crate::prepare::prepare;
use crate::turns::{Goal, Turns};
use crate::{Effort, Error, Instance, SearchProgress, Solution, SolveOptions, SolverWatch};

/// Quick planning is content this near the bound: one in so many.
const QUICK_ENOUGH: u64 = 1000;

/// Finds a place for every buffer of an instance without gaps and conflicts, within what a clock allows, whatever the limits
/// of the options.
pub(crate) fn solve_within(
    instance: &Instance,
    options: &SolveOptions,
    clock: &SolveClock,
    watch: &mut SolverWatch,
) -> Result<Solution, Error> {
    let problem = prepare(instance)?;
    let quick = options.effort == Effort::Quick;
    // What is enough in units, as far as whole units are enough.
    let target = target(&problem.parts).max(options.enough / problem.unit);
    let enough = if quick { target.saturating_add(target / QUICK_ENOUGH) } else { target };
    let mut all = Vec::with_capacity(problem.parts.len());
    let mut improved = Improved { proven: 0, work: ORDER_WORK * instance.buffers.len() as u64 };
    // What one part cannot avoid, the others need not try to.
    let mut worst = enough;
    for part in &problem.parts {
        let left = SolveClock { work: clock.work.saturating_sub(improved.work), ..*clock };
        let (places, work) = greedy(part, worst, &left).ok_or(Error::TooLarge)?;
        improved.work += work;
        if quick {
            worst = worst.max(places.top);
        }
        all.push(places);
    }
    if !quick {
        let mut tell = |peak: u64, bound: u64| {
            let scaled = |units: u64| units.saturating_mul(problem.unit);
            watch(&SearchProgress { peak: scaled(peak), lower_bound: problem.lower_bound.max(scaled(bound)) })
        };
        improve(&problem.parts, &mut all, (target, &mut improved), (options.seed, clock, &mut tell));
    }
    assemble(instance, &problem, &all, &improved)
}

/// What came of improving, besides better places.
#[derive(Clone, Copy, Debug, Default)]
struct Improved {
    /// An exhausted search has shown that no solution has a top below this, in units; 0 if none was exhausted.
    proven: u64,
    work: u64,
}

/// No solution of all parts is lower than this, in units.
fn target(parts: &[Part]) -> u64 {
    parts.iter().map(|p| p.bound).max().unwrap_or(0)
}

/// Improves the worst part until it is at the target, in units, or the work allowed is done.
fn improve(
    parts: &[Part],
    all: &mut [Places],
    (target, improved): (u64, &mut Improved),
    (seed, clock, tell): (u64, &SolveClock, &mut dyn FnMut(u64, u64) -> bool),
) {
    let merged: Vec<OnceCell<Option<Merged>>> = parts.iter().map(|_| OnceCell::new()).collect();
    let mut turns: Vec<Turns> = parts.iter().map(Turns::new).collect();
    let mut target = target;
    while let Some(worst) = (0..parts.len()).rev().max_by_key(|&p| all[p].top) {
        let top = all[worst].top;
        if top <= target || improved.work >= clock.work || clock.is_over() || !tell(top, target) {
            break;
        }
        let goal = Goal { target, left: clock.work - improved.work, seed, clock };
        let (part, best) = (&parts[worst], &mut all[worst]);
        improved.work += turns[worst].next(part, &merged[worst], best, &mut improved.proven, goal);
        target = target.max(improved.proven);
    }
}

fn assemble(instance: &Instance, problem: &Problem, all: &[Places], improved: &Improved) -> Result<Solution, Error> {
    let scaled = |offset: u64| offset.checked_mul(problem.unit).ok_or(Error::TooLarge);
    let mut offsets: Vec<u64> = instance.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
    for &(id, offset) in &problem.decided {
        offsets[id as usize] = scaled(offset)?;
    }
    for (part, places) in problem.parts.iter().zip(all) {
        for (item, &offset) in part.items.iter().zip(&places.offsets) {
            offsets[item.id as usize] = scaled(offset)?;
        }
    }
    let mut peak = 0;
    for (b, &offset) in instance.buffers.iter().zip(&offsets) {
        if b.counts() {
            peak = peak.max(offset.checked_add(b.size).ok_or(Error::TooLarge)?);
        }
    }
    let lower_bound = problem.lower_bound.max(proven_bound(instance, problem, improved.proven));
    Ok(Solution { offsets, peak, lower_bound, optimal: peak == lower_bound, work: improved.work })
}

/// What an exhausted search proves, in the instance's unit: no solution, its sizes rounded up to whole units, has a top
/// below `proven` units.
fn proven_bound(instance: &Instance, problem: &Problem, proven: u64) -> u64 {
    if proven <= target(&problem.parts) {
        return 0;
    }
    let whole = instance.buffers.iter().all(|b| !b.counts() || b.size.is_multiple_of(problem.unit));
    let certain = if whole { proven } else { proven - 1 };
    certain.saturating_mul(problem.unit).saturating_add(u64::from(!whole))
}
