//! Several allocators side by side.

use serde::Serialize;
use stalloc_trace::Trace;
use stalloc_trace::pace::Clock;

use crate::{Error, Kind, Options, Replay, actual_peak_reserved, replay};

/// What several allocators made of one trace. Serialises to what `stalloc simulate --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AllocatorComparison {
    /// Device number within the recorded process.
    pub device: u32,
    /// Requests of the trace.
    pub requests: usize,
    /// Most live bytes at once, each request rounded up to 512.
    pub peak_allocated: u64,
    /// Most bytes that the recorded allocator held, where the recording says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_peak_reserved: Option<u64>,
    /// The clock that steps were timed by, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// One per allocator.
    pub results: Vec<AllocatorOutcome>,
}

/// What one allocator made of a trace, in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AllocatorOutcome {
    /// Its name.
    pub allocator: &'static str,
    /// Most device memory held at once, bytes.
    pub peak_reserved: u64,
    /// The same where what other streams use comes back when the step ends, not as recorded; `None` where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_reserved_late: Option<u64>,
    /// Peak allocated over peak reserved.
    pub efficiency: f64,
    /// Peak reserved less peak allocated.
    pub fragmentation_bytes: u64,
    /// Whether it ran out of memory; the other figures are those up to then.
    pub oom: bool,
    /// Mean time of an operation, nanoseconds.
    pub ns_per_op: f64,
    /// See [`Replay::remaps`].
    pub remaps: Option<u64>,
    /// See [`Replay::remapped_bytes`].
    pub remapped_bytes: Option<u64>,
    /// See [`Replay::remaps_by_step`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remaps_by_step: Vec<u64>,
    /// See [`Replay::driver_ms_by_step`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub driver_ms_by_step: Vec<f64>,
    /// See [`Replay::planned`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<u64>,
    /// See [`Replay::driver_calls`].
    pub driver_calls: u64,
    /// See [`Replay::driver_ms`].
    pub driver_ms: f64,
    /// See [`Replay::waited_ms`].
    pub waited_ms: f64,
    /// See [`Replay::step_ms`].
    pub step_ms: Option<f64>,
    /// The smallest device that it gets through on, bytes; `None` where that was not looked for.
    pub smallest_capacity: Option<u64>,
}

impl From<&Replay> for AllocatorOutcome {
    fn from(replay: &Replay) -> Self {
        AllocatorOutcome {
            allocator: replay.allocator,
            peak_reserved: replay.peak_reserved,
            peak_reserved_late: None,
            efficiency: replay.efficiency(),
            fragmentation_bytes: replay.fragmentation_bytes(),
            oom: replay.oom.is_some(),
            ns_per_op: replay.ns_per_op,
            remaps: replay.remaps,
            remapped_bytes: replay.remapped_bytes,
            remaps_by_step: replay.remaps_by_step.clone(),
            driver_ms_by_step: replay.driver_ms_by_step.clone(),
            planned: replay.planned,
            driver_calls: replay.driver_calls,
            driver_ms: replay.driver_ms,
            waited_ms: replay.waited_ms,
            step_ms: replay.step_ms,
            smallest_capacity: None,
        }
    }
}

/// Replays a trace through each of `kinds`. `progress` is told which one is under way and how far it is.
pub fn compare(
    trace: &Trace,
    kinds: &[Kind],
    options: &Options<'_>,
    progress: &mut dyn FnMut(Kind, u64, u64),
) -> Result<AllocatorComparison, Error> {
    let outcome = |&kind: &Kind| {
        let replay = replay(trace, kind, options, &mut |done, total| progress(kind, done, total))?;
        Ok(AllocatorOutcome::from(&replay))
    };
    Ok(AllocatorComparison {
        device: trace.device,
        requests: trace.requests.len(),
        peak_allocated: trace.peak_allocated(),
        actual_peak_reserved: actual_peak_reserved(trace),
        clock: trace.pace().map(|pace| pace.clock),
        results: kinds.iter().map(outcome).collect::<Result<_, Error>>()?,
    })
}
