//! Every tuned number of learning, with its unit and what it trades.

/// Offsets are given if at least this share of the requests belongs to steps that repeat exactly: with less, offsets for a
/// part of the requests cost the rest more than they save. Also the share of a step that must be there for a last one that
/// was cut off to count as a step seen.
pub(crate) const EXACT_SHARE: f64 = 0.9;

/// Offsets are given if the arena and what lives outside it take at most so many times the most live bytes: without offsets
/// a job rarely needs more. Boundaries found in the wrong places show here.
pub(crate) const WORTHWHILE: f64 = 1.05;

/// A step that keeps something of so many steps before is in the plan that often; what is kept longer gets no offset.
pub(crate) const MAX_COPIES: u32 = 4;

/// What is kept from step to step gets no offset, rather than having all of the step in the plan once more, if it is at most
/// this part of the most live bytes. Losses kept for some steps would make four copies of a step for 2 KiB.
pub(crate) const SMALL_KEPT: u64 = 1024;

/// Steps for which an end is followed: what lives through more of them has no end.
pub(crate) const MAX_PASSED: usize = 16;

/// Different ends of one entry that are kept apart; one with more gets no offset.
pub(crate) const MAX_ENDS: usize = 128;

/// Kinds of steps that one plan holds, those that came most often; its check takes time in their square.
pub(crate) const MAX_PLANNED_KINDS: usize = 64;

/// Steps of a running job that are looked at to tell whether it repeats now: with more, a job that begins to repeat gets
/// its offsets later.
pub const RECENT_STEPS: usize = 8;

/// First steps that may be like no other: optimizer states are made in the first, and gradients of the first are still there
/// in the second.
pub(crate) const WARM_UP: usize = 2;

/// Requests that come before another draft is made, for each request of the last one: planning a request takes about as
/// long as a training script takes for four.
pub(crate) const REST_PER_DRAFT: u64 = 8;

/// Requests of a running job that marks no step before they are looked through for steps: with fewer, the micro-batches
/// or layers of a long first step are taken for steps.
pub(crate) const FIRST_LOOK: usize = 1 << 15;

/// Requests that tell, after something unknown, that a step of a known kind has begun.
pub(crate) const BEGINNING: usize = 64;

/// Rounds of what was looked through that are learned from, the last ones; cutting each costs what comes after it.
pub(crate) const LAST_ROUNDS: usize = 64;

/// Units of the planner's work for a plan of a running job.
pub(crate) const RUNNING_WORK: u64 = 4_000_000;

/// What a learner keeps at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests in all kinds (20 bytes each).
    pub requests: usize,
    /// Kinds.
    pub kinds: usize,
    /// Requests of one step; a longer one is forgotten (48 bytes each while it lasts).
    pub step: usize,
    /// Steps whose order is known (12 bytes each).
    pub steps: usize,
}

impl Limits {
    /// For learning in a running job: 60 MB at most.
    pub const RUNNING: Limits = Limits { requests: 1 << 20, kinds: 256, step: 1 << 19, steps: 4096 };
    /// For a recording, which is in memory anyway.
    pub const RECORDING: Limits = Limits { requests: 1 << 24, kinds: 4096, step: 1 << 24, steps: usize::MAX };
}
