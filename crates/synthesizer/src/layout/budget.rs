//! One limit for all that a layout asks of the planner: what one instance leaves is there for the next.

use std::time::{Duration, Instant};

use stalloc_planner::{Error, Instance, Solution, SolveOptions, solve};

/// The planner's options and the deadline, which all instances of one layout share.
pub struct Work {
    options: SolveOptions,
    /// When the time is up, on a machine too slow for the work that the time limit stands for.
    until: Option<Instant>,
}

impl Work {
    /// All of it.
    pub fn new(options: &SolveOptions) -> Self {
        Work { options: *options, until: Instant::now().checked_add(options.time_limit) }
    }

    /// Solves an instance; a peak no higher than `enough` is good enough. The first plan is always completed, even
    /// when nothing is left.
    pub fn solve(&mut self, instance: &Instance, enough: u64) -> Result<Solution, Error> {
        let time = self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let options = SolveOptions { time_limit: self.options.time_limit.min(time), enough, ..self.options };
        let solution = solve(instance, &options)?;
        self.options = self.options.after(&solution);
        Ok(solution)
    }
}

#[cfg(test)]
mod tests;
