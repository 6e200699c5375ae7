//! Pairs allocations with frees and interns what repeats.

use rustc_hash::FxHashMap;

use crate::model::{Event, Frame, Request, RequestId, SegmentEvent, StackId, Stacks, StreamId, StringId, Trace};
use crate::raw::RawEvent;

/// Assembles a [`Trace`] from the raw events of one device.
#[derive(Default)]
pub struct TraceBuilder {
    trace: Trace,
    live: FxHashMap<u64, RequestId>,
    pending: FxHashMap<u64, RequestId>,
    streams: FxHashMap<u64, StreamId>,
    strings: FxHashMap<String, StringId>,
    stacks: FxHashMap<Vec<Frame>, StackId>,
}

impl TraceBuilder {
    /// A builder for the events of `device`.
    pub fn new(device: u32) -> Self {
        let mut builder = TraceBuilder::default();
        builder.trace.device = device;
        builder.trace.stacks = Stacks::default();
        builder
    }

    /// The id of a string, the same for equal strings.
    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = StringId(self.trace.strings.len() as u32);
        self.trace.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }

    /// The id of a call stack (innermost frame first), the same for equal ones.
    pub fn stack(&mut self, frames: &[Frame]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.stacks.get(frames) {
            return id;
        }
        let stacks = &mut self.trace.stacks;
        let start = stacks.frames.len() as u32;
        stacks.frames.extend_from_slice(frames);
        let id = StackId(stacks.ranges.len() as u32);
        stacks.ranges.push((start, stacks.frames.len() as u32));
        self.stacks.insert(frames.to_vec(), id);
        id
    }

    fn stream(&mut self, handle: u64) -> StreamId {
        let streams = &mut self.trace.streams;
        *self.streams.entry(handle).or_insert_with(|| {
            streams.push(handle);
            StreamId(streams.len() as u32 - 1)
        })
    }

    /// Adds the next event. A free of an address that nothing known lives at is dropped.
    pub fn push(&mut self, event: RawEvent, time_us: Option<u64>) {
        let now = self.trace.events.len() as u32;
        let event = match event {
            RawEvent::Alloc { address, size, stream, stack } => {
                let id = RequestId(self.trace.requests.len() as u32);
                let stream = self.stream(stream);
                self.trace.requests.push(Request {
                    size,
                    stream,
                    address: Some(address),
                    stack,
                    alloc: Some(now),
                    free_requested: None,
                    free_completed: None,
                });
                self.live.insert(address, id);
                Event::Alloc(id)
            }
            RawEvent::FreeRequested { address, .. } => {
                let Some(id) = self.live.remove(&address) else { return };
                self.trace.requests[id.index()].free_requested = Some(now);
                self.pending.insert(address, id);
                Event::FreeRequested(id)
            }
            RawEvent::FreeCompleted { address, .. } => {
                let Some(id) = self.pending.remove(&address) else { return };
                self.trace.requests[id.index()].free_completed = Some(now);
                Event::FreeCompleted(id)
            }
            RawEvent::Segment { action, address, size, stream } => {
                let stream = self.stream(stream);
                Event::Segment(SegmentEvent { action, address, size, stream })
            }
            RawEvent::OutOfMemory { size, device_free } => Event::OutOfMemory { size, device_free },
            RawEvent::Snapshot => Event::Snapshot,
            RawEvent::Mark(mark) => Event::Mark(mark),
        };
        self.trace.events.push(event);
        if let Some(time) = time_us {
            self.trace.times_us.push(time);
        }
    }

    /// The trace.
    pub fn finish(self) -> Trace {
        self.trace
    }
}
