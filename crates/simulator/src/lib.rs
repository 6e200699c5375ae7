//! Replays a trace through any allocator: PyTorch's, expandable segments, GMLake, stalloc.
//!
//! [`replay`] drives an allocator with the requests of a [`Trace`] over a device that only counts, and says how much
//! memory it reserved, where each request went and how long it took. PyTorch's allocators and stalloc are the code
//! that runs in a training process, not models of it; [`gmlake`] is a model. [`fidelity`] holds the code of PyTorch's
//! allocator against what a snapshot recorded.
//!
//! What a replay keeps of a recording:
//! - requests, releases and streams, in order; memory that waits for another stream stays away until the recording says
//!   that the wait was over;
//! - what was live before the first event. Where a snapshot shows the state of PyTorch's allocator then, the replay of
//!   that same allocator starts from it, fragmentation included; every other one is asked for those requests first, in
//!   the order of the trace.
//!
//! - that the cache was emptied. A recording does not hold calls of `empty_cache`, but it shows that everything cached
//!   was given back, be it for that or for want of memory; every allocator is told to do so at that moment.
//!
//! It leaves out requests that failed.
//!
//! A million events (163 steps of a transformer whose sequence length varies) replay in 0.10 s (`pytorch-expandable`),
//! 0.23 s (`pytorch`), 0.25 s (`stalloc`, nothing planned) and 0.27 s (`gmlake`): `cargo bench -p stalloc-simulator`,
//! median on a busy 2-core x86-64 container. What the allocators make of real recordings is in `bench/results/evaluation.md`,
//! how true the models are in `bench/results/fidelity.md`.

#![forbid(unsafe_code)]

use stalloc_trace::{RequestId, Time, Trace};

mod adopt;
mod auto;
mod busy;
mod compare;
mod continued;
mod device;
mod error;
pub mod fidelity;
pub mod gmlake;
mod kind;
mod program;
mod returning;
mod run;
mod serve;
mod smallest;
#[cfg(test)]
mod tests;

pub use compare::{AllocatorComparison, AllocatorOutcome, compare};
pub use continued::continued;
pub use error::Error;
pub use kind::{Kind, Options};
pub use returning::{Return, returning};
pub use smallest::smallest_capacity;
pub use stalloc_allocator::MAPPED_AT_ONCE;

/// What one allocator made of a trace.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its name, as on the command line.
    pub allocator: &'static str,
    /// Most device memory held at once, bytes.
    pub peak_reserved: u64,
    /// Most live bytes at once, each request rounded up to 512.
    pub peak_allocated: u64,
    /// When it first ran out of memory, if it did; the replay ends there.
    pub oom: Option<Time>,
    /// Mean time of an operation (malloc or free), nanoseconds.
    pub ns_per_op: f64,
    /// Remaps: times that memory was taken from where no block was to where it was needed, for which a device must be
    /// waited for; `None` for allocators that do not remap.
    pub remaps: Option<u64>,
    /// Bytes of memory that was taken so.
    pub remapped_bytes: Option<u64>,
    /// Remaps of each step that the trace marks; what lies before the first step is in none.
    pub remaps_by_step: Vec<u64>,
    /// [`Self::driver_ms`] of each step that the trace marks; what lies before the first step is in none.
    pub driver_ms_by_step: Vec<f64>,
    /// Requests served at planned offsets; `None` for allocators that do not plan.
    pub planned: Option<u64>,
    /// Calls of the driver to take, map and give back memory.
    pub driver_calls: u64,
    /// Time that they take by prices of an H200, milliseconds: see [`stalloc_device::DriverWork`].
    pub driver_ms: f64,
    /// Time that the host waited for other streams' work, milliseconds; 0 where the recording has no clock.
    pub waited_ms: f64,
    /// Milliseconds of a step under this allocator, where the recording says how long its steps take.
    pub step_ms: Option<f64>,
    /// Reserved bytes, each time they change: (event time, bytes after it).
    pub reserved: Vec<(Time, u64)>,
    /// Where each request was put, in the order in which they were.
    pub placements: Vec<Placement>,
    /// Ranges of device memory held over time.
    pub segments: Vec<SegmentSpan>,
}

impl Replay {
    /// Peak allocated over peak reserved; 1 where nothing was reserved.
    pub fn efficiency(&self) -> f64 {
        match self.peak_reserved {
            0 => 1.0,
            reserved => self.peak_allocated as f64 / reserved as f64,
        }
    }

    /// Peak reserved less peak allocated, bytes.
    pub fn fragmentation_bytes(&self) -> u64 {
        self.peak_reserved.saturating_sub(self.peak_allocated)
    }
}

/// How a placement was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlacedBy {
    /// By an allocator that does not plan.
    Online,
    /// From the plan.
    Planned,
    /// In the arena, where it fitted best.
    BestFit,
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
    pub source: PlacedBy,
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

/// Replays a trace. Running out of memory is a result ([`Replay::oom`]), not an error. `progress` is told how many of
/// how many operations are done.
pub fn replay(
    trace: &Trace,
    kind: Kind,
    options: &Options<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replay, Error> {
    run::replay(trace, kind, options, progress)
}

/// Most device memory that the recorded allocator held at once, bytes; `None` where the recording does not say.
pub fn actual_peak_reserved(trace: &Trace) -> Option<u64> {
    use stalloc_trace::{Event, SegmentAction};

    let mut reserved = trace.initial.as_ref().map(stalloc_trace::MemoryState::reserved);
    let mut peak = reserved;
    for event in &trace.events {
        let Event::Segment(segment) = event else { continue };
        let before = reserved.unwrap_or(0);
        let after = match segment.action {
            SegmentAction::Alloc | SegmentAction::Map => before.saturating_add(segment.size),
            SegmentAction::Free | SegmentAction::Unmap => before.saturating_sub(segment.size),
        };
        reserved = Some(after);
        peak = peak.max(reserved);
    }
    peak.max(trace.last.as_ref().map(stalloc_trace::MemoryState::reserved))
}
