//! Every tuned number of the arena and every mechanism that can be left out, with what it trades. What each is worth is in
//! bench/results/dynamic.md, measured by `examples/ablation.rs` of the simulator.

/// Where nobody has used anything so many bytes are mapped at once. 33 jobs spend 311 ms of the driver's time in their first five steps,
/// by pages 736; they hold 1.091 of their peaks in the mean, and 1.095.
pub const MAPPED_AT_ONCE: u64 = 8 << 20;

stalloc_common::tuned! {
    /// The part of the peak of live bytes that may be held beyond it at the least. Smaller holds less and remaps more often.
    least_slack: u64 = 34;

    /// The part of the device that its user does not miss: so much may be held beyond the peak if remaps are dear. With it
    /// and mapped memory first, remaps take 0.04 % of a U-Net's steps of 28 ms; with a slack of 1/34 to 1/21 of the peak they took 9.0 %.
    unnoticed_share: u64 = 256;

    /// No handle is larger than this part of the slack: larger ones take the driver less time (7.7 s instead of 9.6 for 33 jobs at a
    /// quarter), and blocks keep more of which they use a part (0.9 instead of 0.0 per mille of 55 jobs' smallest capacity).
    slack_handles: u64 = 8;

    /// Requests of at most so many bytes have addresses of their own, and so have those of the next size: survivors among larger blocks
    /// would keep a page each.
    small: u32 = 64 << 10;
    medium: u32 = 1 << 20;

    /// The same in tight mode.
    tight_slack: u64 = 1024;

    /// Remapping is dear if it takes more than this part of the time: smaller remaps more often before the slack grows.
    remap_time: u32 = 200;

    /// What is remapped for a plan once must be saved within so many steps.
    saved_within: u64 = 8;

    /// This part of the device is for other libraries: the slack does not reach into it.
    spared_share: u64 = 128;

    /// In tight mode, what was idle for a while is given back if it is at least this part of what is mapped: smaller gives back more
    /// often, and waits for the device each time.
    idle_share: u64 = 16;

    /// A plan under which this part of what is mapped was remapped beyond what it saved is given up: halved or doubled, no replay of 41
    /// jobs differs.
    remap_share: u64 = 128;

    /// While several streams allocate, an epoch of what they gave back ends with a step, or where the program marks none after so many
    /// blocks: fewer record more events, more pass over more memory that is free.
    epoch: u32 = 1024;

    /// Gaps, and parts of gaps that another stream may still use, that one search looks at: more fit better, and take longer.
    search_limit: u32 = 256;

    /// After so many blocks that were given back, events are asked whether they are complete.
    poll_epoch: u32 = 64;
}
