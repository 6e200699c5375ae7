//! Every tuned number of learning and planning and every mechanism that can be left out, with what it trades. What each is
//! worth is in bench/results/dynamic.md, measured by `examples/ablation.rs` of the simulator.

stalloc_common::tuned! {
    /// Offsets are given if at least this share of the requests belongs to steps that repeat exactly: with less, offsets for a
    /// part of the requests cost the rest more than they save. Also the share of a step that must be there for a last one that
    /// was cut off to count as a step seen, and of the requests that a plan must serve so that no other replaces it.
    exact_share: f64 = 0.9;

    /// Offsets are given if the arena and what lives outside it take at most so many times the most live bytes: without offsets
    /// a job rarely needs more. Boundaries found in the wrong places show here.
    worthwhile: f64 = 1.05;

    /// A step that keeps something of so many steps before is in the plan that often; what is kept longer gets no offset.
    max_copies: u32 = 4;

    /// What is kept from step to step gets no offset, rather than having all of the step in the plan once more, if it is at most
    /// this part of the most live bytes. Losses kept for some steps would make four copies of a step for 2 KiB.
    small_kept: u64 = 1024;

    /// Steps for which an end is followed: what lives through more of them has no end.
    max_passed: usize = 16;

    /// Different ends of one entry that are kept apart; one with more gets no offset.
    max_ends: usize = 128;

    /// Kinds of steps that one plan holds, those that came most often; its check takes time in their square.
    max_planned_kinds: usize = 64;

    /// Steps of a running job that are looked at to tell whether it repeats now: with more, a job that begins to repeat gets
    /// its offsets later.
    recent_steps: usize = 8;

    /// First steps that may be like no other: optimizer states are made in the first, and gradients of the first are still there
    /// in the second.
    warm_up: usize = 2;

    /// Requests that come before another draft is made, for each request of the last one: planning a request takes about as
    /// long as a training script takes for four.
    rest_per_draft: u64 = 8;

    /// Requests of a running job that marks no step before they are looked through for steps: with fewer, the micro-batches
    /// or layers of a long first step are taken for steps.
    first_look: usize = 1 << 15;

    /// Requests that tell, after something unknown, that a step of a known kind has begun.
    beginning: usize = 64;

    /// Rounds of what was looked through that are learned from, the last ones; cutting each costs what comes after it.
    last_rounds: usize = 64;

    /// Units of the planner's work for a plan of a running job: all fast orders over some 15,000 requests, which are counted.
    running_work: u64 = 12_000_000;

    /// Streams share addresses only if that makes the arena smaller by more than this share: each address that passes
    /// from one stream to another makes the runtime wait for the first.
    sharing_must_save: f64 = 0.01;

    /// Between two steps lies a stretch of its own (evaluation, a checkpoint) if it has more than this share of the
    /// requests of a typical step; less than that (loading the next batch) belongs to the step that follows.
    between_steps: f64 = 0.05;

    /// Most anchors whose rounds are weighed.
    max_trials: usize = 96;

    /// Rounds must explain this share of all requests, or the trace has no steps.
    enough: f64 = 0.6;

    /// Of two anchors that explain about the same share (within this much), the one with more rounds wins.
    same: f64 = 0.004;

    /// This much more is worth fewer rounds wherever it lies in the trace.
    much: f64 = 0.1;
}
