//! The problem and its answer.

use std::time::Duration;

/// A buffer to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// First instant at which it lives.
    pub lower: u64,
    /// First instant at which it no longer lives; in a cyclic instance up to `lower + period`. Equal to `lower`: it
    /// never lives, and any offset will do.
    pub upper: u64,
    /// Bytes (any unit will do). 0: it is in nobody's way.
    pub size: u64,
    /// Its offset must be a multiple of this; 1 for no constraint, never 0.
    pub alignment: u64,
    /// Where it must be, if it is not for the planner to choose.
    pub fixed: Option<u64>,
}

impl Buffer {
    /// Whether it is in anybody's way: it has bytes and lives for some time.
    pub(crate) fn counts(&self) -> bool {
        self.size > 0 && self.lower < self.upper
    }
}

/// Buffers to place together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// `Some(p)`: time wraps around at `p`. Then `lower < p`, and a buffer whose `upper` exceeds `p` also lives at the
    /// start of the cycle; one with `upper - lower >= p` lives always.
    pub period: Option<u64>,
}

/// What to spend on a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Effort {
    /// The fast orders only: for planning inside a running job.
    Quick,
    /// Fast orders, then improvement and exact search until the time is spent or the answer is proven.
    #[default]
    Full,
}

/// Parts of the planner that can be left out, to measure what each of them buys. All by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Best fit over the skyline; first fit in order of time is always there.
    pub best_fit: bool,
    /// First fit in many orders, and orders that learn.
    pub orders: bool,
    /// Exact search for the hard core of what is large.
    pub cores: bool,
    /// Exact search for what is small.
    pub exact: bool,
    /// In exact searches, branching at any valley from either side, rather than at the lowest from the left.
    pub any_valley: bool,
    /// Windows of a solution placed again by exact search.
    pub windows: bool,
    /// Stretches of time that are too high, placed before all else.
    pub stretches: bool,
    /// Items that go together, merged.
    pub merges: bool,
    /// In merges, what is likely to be missing, filled in.
    pub filling: bool,
    /// In merges, wheels.
    pub wheels: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            best_fit: true,
            orders: true,
            cores: true,
            exact: true,
            any_valley: true,
            windows: true,
            stretches: true,
            merges: true,
            filling: true,
            wheels: true,
        }
    }
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// An answer is wanted within about this time. It is turned into an amount of work that usually takes less, so
    /// that the same input, seed and threads give the same plan; only on a machine too slow to do that work in time
    /// does the clock cut the search short. The first plan is always completed, however short the limit.
    pub time_limit: Duration,
    /// Units of work allowed to each thread, in place of those that the time limit stands for; then the clock never
    /// cuts, whatever the machine.
    pub work_limit: Option<u64>,
    /// Threads to use, at least 1.
    pub threads: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// What to spend.
    pub effort: Effort,
    /// A peak no higher than this is good enough, and none below it is looked for; 0 to look for the lowest.
    pub enough: u64,
    /// Parts of the planner to use.
    pub parts: Parts,
}

impl Options {
    /// What is left to spend after a solution, where one limit is for several instances.
    pub fn after(&self, solution: &Solution) -> Options {
        Options {
            time_limit: self.time_limit.saturating_sub(crate::clock::time_of(solution.work)),
            work_limit: self.work_limit.map(|work| work.saturating_sub(solution.work)),
            ..*self
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            time_limit: Duration::from_secs(1),
            work_limit: None,
            threads: 1,
            seed: 0,
            effort: Effort::Full,
            enough: 0,
            parts: Parts::default(),
        }
    }
}

/// A place for every buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Offset of each buffer, in the order of the instance.
    pub offsets: Vec<u64>,
    /// One past the highest address used.
    pub peak: u64,
    /// No solution can have a lower peak than this.
    pub lower_bound: u64,
    /// Whether it is proven that no solution has a lower peak.
    pub optimal: bool,
    /// Units of work that improving it took each thread: the same on every machine.
    pub work: u64,
}

/// Why there is no plan. Buffers are named by their index in the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A cyclic instance whose cycle has no length.
    #[error("the period is 0; it must be at least 1")]
    ZeroPeriod,
    /// More buffers than can be counted in 31 bits.
    #[error("{0} buffers are more than the {max} that can be planned together", max = i32::MAX)]
    TooMany(usize),
    /// It ends before it starts.
    #[error("buffer {index}: it ends at {upper}, before it starts at {lower}")]
    EndsBeforeStart {
        /// Which buffer.
        index: usize,
        /// Its start.
        lower: u64,
        /// Its end.
        upper: u64,
    },
    /// It starts outside of the cycle.
    #[error("buffer {index}: it starts at {lower}, outside of the cycle of period {period}")]
    OutsideCycle {
        /// Which buffer.
        index: usize,
        /// Its start.
        lower: u64,
        /// The period.
        period: u64,
    },
    /// An alignment of 0.
    #[error("buffer {index}: its alignment is 0; use 1 for no constraint")]
    ZeroAlignment {
        /// Which buffer.
        index: usize,
    },
    /// A fixed offset that is not a multiple of the alignment.
    #[error("buffer {index}: it is fixed at {offset}, not a multiple of its alignment {alignment}")]
    FixedMisaligned {
        /// Which buffer.
        index: usize,
        /// Where it is fixed.
        offset: u64,
        /// Its alignment.
        alignment: u64,
    },
    /// Two buffers fixed at places that overlap while both live.
    #[error("buffers {first} and {second} are fixed at places that overlap while both live")]
    FixedOverlap {
        /// One of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// No address of 64 bits reaches far enough.
    #[error("the buffers that live together do not fit in 64 bits of address")]
    TooLarge,
}
