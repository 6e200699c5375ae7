//! Offline dynamic storage allocation: choose an address for every buffer, knowing when each lives, so that the
//! highest address used is as low as it can be.
//!
//! A buffer is a rectangle of fixed extent in time, `[lower, upper)`, and of fixed height, `size`, to be slid along
//! the address axis; no two may overlap. Minimising the top is NP-hard; on real training steps it is nearly always
//! possible to reach the lower bound, the largest live load over time.
//!
//! The crate knows sizes, times and offsets; no file and no GPU.
//!
//! ```
//! use stalloc_planner::{Buffer, Instance, SolveOptions, solve};
//!
//! let buffer = |lower, upper, size| Buffer { lower, upper, size, alignment: 1, fixed: None };
//! let buffers = vec![buffer(0, 4, 3), buffer(2, 6, 5), buffer(5, 9, 3)];
//! let solution = solve(&Instance { buffers, ..Instance::default() }, &SolveOptions::default())?;
//! assert_eq!((solution.peak, solution.optimal), (8, true));
//! # Ok::<(), stalloc_planner::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bound;
mod check;
mod clock;
mod core_search;
mod ejections;
mod exact;
mod finder;
mod first_fit;
mod gaps;
mod greedy;
mod hash;
mod improve;
mod lifetimes;
mod luby;
mod merge;
mod model;
mod part;
mod prepare;
mod reach;
mod relations;
mod rules;
mod skyline;
mod solve;
mod split;
mod stretches;
mod sweep;
mod turns;
mod validate;

// The exhaustive search of the tests is shared with those outside, which call the crate by its name.
#[cfg(test)]
extern crate self as stalloc_planner;

pub use check::{Flaw, check};
pub use model::*;

/// Finds a place for every buffer.
///
/// # Errors
/// When the instance is invalid or no solution fits in 64 bits.
pub fn solve(instance: &Instance, options: &SolveOptions) -> Result<Solution, Error> {
    solve_watched(instance, options, &mut |_| true)
}

/// The same, and now and then says how far it has come; where it hears `false`, the best so far is the answer.
///
/// # Errors
/// When the instance is invalid or no solution fits in 64 bits.
pub fn solve_watched(instance: &Instance, options: &SolveOptions, watch: &mut SolverWatch) -> Result<Solution, Error> {
    let clock = clock::SolveClock::new(options, solve::solve_within);
    if instance.gaps.is_empty() && instance.conflicts.is_empty() {
        return solve::solve_within(instance, options, &clock, watch);
    }
    relations::solve(instance, options, &clock, watch)
}
