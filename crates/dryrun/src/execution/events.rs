//! Events. Each is complete as soon as it is recorded; the time between two is the work started between them.

use super::{Execution, Handle, new_handle, work_done};
use crate::errors::{INVALID_HANDLE, NOT_READY, NOT_SUPPORTED, Status};
use stalloc_order::Moment;

/// Time that a piece of work stands for, in milliseconds. Made up, but not zero and the same in every run: programs divide by it.
const MILLISECONDS: f32 = 0.1;

/// An event.
#[derive(Debug, Clone, Default)]
pub struct Event {
    /// Work that had been started when it was recorded.
    recorded: Option<u64>,
    /// Capture in which it was recorded.
    capture: Option<u64>,
    /// Its place in the order, if that is kept.
    moment: Option<Moment>,
}

impl Execution {
    /// A new event.
    pub fn create_event(&mut self) -> Handle {
        let handle = new_handle();
        self.events.insert(handle, Event::default());
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
        let event = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        *event = Event { recorded: Some(work_done()), capture, moment };
        Ok(())
    }

    /// Whether an event is complete.
    pub fn query_event(&mut self, event: Handle) -> Result<(), Status> {
        let moment = self.moment_of(event)?;
        if self.is_past(moment.as_ref()) { Ok(()) } else { Err(NOT_READY) }
    }

    /// The host waits for an event.
    pub fn synchronize_event(&mut self, event: Handle) -> Result<(), Status> {
        let moment = self.moment_of(event)?;
        self.host_waits(moment.as_ref());
        super::waited();
        Ok(())
    }

    fn moment_of(&self, event: Handle) -> Result<Option<Moment>, Status> {
        let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
        // An event of a capture is a place in a graph, and never complete.
        if event.capture.is_some_and(|capture| self.captures.contains_key(&capture)) {
            return Err(crate::errors::CAPTURED_EVENT);
        }
        Ok(event.moment.clone())
    }

    /// Lets a stream wait for an event: nothing to wait for, but a captured event draws the stream into its capture.
    pub fn wait_event(&mut self, stream: Handle, event: Handle) -> Result<(), Status> {
        self.stream(stream)?;
        let Event { capture, moment, .. } = self.events.get(&event).ok_or(INVALID_HANDLE)?.clone();
        self.order_wait(stream, moment.as_ref());
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
        let recorded = |event: Handle| {
            let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
            event.recorded.ok_or(INVALID_HANDLE)
        };
        let work = recorded(to)?.saturating_sub(recorded(from)?);
        Ok((work as f32).max(0.01) * MILLISECONDS)
    }
}
