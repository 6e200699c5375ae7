//! What a plan would have done, in PyTorch's own snapshot format, so that memory_viz and every other tool shows it.

mod pickle;

use std::collections::HashMap;

use stalloc_simulator::Placement;
use stalloc_trace::{Event, RequestId, StackId, Time, Trace};

use crate::device::{Analysis, Mapped};
use crate::snapshot::pickle::{MemoNumber, Pickle};

/// Elements of a list that are written in one portion.
const PORTION: usize = 1000;

/// A snapshot with the devices given, each as an allocator's replay would have left it: a device's number is its place
/// in the lists. O(events + segments).
pub fn snapshot(devices: &[(&Analysis<'_>, &Mapped)]) -> Vec<u8> {
    let mut pickle = Pickle::new();
    let mut frames: Vec<StackTable<'_>> = devices.iter().map(|(analysis, _)| StackTable::new(analysis.trace)).collect();
    pickle.open_dict();
    pickle.string("segments");
    pickle.open_list();
    for ((analysis, mapped), frames) in devices.iter().zip(&mut frames) {
        for segment in segments(analysis.trace, mapped) {
            segment.write(&mut pickle, analysis.trace, frames);
        }
    }
    pickle.close_list();
    pickle.string("device_traces");
    pickle.open_list();
    let most = devices.iter().map(|(analysis, _)| analysis.trace.device).max().unwrap_or(0).min(255);
    for device in 0..=most {
        pickle.open_list();
        for ((analysis, mapped), frames) in devices.iter().zip(&mut frames) {
            if analysis.trace.device == device {
                write_events(&mut pickle, analysis.trace, mapped, frames);
            }
        }
        pickle.close_list();
    }
    pickle.close_list();
    pickle.string("allocator_settings");
    pickle.open_dict();
    pickle.close_dict();
    pickle.string("external_annotations");
    pickle.open_list();
    pickle.close_list();
    pickle.close_dict();
    pickle.finish()
}

/// Call stacks, each written once.
struct StackTable<'a> {
    trace: &'a Trace,
    known: HashMap<StackId, MemoNumber>,
}

impl<'a> StackTable<'a> {
    fn new(trace: &'a Trace) -> Self {
        StackTable { trace, known: HashMap::new() }
    }

    fn write(&mut self, pickle: &mut Pickle, stack: StackId) {
        pickle.string("frames");
        if let Some(&memo) = self.known.get(&stack) {
            return pickle.get(memo);
        }
        pickle.open_list();
        for frame in self.trace.stacks.get(stack) {
            pickle.open_dict();
            pickle.string("filename");
            pickle.string(self.trace.string(frame.file));
            pickle.string("line");
            pickle.int(u64::from(frame.line));
            pickle.string("name");
            pickle.string(self.trace.string(frame.function));
            pickle.close_dict();
        }
        pickle.close_list();
        self.known.insert(stack, pickle.remember());
    }
}

/// A segment that is held at the end.
struct HeldSegment {
    device: u32,
    address: u64,
    size: u64,
    stream: u64,
    expandable: bool,
    /// (address, request), by address.
    blocks: Vec<(u64, RequestId)>,
}

impl HeldSegment {
    fn write(&self, pickle: &mut Pickle, trace: &Trace, frames: &mut StackTable<'_>) {
        let size = |id: RequestId| trace.request(id).rounded();
        let live: u64 = self.blocks.iter().map(|&(_, id)| size(id)).sum();
        let requested: u64 = self.blocks.iter().map(|&(_, id)| trace.request(id).size).sum();
        pickle.open_dict();
        for (name, value) in [
            ("device", u64::from(self.device)),
            ("address", self.address),
            ("total_size", self.size),
            ("allocated_size", live),
            ("active_size", live),
            ("requested_size", requested),
            ("stream", self.stream),
        ] {
            pickle.string(name);
            pickle.int(value);
        }
        pickle.string("segment_type");
        pickle.string(if self.size <= 2 << 20 { "small" } else { "large" });
        pickle.string("segment_pool_id");
        pickle.pair(0, 0);
        pickle.string("is_expandable");
        pickle.bool(self.expandable);
        frames.write(pickle, StackId::NONE);
        pickle.string("blocks");
        pickle.open_list();
        let mut at = self.address;
        for (index, &(address, id)) in self.blocks.iter().enumerate() {
            if index % PORTION == PORTION - 1 {
                pickle.next_portion();
            }
            if address > at {
                block(pickle, at, address - at, None, StackId::NONE, frames);
            }
            let request = trace.request(id);
            block(pickle, address, size(id), Some(request.size), request.stack, frames);
            at = address.saturating_add(size(id));
        }
        let end = self.address.saturating_add(self.size);
        if at < end {
            block(pickle, at, end - at, None, StackId::NONE, frames);
        }
        pickle.close_list();
        pickle.close_dict();
    }
}

fn block(
    pickle: &mut Pickle,
    address: u64,
    size: u64,
    requested: Option<u64>,
    stack: StackId,
    frames: &mut StackTable<'_>,
) {
    pickle.open_dict();
    for (name, value) in [("address", address), ("size", size), ("requested_size", requested.unwrap_or(0))] {
        pickle.string(name);
        pickle.int(value);
    }
    pickle.string("state");
    pickle.string(if requested.is_some() { "active_allocated" } else { "inactive" });
    frames.write(pickle, stack);
    pickle.close_dict();
}

/// What is held at the end; neighbours that a block spans are one expandable segment.
fn segments(trace: &Trace, mapped: &Mapped) -> Vec<HeldSegment> {
    let Mapped { replay, layout } = mapped;
    let last = trace.end().saturating_sub(1);
    let mut held: Vec<_> = replay
        .segments
        .iter()
        .zip(&layout.held)
        .filter(|(span, _)| span.end > last)
        .map(|(span, held)| (span.address, span.size, held.island))
        .collect();
    held.sort_unstable();
    let mut segments: Vec<(HeldSegment, u32)> = Vec::new();
    for (address, size, island) in held {
        match segments.last_mut() {
            Some((segment, of)) if *of == island && segment.address + segment.size == address => {
                segment.size += size;
                segment.expandable = true;
            }
            _ => segments.push((
                HeldSegment { device: trace.device, address, size, stream: 0, expandable: false, blocks: Vec::new() },
                island,
            )),
        }
    }
    let mut segments: Vec<HeldSegment> = segments.into_iter().map(|(segment, _)| segment).collect();
    for placement in &replay.placements {
        let request = trace.request(placement.request);
        if trace.lifetime(request).end <= last {
            continue;
        }
        let at = segments.partition_point(|segment| segment.address <= placement.address);
        if let Some(segment) = at.checked_sub(1).and_then(|i| segments.get_mut(i)) {
            segment.stream = trace.streams.get(request.stream.0 as usize).copied().unwrap_or(0);
            segment.blocks.push((placement.address, placement.request));
        }
    }
    for segment in &mut segments {
        segment.blocks.sort_unstable();
    }
    segments
}

fn write_events(pickle: &mut Pickle, trace: &Trace, mapped: &Mapped, frames: &mut StackTable<'_>) {
    let Mapped { replay, layout } = mapped;
    let mut places: Vec<Option<u64>> = vec![None; trace.requests.len()];
    for Placement { request, address, .. } in &replay.placements {
        places[request.index()] = Some(*address);
    }
    // Segments taken and given back, at their times; what is given back makes room for what is taken.
    let mut changes: Vec<(Time, bool, usize)> = Vec::new();
    let mut parts: HashMap<u32, usize> = HashMap::new();
    for (index, span) in replay.segments.iter().enumerate() {
        *parts.entry(layout.held[index].island).or_default() += 1;
        changes.push((span.begin, true, index));
        if span.end < trace.end() {
            changes.push((span.end, false, index));
        }
    }
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut written = 0;
    let mut entry = |action: &str, address: u64, size: u64, stream: u64, time: Time, stack: StackId| {
        written += 1;
        if written % PORTION == 0 {
            pickle.next_portion();
        }
        pickle.open_dict();
        pickle.string("action");
        pickle.string(action);
        for (name, value) in [("addr", address), ("size", size), ("stream", stream)] {
            pickle.string(name);
            pickle.int(value);
        }
        if let Some(&us) = trace.times_us.get(time as usize) {
            pickle.string("time_us");
            pickle.int(us);
        }
        frames.write(pickle, stack);
        pickle.close_dict();
    };
    for (time, event) in trace.events.iter().enumerate() {
        let time = time as Time;
        while let Some((_, taken, index)) = changes.next_if(|&(when, _, _)| when <= time) {
            let span = &replay.segments[index];
            let pages = parts.get(&layout.held[index].island).is_some_and(|&n| n > 1);
            let action = match (taken, pages) {
                (true, false) => "segment_alloc",
                (true, true) => "segment_map",
                (false, false) => "segment_free",
                (false, true) => "segment_unmap",
            };
            entry(action, span.address, span.size, 0, time, StackId::NONE);
        }
        let (id, action) = match event {
            Event::Alloc(id) => (*id, "alloc"),
            Event::FreeRequested(id) => (*id, "free_requested"),
            Event::FreeCompleted(id) => (*id, "free_completed"),
            _ => continue,
        };
        let request = trace.request(id);
        let stream = trace.streams.get(request.stream.0 as usize).copied().unwrap_or(0);
        if let Some(address) = places[id.index()] {
            entry(action, address, request.size, stream, time, request.stack);
        }
    }
}
