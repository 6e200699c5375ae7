//! The problem and its answer.

use std::time::Duration;

/// A buffer to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// First instant at which it lives.
    pub lower: u64,
    /// First instant at which it no longer lives; in a cyclic instance up to `lower + period`.
    pub upper: u64,
    /// Bytes (any unit will do).
    pub size: u64,
    /// Its offset must be a multiple of this; 1 for no constraint, never 0.
    pub alignment: u64,
    /// Where it must be, if it is not for the planner to choose.
    pub fixed: Option<u64>,
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

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// An answer is wanted within about this time. The same input, seed and threads give the same plan whatever the
    /// machine's speed, unless this limit cuts the search short.
    pub time_limit: Duration,
    /// Threads to use, at least 1.
    pub threads: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { time_limit: Duration::from_secs(1), threads: 1, seed: 0 }
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
}
