//! Writes a trace that is in memory already.

use std::io::{self, Write};

use rustc_hash::FxHashSet;

use super::Writer;
use crate::ids::StreamId;
use crate::model::{Event, Recording, Request, Trace};
use crate::raw::RawEvent;
use crate::state::BlockState;

/// Writes a whole recording in our own format: everything that it holds, warnings aside.
///
/// # Errors
/// If `out` cannot be written, or a request has no address: frees are told by address.
pub fn write_recording<W: Write>(recording: &Recording, out: W) -> io::Result<W> {
    let mut traces = recording.traces.iter();
    let Some(first) = traces.next() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no trace to write"));
    };
    let mut out = write_trace(first, Writer::new(out, first.device)?)?;
    for trace in traces {
        out = write_trace(trace, Writer::next_device(out, trace.device)?)?;
    }
    Ok(out)
}

fn write_trace<W: Write>(trace: &Trace, mut writer: Writer<W>) -> io::Result<W> {
    // In the order of their ids, so that ids stay what they are.
    for text in &trace.strings {
        writer.string(text);
    }
    for &(start, end) in &trace.stacks.ranges {
        writer.stack(&trace.stacks.frames[start as usize..end as usize]);
    }
    for &handle in &trace.streams {
        writer.stream(handle);
    }
    let address = |request: &Request| {
        request.address.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a request without an address"))
    };
    let stream = |id: StreamId| trace.streams.get(id.0 as usize).copied().unwrap_or(0);
    let pending = initially_pending(trace);
    for request in trace.requests.iter().filter(|r| r.alloc.is_none()) {
        let address = address(request)?;
        let pending = pending.contains(&address);
        writer.push_initial(address, request.size, stream(request.stream), request.stack, pending);
    }
    if let Some(settings) = &trace.settings {
        writer.settings(settings)?;
    }
    for (key, value) in &trace.metadata {
        writer.metadata(key, value)?;
    }
    if let Some(state) = &trace.initial {
        writer.initial_state(state)?;
    }
    for (index, event) in trace.events.iter().enumerate() {
        let raw = match *event {
            Event::Alloc(id) => {
                let request = trace.request(id);
                RawEvent::Alloc {
                    address: address(request)?,
                    size: request.size,
                    stream: stream(request.stream),
                    stack: request.stack,
                }
            }
            Event::FreeRequested(id) => {
                RawEvent::FreeRequested { address: address(trace.request(id))?, size: 0, stream: 0 }
            }
            Event::FreeCompleted(id) => {
                RawEvent::FreeCompleted { address: address(trace.request(id))?, size: 0, stream: 0 }
            }
            Event::Segment(s) => {
                RawEvent::Segment { action: s.action, address: s.address, size: s.size, stream: stream(s.stream) }
            }
            Event::OutOfMemory { size, device_free, stack } => RawEvent::OutOfMemory { size, device_free, stack },
            Event::Snapshot => RawEvent::Snapshot,
            Event::Mark(ref mark) => RawEvent::Mark(mark.clone()),
        };
        writer.push(&raw, trace.times_us.get(index).copied())?;
    }
    if let Some(state) = &trace.last {
        writer.last_state(state)?;
    }
    writer.finish()
}

/// Addresses of blocks that had been given back before the first event, but were still in use by other streams.
fn initially_pending(trace: &Trace) -> FxHashSet<u64> {
    let blocks = trace.initial.iter().flat_map(|state| &state.segments).flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state == BlockState::PendingFree).map(|block| block.address).collect()
}
