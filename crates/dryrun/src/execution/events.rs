//! Events: moments of their streams.

use super::{Execution, Handle, durations::EVENT, new_handle};
use crate::errors::{INVALID_HANDLE, NOT_READY, NOT_SUPPORTED, Status};
use stalloc_order::Moment;

/// The least time between two events, nanoseconds: programs divide by it.
const LEAST: u64 = 1_000;

/// A CUDA event of the stand-in: when it is reached, nanoseconds, and in which capture.
#[derive(Debug, Clone, Default)]
pub struct EventState {
    /// When it is complete, once it was recorded, nanoseconds.
    pub(super) complete: Option<u64>,
    /// Capture in which it was recorded.
    capture: Option<u64>,
    /// Its place in the order, if that is kept.
    pub(super) moment: Option<Moment>,
}

impl Execution {
    /// A new event.
    pub fn create_event(&mut self) -> Handle {
        let handle = new_handle();
        self.events.insert(handle, EventState::default());
        handle
    }

    /// Destroys an event.
    pub fn destroy_event(&mut self, handle: Handle) -> Result<(), Status> {
        self.events.remove(&handle).map(drop).ok_or(INVALID_HANDLE)
    }

    /// Records an event on a stream.
    pub fn record_event(&mut self, event: Handle, stream: Handle) -> Result<(), Status> {
        let capture = self.stream(stream)?.capture;
        let moment = self.order_record(stream);
        self.timeline.spend(EVENT);
        let complete = Some(self.timeline.record(Self::line(stream)));
        let event = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        *event = EventState { complete, capture, moment };
        Ok(())
    }

    /// Whether an event is complete.
    pub fn query_event(&mut self, event: Handle) -> Result<(), Status> {
        let event = self.outside_captures(event)?;
        if self.is_past(&event) { Ok(()) } else { Err(NOT_READY) }
    }

    /// The host waits for an event.
    pub fn synchronize_event(&mut self, event: Handle) -> Result<(), Status> {
        let event = self.outside_captures(event)?;
        self.host_waits(event.moment.as_ref());
        self.timeline.wait(event.complete.unwrap_or(0));
        super::waited();
        Ok(())
    }

    fn outside_captures(&self, event: Handle) -> Result<EventState, Status> {
        let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
        // An event of a capture is a place in a graph, and never complete.
        if event.capture.is_some_and(|capture| self.captures.contains_key(&capture)) {
            return Err(crate::errors::CAPTURED_EVENT);
        }
        Ok(event.clone())
    }

    /// Lets a stream wait for an event; a captured event draws the stream into its capture.
    pub fn wait_event(&mut self, stream: Handle, event: Handle) -> Result<(), Status> {
        self.stream(stream)?;
        let EventState { capture, moment, complete } = self.events.get(&event).ok_or(INVALID_HANDLE)?.clone();
        self.order_wait(stream, moment.as_ref());
        self.timeline.spend(EVENT);
        self.timeline.wait_on(Self::line(stream), complete.unwrap_or(0));
        if let Some(number) = capture.filter(|number| self.captures.contains_key(number)) {
            match self.stream_mut(stream) {
                Some(stream) => stream.capture = Some(number),
                None => return Err(NOT_SUPPORTED),
            }
        }
        Ok(())
    }

    /// Milliseconds from one event to another.
    pub fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Status> {
        let complete = |event: Handle| {
            let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
            event.complete.ok_or(INVALID_HANDLE)
        };
        let nanoseconds = complete(to)?.saturating_sub(complete(from)?).max(LEAST);
        Ok(nanoseconds as f32 / 1e6)
    }
}
