//! `stalloc info --compare A B`.

use std::path::Path;

use serde::Serialize;
use stalloc_trace::{Difference, Recording, RequestId, Trace, compare};

use super::frame_text;
use crate::error::{Error, Outcome};
use crate::{input, output};

/// Differences that are shown.
const SHOWN: usize = 10;
/// Frames of a stack that are shown to people.
const FRAMES: usize = 4;

/// What `--json` prints.
#[derive(Serialize)]
struct ComparisonInfo {
    same: bool,
    devices: Vec<DeviceInfo>,
    only_in_a: Vec<u32>,
    only_in_b: Vec<u32>,
}

#[derive(Serialize)]
struct DeviceInfo {
    device: u32,
    requests_a: u64,
    requests_b: u64,
    aligned: u64,
    differences: u64,
    first: Vec<DifferenceInfo>,
}

#[derive(Serialize)]
struct DifferenceInfo {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<RequestInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<RequestInfo>,
}

#[derive(Serialize)]
struct RequestInfo {
    request: u32,
    size: u64,
    stream: u32,
    allocated: Option<u32>,
    freed: Option<u32>,
    stack: Vec<String>,
}

/// Compares two recordings device by device.
pub fn run(path_a: &Path, path_b: &Path, json: bool) -> Result<Outcome, Error> {
    let (a, b) = (input::recording(path_a)?, input::recording(path_b)?);
    let info = compare_recordings(&a, &b);
    let outcome = if info.same { Outcome::Done } else { Outcome::No };
    if json {
        output::json(&info)?;
    } else {
        print(&info)?;
    }
    Ok(outcome)
}

fn compare_recordings(a: &Recording, b: &Recording) -> ComparisonInfo {
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
    let devices: Vec<DeviceInfo> = pairs.iter().map(|(a, b)| device(a, b)).collect();
    let same = only_in_a.is_empty() && only_in_b.is_empty() && devices.iter().all(|d| d.differences == 0);
    ComparisonInfo { same, devices, only_in_a, only_in_b }
}

fn device(a: &Trace, b: &Trace) -> DeviceInfo {
    let comparison = compare(a, b, SHOWN);
    DeviceInfo {
        device: a.device,
        requests_a: a.requests.len() as u64,
        requests_b: b.requests.len() as u64,
        aligned: comparison.aligned,
        differences: comparison.differences,
        first: comparison.first.iter().map(|difference| describe(difference, a, b)).collect(),
    }
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

fn print(info: &ComparisonInfo) -> Result<(), Error> {
    for device in &info.devices {
        output::line(&format!(
            "device {}: {} requests in A, {} in B, {} the same, {} differences",
            device.device,
            output::count(device.requests_a),
            output::count(device.requests_b),
            output::count(device.aligned),
            output::count(device.differences)
        ))?;
        for difference in &device.first {
            output::line(&format!("  {}", difference.kind))?;
            for (name, request) in [("A", &difference.a), ("B", &difference.b)] {
                let Some(request) = request else { continue };
                output::line(&request_text(name, request))?;
                for frame in shown(&request.stack) {
                    output::line(&format!("         {frame}"))?;
                }
            }
        }
        if device.differences > device.first.len() as u64 {
            output::line(&format!("  and {} more", output::count(device.differences - device.first.len() as u64)))?;
        }
    }
    for (name, devices) in [("A", &info.only_in_a), ("B", &info.only_in_b)] {
        for device in devices {
            output::line(&format!("device {device} is only in {name}"))?;
        }
    }
    output::line(if info.same { "the same requests, in the same order" } else { "different" })
}

fn request_text(name: &str, request: &RequestInfo) -> String {
    let at = |time: Option<u32>, none: &str| time.map_or(none.to_owned(), |time| format!("event {time}"));
    format!(
        "    {name}: request {}, {} bytes, stream {}, from {} to {}",
        request.request,
        output::count(request.size),
        request.stream,
        at(request.allocated, "before the start"),
        at(request.freed, "the end")
    )
}

/// The frames to show: those of Python if there are any, for C++ frames come by the dozen.
fn shown(stack: &[String]) -> impl Iterator<Item = &String> {
    let python = |frame: &&String| frame.contains(".py:");
    let any = stack.iter().any(|frame| python(&frame));
    stack.iter().filter(move |frame| !any || python(frame)).take(FRAMES)
}
