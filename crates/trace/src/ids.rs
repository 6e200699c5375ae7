//! Numbers that stand for what a trace holds.

/// Index of an event in [`crate::Trace::events`]; the clock of lifetimes.
pub type Time = u32;

/// Index of a request in [`crate::Trace::requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

impl RequestId {
    /// The request's place in [`crate::Trace::requests`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a call stack in [`crate::Stacks`]; `StackId::NONE` where none was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// No call stack was recorded.
    pub const NONE: StackId = StackId(0);
}

/// Index of a stream in [`crate::Trace::streams`]; 0 is whatever stream the trace met first, not necessarily CUDA's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Index of an interned string in [`crate::Trace::strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(pub u32);
