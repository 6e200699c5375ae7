//! `stalloc info`: what a file holds, and whether two recordings ask for the same memory.

mod compare;
mod plan;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use stalloc_synthesizer::{Witness, steps};
use stalloc_trace::{Event, Frame, Input, Instance, Recording, StackId, Trace};

use crate::error::{Error, Outcome};
use crate::input;
use crate::output::{self, Table};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc info job.pickle                  devices, requests, steps, peaks\n  \
                        stalloc info job.plan                    what a plan holds\n  \
                        stalloc info --compare a.trace b.trace   do two runs ask for the same memory?\n\n\
                        Exit status: 0 if done, 1 if with --compare they differ, 2 if a file cannot be read.")]
pub struct Args {
    /// A snapshot, a trace, a mem_log, a CSV instance or a plan
    #[arg(required = true, num_args = 1..=2, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Compare two recordings request by request
    #[arg(long)]
    compare: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    match (args.inputs.as_slice(), args.compare) {
        ([a, b], true) => compare::run(a, b, args.json),
        (_, true) => Err(Error::message("--compare takes two recordings: stalloc info --compare A B")),
        ([path], false) => {
            if input::is_plan(path) {
                plan::print(&input::plan(path)?, args.json)?;
                return Ok(Outcome::Done);
            }
            match input::open(path)? {
                Input::Recording(recording) => print_recording(&recording, args.json)?,
                Input::Instance(instance) => print_instance(&instance, args.json)?,
            }
            Ok(Outcome::Done)
        }
        _ => Err(Error::message("info takes one input, or two with --compare")),
    }
}

/// What `--json` prints of a recording.
#[derive(Serialize)]
struct RecordingInfo<'a> {
    format: &'static str,
    events: u64,
    requests: u64,
    steps: u64,
    peak_allocated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_peak_reserved: Option<u64>,
    devices: Vec<DeviceInfo<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct DeviceInfo<'a> {
    device: u32,
    events: u64,
    requests: u64,
    live_before: u64,
    streams: u64,
    steps: u64,
    steps_from: &'static str,
    notes: Vec<String>,
    peak_allocated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_peak_reserved: Option<u64>,
    out_of_memory: u64,
    call_stacks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    fingerprint: String,
    host_reads: Vec<HostReadInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsInfo>,
    metadata: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct HostReadInfo {
    place: String,
    count: u64,
    bytes: u64,
    /// What gave the answers; null: the program saw zeros.
    answer: Option<String>,
}

#[derive(Serialize)]
struct SettingsInfo {
    expandable_segments: bool,
    max_split_size: Option<u64>,
    garbage_collection_threshold: f64,
    roundup_power2_divisions: Vec<(u64, u64)>,
}

impl<'a> DeviceInfo<'a> {
    fn new(trace: &'a Trace) -> Self {
        let steps = steps(trace);
        let span = trace.times_us.iter().min().zip(trace.times_us.iter().max());
        DeviceInfo {
            device: trace.device,
            events: trace.events.len() as u64,
            requests: trace.requests.len() as u64,
            live_before: trace.requests.iter().filter(|r| r.alloc.is_none()).count() as u64,
            streams: trace.streams.len() as u64,
            steps: steps.requests.len() as u64,
            steps_from: steps_from(steps.witness),
            notes: steps.notes,
            peak_allocated: trace.peak_allocated(),
            actual_peak_reserved: trace.peak_reserved(),
            out_of_memory: trace.events.iter().filter(|e| matches!(e, Event::OutOfMemory { .. })).count() as u64,
            call_stacks: trace.stacks.len() as u64 - 1,
            seconds: span.map(|(first, last)| (last - first) as f64 / 1e6),
            fingerprint: format!("{:016x}", trace.fingerprint()),
            host_reads: host_reads(trace),
            settings: trace.settings.as_ref().map(|settings| SettingsInfo {
                expandable_segments: settings.expandable_segments,
                max_split_size: settings.max_split_size,
                garbage_collection_threshold: settings.garbage_collection_threshold,
                roundup_power2_divisions: settings.roundup_power2_divisions.clone(),
            }),
            metadata: &trace.metadata,
        }
    }
}

/// Who said where the steps begin, for people.
fn steps_from(witness: Witness) -> &'static str {
    match witness {
        Witness::Marks => "marks",
        Witness::Annotations => "annotations",
        Witness::Repetition => "repetition",
        Witness::Nobody => "nothing",
    }
}

fn host_reads(trace: &Trace) -> Vec<HostReadInfo> {
    let info = |read: stalloc_trace::HostReads| HostReadInfo {
        place: place(trace, read.stack),
        count: read.count,
        bytes: read.bytes,
        answer: read.answer.map(|answer| trace.string(answer).to_owned()),
    };
    trace.host_reads().into_iter().map(info).collect()
}

/// Where a stack is in the user's program, for people: its innermost Python frame, or else its innermost one.
fn place(trace: &Trace, stack: StackId) -> String {
    let frames = trace.stacks.get(stack);
    let python = frames.iter().find(|frame| trace.string(frame.file).ends_with(".py"));
    python.or(frames.first()).map_or_else(|| "unknown place".to_owned(), |frame| frame_text(trace, frame))
}

fn frame_text(trace: &Trace, frame: &Frame) -> String {
    format!("{}:{} {}", trace.string(frame.file), frame.line, trace.string(frame.function))
}

fn print_recording(recording: &Recording, json: bool) -> Result<(), Error> {
    let devices: Vec<DeviceInfo> = recording.traces.iter().map(DeviceInfo::new).collect();
    let info = RecordingInfo {
        format: recording.format.name(),
        events: devices.iter().map(|d| d.events).sum(),
        requests: devices.iter().map(|d| d.requests).sum(),
        steps: devices.iter().map(|d| d.steps).max().unwrap_or(0),
        peak_allocated: devices.iter().map(|d| d.peak_allocated).max().unwrap_or(0),
        actual_peak_reserved: devices.iter().filter_map(|d| d.actual_peak_reserved).max(),
        devices,
        warnings: &recording.warnings,
    };
    if json {
        return output::json(&info);
    }
    output::line(&format!("{} of {} device(s)", info.format, info.devices.len()))?;
    let header =
        ["device", "events", "requests", "live before", "streams", "steps", "peak allocated", "peak reserved", "used"];
    let mut table = Table::new(&header);
    for device in &info.devices {
        let reserved = device.actual_peak_reserved;
        let used = |reserved: u64| output::percent(device.peak_allocated as f64 / reserved.max(1) as f64);
        table.row(vec![
            device.device.to_string(),
            output::count(device.events),
            output::count(device.requests),
            output::count(device.live_before),
            output::count(device.streams),
            output::count(device.steps),
            output::bytes(device.peak_allocated),
            reserved.map_or("unknown".to_owned(), output::bytes),
            reserved.map_or(String::new(), used),
        ]);
    }
    table.print()?;
    for device in &info.devices {
        print_device(device, info.devices.len() > 1)?;
    }
    Ok(())
}

fn print_device(device: &DeviceInfo<'_>, named: bool) -> Result<(), Error> {
    let mut lines = Vec::new();
    lines.extend(device.notes.iter().cloned());
    if let Some(seconds) = device.seconds {
        lines.push(format!("recorded over {seconds:.2} s"));
    }
    if device.out_of_memory > 0 {
        lines.push(format!("requests that failed for lack of memory: {}", device.out_of_memory));
    }
    if let Some(settings) = &device.settings {
        let mut set = Vec::new();
        set.extend(settings.expandable_segments.then(|| "expandable segments".to_owned()));
        set.extend(settings.max_split_size.map(|size| format!("max split size {}", output::bytes(size))));
        if settings.garbage_collection_threshold > 0.0 {
            set.push(format!("garbage collection from {}", output::percent(settings.garbage_collection_threshold)));
        }
        set.extend((!settings.roundup_power2_divisions.is_empty()).then(|| "power-of-2 rounding".to_owned()));
        lines.push(format!(
            "allocator settings: {}",
            if set.is_empty() { "default".to_owned() } else { set.join(", ") }
        ));
    }
    lines.extend(device.metadata.iter().map(|(key, value)| format!("{key}: {value}")));
    for read in device.host_reads.iter().take(5) {
        lines.push(format!(
            "reads back from the device {} times, {} in all, {}: {}",
            output::count(read.count),
            output::bytes(read.bytes),
            output::answer(read.answer.as_deref()),
            read.place
        ));
    }
    if device.host_reads.len() > 5 {
        lines.push(format!("and at {} other places", device.host_reads.len() - 5));
    }
    for line in lines {
        let name = if named { format!("device {}: ", device.device) } else { String::new() };
        output::line(&format!("  {name}{line}"))?;
    }
    Ok(())
}

/// What `--json` prints of an instance.
#[derive(Serialize)]
struct InstanceInfo<'a> {
    format: &'static str,
    buffers: u64,
    lower_bound: u64,
    first: u64,
    end: u64,
    largest: u64,
    aligned: u64,
    placed: u64,
    warnings: &'a [String],
}

fn print_instance(instance: &Instance, json: bool) -> Result<(), Error> {
    let rows = &instance.rows;
    let info = InstanceInfo {
        format: "dsa",
        buffers: rows.len() as u64,
        lower_bound: instance.lower_bound(),
        first: rows.iter().map(|row| row.lower).min().unwrap_or(0),
        end: rows.iter().map(|row| row.upper).max().unwrap_or(0),
        largest: rows.iter().map(|row| row.size).max().unwrap_or(0),
        aligned: rows.iter().filter(|row| row.alignment > 1).count() as u64,
        placed: rows.iter().filter(|row| row.offset.is_some()).count() as u64,
        warnings: &instance.warnings,
    };
    if json {
        return output::json(&info);
    }
    output::line(&format!("DSA instance of {} buffers", output::count(info.buffers)))?;
    output::line(&format!(
        "  lower bound: {} ({} bytes)",
        output::bytes(info.lower_bound),
        output::count(info.lower_bound)
    ))?;
    output::line(&format!("  times: {} to {}; largest buffer: {}", info.first, info.end, output::bytes(info.largest)))?;
    output::line(&format!("  with an alignment: {}; with an offset: {}", info.aligned, info.placed))
}
