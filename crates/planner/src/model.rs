//! The problem and its answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that are needed for one lifetime: the planner chooses their offset, or is given it.
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
    /// Pairs of buffers, by index, that may share no address although they do not live together.
    pub conflicts: Vec<(usize, usize)>,
    /// Times at which buffers need less than all of their bytes; those of one buffer do not overlap.
    pub gaps: Vec<LifetimeGap>,
}

/// A time within a lifetime at which a buffer needs none of its bytes, or those of a window alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LifetimeGap {
    /// The buffer's index.
    pub buffer: usize,
    /// The first instant, within the buffer's lifetime.
    pub lower: u64,
    /// The first instant after it.
    pub upper: u64,
    /// The bytes that it needs even then: the first, and one past the last, from its offset on.
    pub window: Option<(u64, u64)>,
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

/// Limits one solve: its time or work, threads, seed, the peak that is good enough, and a flag that ends it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolveOptions {
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
    /// Ends the search early: what is best so far is the answer.
    pub stop: Option<Stop>,
}

/// A flag that whoever waits for a plan raises when the best so far will do.
#[derive(Clone, Copy, Debug)]
pub struct Stop(pub &'static AtomicBool);

impl Stop {
    pub(crate) fn is_asked(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for Stop {
    fn eq(&self, other: &Stop) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Stop {}

impl SolveOptions {
    /// What is left to spend after a solution, where one limit is for several instances.
    pub fn after(&self, solution: &Solution) -> SolveOptions {
        SolveOptions {
            time_limit: self.time_limit.saturating_sub(crate::clock::time_of(solution.work)),
            work_limit: self.work_limit.map(|work| work.saturating_sub(solution.work)),
            ..*self
        }
    }
}

impl Default for SolveOptions {
    fn default() -> Self {
        SolveOptions {
            time_limit: Duration::from_secs(1),
            work_limit: None,
            threads: 1,
            seed: 0,
            effort: Effort::Full,
            enough: 0,
            stop: None,
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

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchProgress {
    /// The peak of the best plan so far; `u64::MAX` where there is none yet.
    pub peak: u64,
    /// No plan can have a lower peak than this, as far as is known.
    pub lower_bound: u64,
}

/// Hears how far a search has come, and says whether to go on.
pub type SolverWatch<'a> = dyn FnMut(&SearchProgress) -> bool + 'a;

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
    /// A gap that is none.
    #[error("gap {index}: it overlaps another of its buffer, or is not within the buffer's lifetime and size")]
    BadGap {
        /// Which gap.
        index: usize,
    },
    /// A conflict of buffers that are not there, or of one with itself.
    #[error("conflict {index}: it names one buffer twice, or a buffer that is not there")]
    BadConflict {
        /// Which conflict.
        index: usize,
    },
    /// No address of 64 bits reaches far enough.
    #[error("the buffers that live together do not fit in 64 bits of address")]
    TooLarge,
}
