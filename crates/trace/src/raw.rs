//! Events as recorders write them: by address, before allocations and frees are paired.

use crate::ids::StackId;
use crate::model::{Mark, SegmentAction};

/// One event as a recorder saw it. Streams are the recorder's raw handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawEvent {
    /// A request was served.
    Alloc {
        /// Where.
        address: u64,
        /// Bytes asked for.
        size: u64,
        /// Raw stream handle.
        stream: u64,
        /// Call stack.
        stack: StackId,
    },
    /// The program gave the request at an address back.
    FreeRequested {
        /// Where it was.
        address: u64,
        /// Its size where the recorder says so, else 0.
        size: u64,
        /// Raw stream handle.
        stream: u64,
    },
    /// The memory at an address can be used again.
    FreeCompleted {
        /// Where it was.
        address: u64,
        /// Its size where the recorder says so, else 0.
        size: u64,
        /// Raw stream handle.
        stream: u64,
    },
    /// Reserved memory changed.
    Segment {
        /// What happened.
        action: SegmentAction,
        /// Start of the range.
        address: u64,
        /// Its length in bytes.
        size: u64,
        /// Raw stream handle.
        stream: u64,
    },
    /// A request failed.
    OutOfMemory {
        /// Bytes asked for.
        size: u64,
        /// Bytes that the device had free.
        device_free: u64,
        /// Call stack.
        stack: StackId,
    },
    /// The recorder took a snapshot.
    Snapshot,
    /// A mark.
    Mark(Mark),
    /// Where something that was recorded before was asked for, as the recorder learned it later. No event of the trace.
    Stack {
        /// What was.
        whose: Whose,
        /// Call stack.
        stack: StackId,
    },
}

/// Whose call stack is told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of the recording's n-th allocation, counted from 0.
    Nth(u64),
    /// That of the block that lives at an address.
    LivesAt(u64),
    /// That of the last request that failed.
    Failed,
}
