//! Pairs allocations with frees and interns what repeats.

use rustc_hash::FxHashMap;

use crate::ids::{RequestId, StackId, StreamId, StringId, Time};
use crate::model::{Event, Frame, Request, SegmentEvent, Stacks, Trace};
use crate::raw::{RawEvent, Whose};

/// Assembles a [`Trace`] from the raw events of one device.
#[derive(Default)]
pub struct TraceBuilder {
    trace: Trace,
    live: FxHashMap<u64, RequestId>,
    pending: FxHashMap<u64, RequestId>,
    streams: FxHashMap<u64, StreamId>,
    strings: FxHashMap<String, StringId>,
    stacks: FxHashMap<Vec<Frame>, StackId>,
    timed: bool,
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

    /// The id of a stream, by the recorder's handle.
    pub fn stream(&mut self, handle: u64) -> StreamId {
        let streams = &mut self.trace.streams;
        *self.streams.entry(handle).or_insert_with(|| {
            streams.push(handle);
            StreamId(streams.len() as u32 - 1)
        })
    }

    /// Adds a request that was live before the first event; `pending` if the program had given it back already.
    /// All of them come before the first [`push`](Self::push).
    pub fn push_initial(&mut self, address: u64, size: u64, stream: u64, stack: StackId, pending: bool) -> RequestId {
        let id = self.request(address, size, stream, stack, None);
        let lived_in = if pending { &mut self.pending } else { &mut self.live };
        lived_in.insert(address, id);
        id
    }

    /// The request that lives (or awaits the end of its use by other streams) at an address.
    pub fn request_at(&self, address: u64) -> Option<RequestId> {
        self.live.get(&address).or_else(|| self.pending.get(&address)).copied()
    }

    /// How many requests there are so far.
    pub fn requests(&self) -> usize {
        self.trace.requests.len()
    }

    fn request(&mut self, address: u64, size: u64, stream: u64, stack: StackId, alloc: Option<Time>) -> RequestId {
        let id = RequestId(self.trace.requests.len() as u32);
        let stream = self.stream(stream);
        self.trace.requests.push(Request {
            size,
            stream,
            address: Some(address),
            stack,
            alloc,
            free_requested: None,
            free_completed: None,
        });
        id
    }

    /// Adds the next event. What recorders lose at the edges of a ring buffer is made up for: a request whose
    /// address is handed out again has been freed, one whose free completed was given back. A free of an address
    /// that nothing known lives at is dropped; the result says whether the event was used.
    pub fn push(&mut self, event: RawEvent, time_us: Option<u64>) -> bool {
        match event {
            RawEvent::Alloc { address, size, stream, stack } => {
                self.free_requested(address, time_us);
                self.free_completed(address, time_us);
                let id = self.request(address, size, stream, stack, Some(self.now()));
                self.live.insert(address, id);
                self.event(Event::Alloc(id), time_us);
            }
            RawEvent::FreeRequested { address, .. } => return self.free_requested(address, time_us),
            RawEvent::FreeCompleted { address, .. } => {
                self.free_requested(address, time_us);
                return self.free_completed(address, time_us);
            }
            RawEvent::Segment { action, address, size, stream } => {
                let stream = self.stream(stream);
                self.event(Event::Segment(SegmentEvent { action, address, size, stream }), time_us);
            }
            RawEvent::OutOfMemory { size, device_free, stack } => {
                self.event(Event::OutOfMemory { size, device_free, stack }, time_us);
            }
            RawEvent::Snapshot => self.event(Event::Snapshot, time_us),
            RawEvent::Mark(mark) => self.event(Event::Mark(mark), time_us),
            RawEvent::Stack { whose, stack } => return self.late_stack(whose, stack),
        }
        true
    }

    /// A stack that is known already stays: it was taken when the request was made.
    fn late_stack(&mut self, whose: Whose, stack: StackId) -> bool {
        let initial = self.trace.requests.partition_point(|request| request.alloc.is_none());
        let request = match whose {
            Whose::Nth(n) => usize::try_from(n).ok().and_then(|n| n.checked_add(initial)),
            Whose::LivesAt(address) => self.live.get(&address).map(|id| id.index()),
            Whose::Failed => {
                let failed = self.trace.events.iter_mut().rev().find_map(|event| match event {
                    Event::OutOfMemory { stack, .. } => Some(stack),
                    _ => None,
                });
                return failed.map(|known| *known = stack).is_some();
            }
        };
        let request = request.and_then(|index| self.trace.requests.get_mut(index));
        request.map(|one| one.stack = if one.stack == StackId::NONE { stack } else { one.stack }).is_some()
    }

    fn now(&self) -> Time {
        self.trace.events.len() as Time
    }

    fn free_requested(&mut self, address: u64, time_us: Option<u64>) -> bool {
        let Some(id) = self.live.remove(&address) else { return false };
        self.trace.requests[id.index()].free_requested = Some(self.now());
        // Only a damaged recording has another one pending here.
        self.free_completed(address, time_us);
        self.pending.insert(address, id);
        self.event(Event::FreeRequested(id), time_us);
        true
    }

    fn free_completed(&mut self, address: u64, time_us: Option<u64>) -> bool {
        let Some(id) = self.pending.remove(&address) else { return false };
        if self.trace.requests[id.index()].free_requested.is_none() {
            self.trace.requests[id.index()].free_requested = Some(self.now());
            self.event(Event::FreeRequested(id), time_us);
        }
        self.trace.requests[id.index()].free_completed = Some(self.now());
        self.event(Event::FreeCompleted(id), time_us);
        true
    }

    fn event(&mut self, event: Event, time_us: Option<u64>) {
        self.trace.events.push(event);
        self.timed |= time_us.is_some();
        let before = self.trace.times_us.last().copied().unwrap_or(0);
        self.trace.times_us.push(time_us.unwrap_or(before));
    }

    /// The trace.
    pub fn finish(mut self) -> Trace {
        if !self.timed {
            self.trace.times_us = Vec::new();
        }
        self.trace
    }
}
