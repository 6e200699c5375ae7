//! What a file holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stalloc_plan::{Entry, Plan, SectionKind};
use stalloc_planner::{Effort, SolveOptions};
use stalloc_simulator::Kind;
use stalloc_synthesizer::{Witness, steps};
use stalloc_trace::{Event, Frame, InstanceTable, Recording, StackId, Trace};

use crate::gpu_class::GpuClass;
use crate::simulating::{Replays, simulate};
use crate::{Watch, planning};

/// A recording; serialises to what `stalloc info --json` prints of one. Sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingInfo<'a> {
    /// The file's format.
    pub format: &'static str,
    /// Events of all devices.
    pub events: u64,
    /// Requests of all devices.
    pub requests: u64,
    /// Steps of the device with the most.
    pub steps: u64,
    /// Most live bytes of a device.
    pub peak_allocated: u64,
    /// Most memory that the recorded allocator held on a device, where the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_peak_reserved: Option<u64>,
    /// One for each device.
    pub devices: Vec<DeviceInfo<'a>>,
    /// What was odd but could be read.
    pub warnings: &'a [String],
    /// What the file tells besides sizes and times.
    pub gives_away: Vec<String>,
}

/// One device of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo<'a> {
    /// Its number.
    pub device: u32,
    /// Events, marks included.
    pub events: u64,
    /// Allocations.
    pub requests: u64,
    /// Blocks that were live before the first event.
    pub live_before: u64,
    /// Streams.
    pub streams: u64,
    /// Steps found.
    pub steps: u64,
    /// Who said where they begin.
    pub steps_from: &'static str,
    /// What a user should know, in sentences.
    pub notes: Vec<String>,
    /// Most live bytes.
    pub peak_allocated: u64,
    /// Most memory that the recorded allocator held, where the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_peak_reserved: Option<u64>,
    /// Requests that failed.
    pub out_of_memory: u64,
    /// Different call stacks.
    pub call_stacks: u64,
    /// From the first event to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The fingerprint that a plan keeps, in hexadecimal.
    pub fingerprint: String,
    /// Values that the program read back from the device.
    pub host_reads: Vec<HostReadInfo>,
    /// What kind of GPU it was, where the recording does not name it and the libraries' workspaces tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_class: Option<GpuClass>,
    /// What our arena would reserve for the same requests, once that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena: Option<ArenaInfo>,
    /// The recorded allocator's settings, where the recording says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsInfo>,
    /// What the recorder noted of the process.
    pub metadata: &'a BTreeMap<String, String>,
}

/// What our arena would reserve at most, bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ArenaInfo {
    /// With no plan.
    pub open: u64,
    /// With a plan from this recording.
    pub planned: u64,
}

/// Values read back at one place of the program.
#[derive(Clone, Debug, Serialize)]
pub struct HostReadInfo {
    /// `FILE:LINE FUNCTION`.
    pub place: String,
    /// How often.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// What gave the answers; null: the program saw zeros.
    pub answer: Option<String>,
    /// Whether it may decide how much memory the program asks for; otherwise it is answered, or one floating-point number.
    pub may_change_memory: bool,
    /// The most elements of which it was guessed how many are chosen.
    pub guessed: Option<u64>,
}

/// Settings of PyTorch's allocator.
#[derive(Clone, Debug, Serialize)]
pub struct SettingsInfo {
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `max_split_size_mb`, in bytes.
    pub max_split_size: Option<u64>,
    /// `garbage_collection_threshold`.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`: MiB and divisions.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
}

/// What a recording holds. O(n log n) in its events.
pub fn recording(recording: &Recording) -> RecordingInfo<'_> {
    let devices: Vec<DeviceInfo> = recording.traces.iter().map(DeviceInfo::new).collect();
    RecordingInfo {
        format: recording.format.name(),
        events: devices.iter().map(|d| d.events).sum(),
        requests: devices.iter().map(|d| d.requests).sum(),
        steps: devices.iter().map(|d| d.steps).max().unwrap_or(0),
        peak_allocated: devices.iter().map(|d| d.peak_allocated).max().unwrap_or(0),
        actual_peak_reserved: devices.iter().filter_map(|d| d.actual_peak_reserved).max(),
        devices,
        warnings: &recording.warnings,
        gives_away: gives_away(recording),
    }
}

/// What a recording says of the program and of its user.
fn gives_away(recording: &Recording) -> Vec<String> {
    let known = |name: &str| recording.traces.iter().find_map(|trace| trace.metadata.get(name));
    let mut found = Vec::new();
    found.extend(known("command").map(|_| "the command line".to_owned()));
    found.extend(known("host").map(|host| format!("the host's name, {host}")));
    let (mut files, mut functions, mut users) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for trace in &recording.traces {
        for number in 0..trace.stacks.len() {
            for frame in trace.stacks.get(StackId(u32::try_from(number).unwrap_or(0))) {
                files.insert(trace.string(frame.file));
                functions.insert(trace.string(frame.function));
            }
        }
    }
    for file in &files {
        let own = ["/home/", "/Users/"].iter().find_map(|folder| file.strip_prefix(folder));
        users.extend(own.and_then(|rest| rest.split('/').next()));
    }
    if !files.is_empty() {
        found.push(format!("{} file and {} function names of call stacks", count(files.len()), count(functions.len())));
    }
    if !users.is_empty() {
        let names: Vec<&str> = users.into_iter().take(3).collect();
        found.push(format!("user names in paths ({})", names.join(", ")));
    }
    found
}

fn count(number: usize) -> String {
    stalloc_common::figures::count(number as u64)
}

impl RecordingInfo<'_> {
    /// Replays each device's requests through our arena, with no plan and with one made quickly from the recording; a device
    /// whose events contradict each other is left out. O(n log n).
    pub fn try_arenas(&mut self, recording: &Recording, watch: &mut dyn Watch) {
        for (device, trace) in self.devices.iter_mut().zip(&recording.traces) {
            let effort = SolveOptions { effort: Effort::Quick, ..planning::usual_effort() };
            let planned = planning::trace(trace, effort, watch).ok();
            let replays = Replays { plan: planned.map(|(plan, _)| plan), ..Replays::default() };
            if replays.plan.is_none() {
                continue;
            }
            let kinds = [Kind::StallocOpen, Kind::Stalloc];
            let Ok(comparison) = simulate(trace, &kinds, replays, watch) else { continue };
            if let [open, planned] = comparison.results.as_slice() {
                device.arena = Some(ArenaInfo { open: open.peak_reserved, planned: planned.peak_reserved });
            }
        }
    }
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
            arena: None,
            fingerprint: format!("{:016x}", trace.fingerprint()),
            host_reads: host_reads(trace),
            gpu_class: if trace.metadata.contains_key("device_name") { None } else { GpuClass::of(trace) },
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
        may_change_memory: read.may_change_memory(),
        guessed: read.guessed,
    };
    trace.host_reads().into_iter().map(info).collect()
}

/// Where a stack is in the user's program, for people: its innermost Python frame, or else its innermost one.
fn place(trace: &Trace, stack: StackId) -> String {
    let frames = trace.stacks.get(stack);
    let python = frames.iter().find(|frame| trace.string(frame.file).ends_with(".py"));
    python.or(frames.first()).map_or_else(|| "unknown place".to_owned(), |frame| frame_text(trace, frame))
}

/// A frame as `FILE:LINE FUNCTION`.
pub(crate) fn frame_text(trace: &Trace, frame: &Frame) -> String {
    format!("{}:{} {}", trace.string(frame.file), frame.line, trace.string(frame.function))
}

/// A plan; serialises to what `stalloc info --json` prints of one. Sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct PlanInfo<'a> {
    /// `plan`.
    pub format: &'static str,
    /// The device that it is for.
    pub device: u32,
    /// Fingerprint of the trace that it was made from, in hexadecimal.
    pub fingerprint: String,
    /// Length of its range of addresses.
    pub arena: u64,
    /// No plan of the same requests needs less.
    pub lower_bound: u64,
    /// What every offset is a multiple of.
    pub alignment: u64,
    /// Planned requests.
    pub slots: u64,
    /// Most live bytes to expect.
    pub expected_peak: u64,
    /// What the program runs through.
    pub sections: Vec<SectionInfo<'a>>,
    /// What the plan keeps of the recording.
    pub metadata: &'a BTreeMap<String, String>,
}

/// One section of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct SectionInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is, for people.
    pub kind: &'static str,
    /// How often it was seen.
    pub runs: u32,
    /// Requests with an offset.
    pub planned: u64,
    /// Requests without.
    pub dynamic: u64,
}

/// What a plan holds.
pub fn plan(plan: &Plan) -> PlanInfo<'_> {
    let sections = plan.sections.iter().map(|section| {
        let planned = section.entries.iter().filter(|entry| matches!(entry, Entry::Slot(_))).count() as u64;
        SectionInfo {
            name: &section.name,
            kind: kind(section.kind),
            runs: section.runs,
            planned,
            dynamic: section.entries.len() as u64 - planned,
        }
    });
    PlanInfo {
        format: "plan",
        device: plan.device,
        fingerprint: format!("{:016x}", plan.fingerprint),
        arena: plan.arena,
        lower_bound: plan.lower_bound,
        alignment: plan.alignment,
        slots: plan.slots.len() as u64,
        expected_peak: plan.expected_peak,
        sections: sections.collect(),
        metadata: &plan.metadata,
    }
}

/// What a section is, for people.
fn kind(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Prologue => "before the first step",
        SectionKind::Once => "once",
        SectionKind::Repeating => "repeating",
    }
}

/// An instance; serialises to what `stalloc info --json` prints of one.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceInfo<'a> {
    /// `dsa`.
    pub format: &'static str,
    /// How many buffers.
    pub buffers: u64,
    /// No solution needs less.
    pub lower_bound: u64,
    /// When the first buffer begins.
    pub first: u64,
    /// When the last one ends.
    pub end: u64,
    /// The largest size.
    pub largest: u64,
    /// Buffers with an alignment.
    pub aligned: u64,
    /// Buffers with an offset.
    pub placed: u64,
    /// What was odd but could be read.
    pub warnings: &'a [String],
}

/// What an instance holds.
pub fn instance(instance: &InstanceTable) -> InstanceInfo<'_> {
    let rows = &instance.rows;
    InstanceInfo {
        format: "dsa",
        buffers: rows.len() as u64,
        lower_bound: instance.lower_bound(),
        first: rows.iter().map(|row| row.lower).min().unwrap_or(0),
        end: rows.iter().map(|row| row.upper).max().unwrap_or(0),
        largest: rows.iter().map(|row| row.size).max().unwrap_or(0),
        aligned: rows.iter().filter(|row| row.alignment > 1).count() as u64,
        placed: rows.iter().filter(|row| row.offset.is_some()).count() as u64,
        warnings: &instance.warnings,
    }
}
