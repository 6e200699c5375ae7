//! `stalloc info --compare A B`.

use std::path::Path;

use stalloc_jobs::comparing::{RecordingComparison, RequestInfo, compare};
use stalloc_jobs::inputs;

use crate::error::{Ending, Error};
use crate::output;
use crate::progress::Terminal;

/// Differences that are shown.
const SHOWN: usize = 10;
/// Frames of a stack that are shown to people.
const FRAMES: usize = 4;

/// Compares two recordings device by device.
pub fn run(path_a: &Path, path_b: &Path, json: bool) -> Result<Ending, Error> {
    let a = inputs::recording(path_a, &mut Terminal::new())?;
    let b = inputs::recording(path_b, &mut Terminal::new())?;
    let info = compare(&a, &b, SHOWN);
    let outcome = if info.same { Ending::Done } else { Ending::No };
    if json {
        output::json(&info)?;
    } else {
        print(&info)?;
        let report = format!("stalloc report {} {} -o report.html", path_a.display(), path_b.display());
        output::next(&report, "compares their memory by line, category and size")?;
    }
    Ok(outcome)
}

fn print(info: &RecordingComparison) -> Result<(), Error> {
    for device in &info.devices {
        output::line(&format!(
            "device {}: {} requests in A, {} in B, {} the same, {} differences",
            device.device,
            output::count(device.requests_a),
            output::count(device.requests_b),
            output::count(device.aligned),
            output::count(device.differences)
        ))?;
        output::line(&format!(
            "  {} of {} events are the same, in order; peak allocated {} in A, {} in B; peak reserved {} in A, {} in B",
            output::count(device.same_events),
            output::count(device.events_a),
            output::bytes(device.peak_allocated_a),
            output::bytes(device.peak_allocated_b),
            device.peak_reserved_a.map_or("unknown".to_owned(), output::bytes),
            device.peak_reserved_b.map_or("unknown".to_owned(), output::bytes),
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
