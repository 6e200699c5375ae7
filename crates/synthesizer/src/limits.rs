//! What learning may keep.

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
