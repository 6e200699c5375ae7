//! One limit for all that a layout asks of the planner: what one instance leaves is there for the next.

use std::time::{Duration, Instant};

use stalloc_planner::{Error, Instance, Options, Solution, solve};

/// What is left to spend.
pub struct Work {
    options: Options,
    /// When the time is up, on a machine too slow for the work that the time limit stands for.
    until: Option<Instant>,
}

impl Work {
    /// All of it.
    pub fn new(options: &Options) -> Self {
        Work { options: *options, until: Instant::now().checked_add(options.time_limit) }
    }

    /// Solves an instance; a peak no higher than `enough` is good enough. The first plan is always completed, even
    /// when nothing is left.
    pub fn solve(&mut self, instance: &Instance, enough: u64) -> Result<Solution, Error> {
        let time = self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let options = Options { time_limit: self.options.time_limit.min(time), enough, ..self.options };
        let solution = solve(instance, &options)?;
        self.options = self.options.after(&solution);
        Ok(solution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stalloc_planner::Buffer;

    /// Three arcs that overlap in pairs, two at a time: they need more than the load, which takes a search to prove.
    fn hard() -> Instance {
        let arc = |lower| Buffer { lower, upper: lower + 4, size: 1, alignment: 1, fixed: None };
        Instance { buffers: vec![arc(0), arc(2), arc(4)], period: Some(6), ..Instance::default() }
    }

    #[test]
    fn what_is_spent_on_one_instance_is_not_spent_again_on_the_next() {
        // More than the first plan takes, less than the search.
        let options = Options { work_limit: Some(200), ..Options::default() };
        let mut budget = Work::new(&options);
        let first = budget.solve(&hard(), 0).expect("solvable");
        let second = budget.solve(&hard(), 0).expect("solvable");
        assert!(second.work < first.work, "{} {}", second.work, first.work);
        assert_eq!((second.peak, second.optimal), (3, false));
    }

    #[test]
    fn nothing_is_spent_to_go_below_what_is_enough() {
        let work = |limit, enough| {
            let mut budget = Work::new(&Options { work_limit: limit, ..Options::default() });
            budget.solve(&hard(), enough).expect("solvable").work
        };
        assert_eq!(work(None, 3), work(Some(0), 0));
        assert!(work(None, 0) > work(Some(0), 0));
    }
}
