//! Replays a trace through any allocator: PyTorch's, expandable segments, GMLake, stalloc.

use stalloc_trace::{RequestId, Time};

/// What one allocator made of a trace.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its name, as on the command line.
    pub allocator: &'static str,
    /// Most device memory held at once, bytes.
    pub peak_reserved: u64,
    /// Most live bytes at once.
    pub peak_allocated: u64,
    /// When it first ran out of memory, if it did; the replay ends there.
    pub oom: Option<Time>,
    /// Mean time of an operation (malloc or free), nanoseconds.
    pub ns_per_op: f64,
    /// Reserved bytes, each time they change: (event time, bytes after it).
    pub reserved: Vec<(Time, u64)>,
    /// Where each request was put.
    pub placements: Vec<Placement>,
    /// Ranges of device memory held over time.
    pub segments: Vec<SegmentSpan>,
}

/// How a placement was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// By an allocator that does not plan.
    Online,
    /// From the plan.
    Planned,
    /// By the dynamic side, in the arena.
    Dynamic,
    /// By the fallback pool.
    Fallback,
}

/// A request's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The request.
    pub request: RequestId,
    /// Its address in the simulated device.
    pub address: u64,
    /// How it was found.
    pub source: Source,
}

/// A range of device memory and when it was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Where it starts.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// From when.
    pub begin: Time,
    /// Until when.
    pub end: Time,
}
