//! Whether two recordings ask for the same memory.

use serde::Serialize;
use stalloc_trace::{Difference, Event, Recording, RequestId, Trace};

use crate::describing::frame_text;

/// How two recordings differ; serialises to what `stalloc info --compare --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordingComparison {
    /// Whether they ask for the same memory.
    pub same: bool,
    /// The devices that both have.
    pub devices: Vec<DeviceComparison>,
    /// Devices that only the first has.
    pub only_in_a: Vec<u32>,
    /// Devices that only the second has.
    pub only_in_b: Vec<u32>,
}

/// How the requests of one device differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceComparison {
    /// Its number in the first recording.
    pub device: u32,
    /// Requests of the first.
    pub requests_a: u64,
    /// Requests of the second.
    pub requests_b: u64,
    /// Events of the first: requests that it saw served or given back.
    pub events_a: u64,
    /// Events of the second.
    pub events_b: u64,
    /// Events that are the same in both, at the same place of the order.
    pub same_events: u64,
    /// The largest number of live bytes of the first.
    pub peak_allocated_a: u64,
    /// The same of the second.
    pub peak_allocated_b: u64,
    /// What the first had reserved at most, where it says so.
    pub peak_reserved_a: Option<u64>,
    /// The same of the second.
    pub peak_reserved_b: Option<u64>,
    /// Requests that are the same in both.
    pub aligned: u64,
    /// How many differ.
    pub differences: u64,
    /// The first of those that differ.
    pub first: Vec<DifferenceInfo>,
}

/// One difference: a request of either, or of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferenceInfo {
    /// What it is, in words.
    pub kind: &'static str,
    /// The request of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<RequestInfo>,
    /// The request of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<RequestInfo>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestInfo {
    /// Its number within the trace.
    pub request: u32,
    /// Bytes.
    pub size: u64,
    /// Stream.
    pub stream: u32,
    /// The event that allocated it; none: it lived before the first.
    pub allocated: Option<u32>,
    /// The event that freed it, if one did.
    pub freed: Option<u32>,
    /// `FILE:LINE FUNCTION`, innermost first.
    pub stack: Vec<String>,
}

/// Compares two recordings device by device, request by request; the first `shown` differences of each device are told.
pub fn compare(a: &Recording, b: &Recording, shown: usize) -> RecordingComparison {
    // A dry run may have used another device than the run it stands for.
    let pairs: Vec<(&Trace, &Trace)> = match (a.traces.as_slice(), b.traces.as_slice()) {
        ([a], [b]) => vec![(a, b)],
        (all_a, all_b) => {
            let with = |a: &Trace| all_b.iter().find(|b| b.device == a.device);
            all_a.iter().filter_map(|a| with(a).map(|b| (a, b))).collect()
        }
    };
    let unpaired = |recording: &Recording, paired: &dyn Fn(&Trace) -> bool| {
        recording.traces.iter().filter(|trace| !paired(trace)).map(|trace| trace.device).collect::<Vec<u32>>()
    };
    let only_in_a = unpaired(a, &|trace| pairs.iter().any(|pair| std::ptr::eq(pair.0, trace)));
    let only_in_b = unpaired(b, &|trace| pairs.iter().any(|pair| std::ptr::eq(pair.1, trace)));
    let devices: Vec<DeviceComparison> = pairs.iter().map(|(a, b)| device(a, b, shown)).collect();
    let same = only_in_a.is_empty() && only_in_b.is_empty() && devices.iter().all(|d| d.differences == 0);
    RecordingComparison { same, devices, only_in_a, only_in_b }
}

fn device(a: &Trace, b: &Trace, shown: usize) -> DeviceComparison {
    let comparison = stalloc_trace::compare(a, b, shown);
    DeviceComparison {
        device: a.device,
        requests_a: a.requests.len() as u64,
        requests_b: b.requests.len() as u64,
        events_a: events(a),
        events_b: events(b),
        same_events: comparison.same_events,
        peak_allocated_a: a.peak_allocated(),
        peak_allocated_b: b.peak_allocated(),
        peak_reserved_a: a.peak_reserved(),
        peak_reserved_b: b.peak_reserved(),
        aligned: comparison.aligned,
        differences: comparison.differences,
        first: comparison.first.iter().map(|difference| describe(difference, a, b)).collect(),
    }
}

fn events(trace: &Trace) -> u64 {
    trace.events.iter().filter(|event| matches!(event, Event::Alloc(_) | Event::FreeRequested(_))).count() as u64
}

fn describe(difference: &Difference, a: &Trace, b: &Trace) -> DifferenceInfo {
    let (kind, in_a, in_b) = match *difference {
        Difference::OnlyInA(id) => ("only in A", Some(id), None),
        Difference::OnlyInB(id) => ("only in B", None, Some(id)),
        Difference::Changed(in_a, in_b) => ("changed", Some(in_a), Some(in_b)),
        Difference::FreedElsewhere(in_a, in_b) => ("freed elsewhere", Some(in_a), Some(in_b)),
    };
    DifferenceInfo { kind, a: in_a.map(|id| request(a, id)), b: in_b.map(|id| request(b, id)) }
}

fn request(trace: &Trace, id: RequestId) -> RequestInfo {
    let request = trace.request(id);
    RequestInfo {
        request: id.0,
        size: request.size,
        stream: request.stream.0,
        allocated: request.alloc,
        freed: request.free_requested,
        stack: trace.stacks.get(request.stack).iter().map(|frame| frame_text(trace, frame)).collect(),
    }
}
