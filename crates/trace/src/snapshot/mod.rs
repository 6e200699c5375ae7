//! PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`), all versions, CUDA and other back ends.
//!
//! A snapshot holds what the caching allocator holds now (`segments`) and, per device, the last entries of a ring
//! buffer of what it did (`device_traces`). Nothing says what it held when the first of those entries was made:
//! [`rewind`] works that out backwards from the segments.

mod entry;
mod rewind;
mod settings;
mod stacks;
mod state;

use std::collections::BTreeMap;

use self::entry::{Action, EntryReader};
use self::rewind::Past;
use self::stacks::StackReader;
use self::state::SegmentRecord;
use crate::builder::TraceBuilder;
use crate::error::{Budget, Fault, FilePosition, Result};
use crate::input::InputBytes;
use crate::model::{Format, Mark, Recording, SegmentAction, Trace};
use crate::pickle::{self, Pickled, Value};
use crate::raw::RawEvent;

/// More devices than any machine has.
const MOST_DEVICES: usize = 1024;
/// Memory that an entry of the trace may take once it is read.
const EVENT_BYTES: u64 = 160;

const NOT_A_SNAPSHOT: &str = "write a snapshot with torch.cuda.memory._dump_snapshot";

/// Reads a snapshot.
pub(crate) fn read(input: &mut InputBytes<'_>, mut budget: Budget) -> Result<Recording> {
    let (arena, top) = pickle::load(input, &mut budget)?;
    // torch.cuda.memory_snapshot() returns the list of segments alone.
    let (segments, traces) = if top.is_list() {
        (top, Value::MISSING)
    } else {
        (arena.get(top, "segments"), arena.get(top, "device_traces"))
    };
    if segments.is_absent() && traces.is_absent() {
        let problem = format!("a pickle, but no memory snapshot: its top is a {}", top.type_name());
        return Err(Fault::new(
            FilePosition::File,
            format!("{problem} without segments or device_traces"),
            NOT_A_SNAPSHOT,
        ));
    }
    let mut by_device = state::read(&arena, segments, &mut budget)?;
    let mut entries = entries_by_device(&arena, traces, &mut budget)?;
    let settings = settings::read(&arena, arena.get(top, "allocator_settings"));
    let metadata = settings::metadata(&arena, arena.get(top, "allocator_settings"));
    let annotations = arena.get(top, "external_annotations");
    let facts = arena.as_str(arena.get(top, "stalloc")).map(std::borrow::Cow::into_owned);

    let mut recording = Recording { format: Format::PytorchSnapshot, traces: Vec::new(), warnings: Vec::new() };
    let devices: std::collections::BTreeSet<u32> = by_device.keys().chain(entries.keys()).copied().collect();
    if devices.len() > MOST_DEVICES {
        let problem = format!("{} devices hold segments or entries", devices.len());
        return Err(Fault::damaged(FilePosition::Path("device_traces".to_owned()), problem));
    }
    for device in devices {
        let segments = by_device.remove(&device).unwrap_or_default();
        let device = DeviceSnapshot {
            arena: &arena,
            number: device,
            segments: (!arena_lacks(top, &arena)).then_some(segments),
            entries: entries.remove(&device).unwrap_or_default(),
            annotations,
            settings: settings.as_ref(),
        };
        let mut trace = device.read(&mut budget, &mut recording.warnings)?;
        trace.settings = settings.clone();
        trace.metadata = metadata.clone();
        trace.facts.clone_from(&facts);
        recording.traces.push(trace);
    }
    if recording.traces.is_empty() {
        recording.warnings.push("The snapshot is empty: no segments and no trace entries.".to_owned());
    }
    Ok(recording)
}

/// Whether the snapshot says nothing of segments.
fn arena_lacks(top: Value, arena: &Pickled) -> bool {
    !top.is_list() && arena.get(top, "segments").is_absent()
}

fn entries_by_device(arena: &Pickled, traces: Value, budget: &mut Budget) -> Result<BTreeMap<u32, Vec<Value>>> {
    let mut by_device = BTreeMap::new();
    if traces.is_absent() {
        return Ok(by_device);
    }
    let position = || FilePosition::Path("device_traces".to_owned());
    let Some(lists) = arena.items(traces) else {
        return Err(Fault::damaged(position(), format!("is {}, not a list", arena.describe(traces))));
    };
    for (device, list) in lists.enumerate() {
        let Some(items) = arena.items(list) else {
            let position = FilePosition::Path(format!("device_traces[{device}]"));
            return Err(Fault::damaged(position, format!("is {}, not a list", arena.describe(list))));
        };
        let count = arena.len(list);
        if count == 0 {
            continue;
        }
        if count >= u32::MAX as usize / 4 {
            return Err(budget.exceeded(position()));
        }
        budget.charge(count as u64 * EVENT_BYTES)?;
        by_device.insert(device as u32, items.collect());
    }
    Ok(by_device)
}

/// One device's part of a snapshot.
struct DeviceSnapshot<'a> {
    arena: &'a Pickled,
    number: u32,
    /// `None` if the snapshot says nothing of segments.
    segments: Option<Vec<SegmentRecord>>,
    entries: Vec<Value>,
    annotations: Value,
    settings: Option<&'a crate::state::AllocatorSettings>,
}

impl DeviceSnapshot<'_> {
    fn read(self, budget: &mut Budget, warnings: &mut Vec<String>) -> Result<Trace> {
        let DeviceSnapshot { arena, number, .. } = self;
        let mut builder = TraceBuilder::new(number);
        let mut stacks = StackReader::new(arena);
        let mut entries = EntryReader::new(arena, number);

        let mut past = Past::new(self.segments.as_deref());
        for (index, &entry) in self.entries.iter().enumerate().rev() {
            past.undo(&entries.read(index, entry)?);
        }
        if past.contradictions() > 0 {
            warnings.push(format!(
                "Device {number}: {} entries of the trace do not fit the segments; what was live before the first entry may be incomplete.",
                past.contradictions()
            ));
        }
        let initial = past.finish(&mut builder, &mut stacks, self.settings, budget)?;

        let mut marks = annotations(arena, self.annotations, number).into_iter().peekable();
        let mut dropped = 0u64;
        for (index, &entry) in self.entries.iter().enumerate() {
            let entry = entries.read(index, entry)?;
            if let Some(time) = entry.time_us {
                while let Some((at, mark)) = marks.next_if(|(at, mark)| before(*at, mark, time)) {
                    push_mark(&mut builder, at, mark, arena);
                }
            }
            let (address, size, stream) = (entry.address, entry.size, entry.stream);
            let segment = |action| RawEvent::Segment { action, address, size, stream };
            let event = match entry.action {
                Action::Alloc => {
                    RawEvent::Alloc { address, size, stream, stack: stacks.read(entry.frames, &mut builder, budget)? }
                }
                Action::FreeRequested => RawEvent::FreeRequested { address, size, stream },
                Action::FreeCompleted => RawEvent::FreeCompleted { address, size, stream },
                Action::SegmentAlloc => segment(SegmentAction::Alloc),
                Action::SegmentFree => segment(SegmentAction::Free),
                Action::SegmentMap => segment(SegmentAction::Map),
                Action::SegmentUnmap => segment(SegmentAction::Unmap),
                Action::OutOfMemory => {
                    let stack = stacks.read(entry.frames, &mut builder, budget)?;
                    RawEvent::OutOfMemory { size, device_free: entry.device_free, stack }
                }
                Action::Snapshot => RawEvent::Snapshot,
                Action::Other => continue,
            };
            if !builder.push(event, entry.time_us) {
                dropped += 1;
            }
        }
        for (at, mark) in marks {
            push_mark(&mut builder, at, mark, arena);
        }
        if dropped > 0 {
            warnings.push(format!("Device {number}: {dropped} frees of unknown addresses were dropped."));
        }
        if entries.unknown() > 0 {
            warnings.push(format!("Device {number}: {} entries of unknown kinds were dropped.", entries.unknown()));
        }
        let last = match &self.segments {
            Some(segments) => Some(state::last(segments, &mut builder, &mut stacks, budget)?),
            None => None,
        };
        let mut trace = builder.finish();
        trace.initial = initial;
        trace.last = last;
        Ok(trace)
    }
}

/// A named range's edge.
#[derive(Clone, Copy)]
struct Edge {
    begins: bool,
    name: Value,
}

/// Whether an edge comes before an entry of a given time: at the same time a range begins before it and ends after.
fn before(at: u64, edge: &Edge, time: u64) -> bool {
    if edge.begins { at <= time } else { at < time }
}

fn push_mark(builder: &mut TraceBuilder, at: u64, edge: Edge, arena: &Pickled) {
    let name = builder.string(&arena.as_str(edge.name).unwrap_or_default());
    let mark = if edge.begins { Mark::AnnotationBegin(name) } else { Mark::AnnotationEnd(name) };
    builder.push(RawEvent::Mark(mark), Some(at));
}

/// The annotations of a device in the order of time. Those that contradict each other are left out: they are only hints.
fn annotations(arena: &Pickled, list: Value, device: u32) -> Vec<(u64, Edge)> {
    let mut fields = pickle::Fields::new(["name", "stage", "device", "time_us"]);
    let mut found: Vec<(u64, Edge)> = Vec::new();
    for item in arena.items(list).into_iter().flatten() {
        let [name, stage, of, time] = fields.of(arena, item);
        let begins = match arena.as_bytes(stage) {
            Some(b"START") => true,
            Some(b"END") => false,
            _ => continue,
        };
        let Some(time) = arena.as_int(time).and_then(|time| u64::try_from(time).ok()) else { continue };
        if arena.as_int(of).is_none_or(|of| of == i128::from(device)) && arena.as_bytes(name).is_some() {
            found.push((time, Edge { begins, name }));
        }
    }
    found.sort_by_key(|&(time, _)| time);
    found
}
