//! Time as amounts of work, and threads that work side by side.

use std::time::{Duration, Instant};

use crate::part::Part;
use crate::{Error, Instance, Solution, SolveOptions, SolverWatch, Stop};

/// Units of work (items or sections looked at) that one thread does in a second on a slow machine. A 2-core container
/// does twice as many, so that the work allowed is nearly always done before the time is up, and what is
/// found does not depend on the machine.
const WORK_PER_SECOND: u64 = 60_000_000;

/// Work that putting items in order, merging them and a sweep count for each, in looks at an item.
pub(crate) const ORDER_WORK: u64 = 16;

/// Work of the shortest searches for each of their items; multiplied by a term of Luby's sequence, which grows without bound, so that every
/// search ends some day. One that succeeds hardly ever turns back, so short ones in many styles find more than long ones: a dive that never
/// turns back takes 400 to 650 for each item towards the target (rectangles cut into 4,000 and 10,000 pieces) and 120 to 350 in between
/// (850 to 4,250 pieces with some missing).
pub(crate) const WORK_PER_ITEM: u64 = 1000;

/// Nodes, items or blocks after which a search looks at the clock.
const BETWEEN_LOOKS: usize = 256;

/// The time that an amount of work stands for.
pub(crate) fn time_of(work: u64) -> Duration {
    Duration::from_micros(work / (WORK_PER_SECOND / 1_000_000))
}

/// Whether a time has come.
pub(crate) fn is_over(until: Until) -> bool {
    until.at.is_some_and(|at| Instant::now() >= at) || until.stop.is_some_and(|stop| stop.is_asked())
}

/// The same, seen now and then: a search asks this at each of the nodes, items or blocks that it counts.
pub(crate) fn is_seen_over(counted: usize, until: Until) -> bool {
    counted.is_multiple_of(BETWEEN_LOOKS) && is_over(until)
}

/// When to give up: never, by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Until {
    pub at: Option<Instant>,
    pub stop: Option<Stop>,
}

/// Solves an instance without gaps and conflicts.
pub(crate) type Solver = fn(&Instance, &SolveOptions, &SolveClock, &mut SolverWatch) -> Result<Solution, Error>;

/// What is left of the time allowed.
#[derive(Clone, Debug)]
pub(crate) struct SolveClock {
    /// When the time is up; what takes long looks at it now and then.
    pub until: Until,
    pub threads: usize,
    /// Solves a stretch of a part; none for a stretch itself, which has no stretches.
    pub solver: Option<Solver>,
    /// Work allowed to each thread.
    pub work: u64,
}

impl SolveClock {
    pub fn new(options: &SolveOptions, solver: Solver) -> SolveClock {
        let millis = u64::try_from(options.time_limit.as_millis()).unwrap_or(u64::MAX);
        // Beyond what an `Instant` can hold there is no limit but the work.
        let limit = options.time_limit.min(Duration::from_secs(1 << 40));
        let at = if options.work_limit.is_some() { None } else { Instant::now().checked_add(limit) };
        let until = Until { at, stop: options.stop };
        let implied =
            (millis / 1000).saturating_mul(WORK_PER_SECOND).saturating_add(millis % 1000 * (WORK_PER_SECOND / 1000));
        SolveClock {
            until,
            threads: options.threads.clamp(1, 256),
            solver: Some(solver),
            work: options.work_limit.unwrap_or(implied),
        }
    }

    /// The same, with what remains of the work left after some was done.
    pub fn after(&self, done: u64, left: u64) -> SolveClock {
        SolveClock { work: left.saturating_sub(done), ..self.clone() }
    }

    pub fn is_over(&self) -> bool {
        is_over(self.until)
    }

    pub fn threads_for(&self, part: &Part) -> usize {
        if part.is_small() { 1 } else { self.threads }
    }

    /// Runs a function on each input, side by side; the results in the order of the inputs.
    pub fn all<T: Sync, R: Send>(&self, inputs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
        if inputs.len() <= 1 {
            return inputs.iter().map(run).collect();
        }
        std::thread::scope(|scope| {
            let run = &run;
            let others: Vec<_> = inputs[1..].iter().map(|input| scope.spawn(move || run(input))).collect();
            let mut results = vec![run(&inputs[0])];
            for other in others {
                results.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        })
    }
}
