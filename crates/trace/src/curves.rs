//! Live and reserved bytes over time.

use crate::ids::Time;
use crate::model::{Event, Request, SegmentAction, Trace};
use crate::state::MemoryState;

impl Trace {
    /// Live bytes, each request rounded up as PyTorch counts, wherever they change: (event, bytes after it). What
    /// was live before the first event is the first point, at time 0. A request is live until the program gives it
    /// back. O(events).
    pub fn live_curve(&self) -> Vec<(Time, u64)> {
        let initial = self.requests.iter().filter(|r| r.alloc.is_none()).map(Request::rounded);
        let mut live = initial.fold(0, u64::saturating_add);
        let mut curve = vec![(0, live)];
        for (time, event) in self.events.iter().enumerate() {
            live = match event {
                Event::Alloc(id) => live.saturating_add(self.request(*id).rounded()),
                Event::FreeRequested(id) => live.saturating_sub(self.request(*id).rounded()),
                _ => continue,
            };
            curve.push((time as Time, live));
        }
        curve
    }

    /// Bytes that the recorded allocator held, wherever they change: (event, bytes after it), from time 0. `None` if
    /// the format does not say: neither a state before the first event nor segment events from an empty start. O(events).
    pub fn reserved_curve(&self) -> Option<Vec<(Time, u64)>> {
        let mut reserved = match &self.initial {
            Some(state) => state.reserved(),
            None if self.requests.iter().all(|r| r.alloc.is_some()) => 0,
            None => return None,
        };
        let mut curve = vec![(0, reserved)];
        for (time, event) in self.events.iter().enumerate() {
            let Event::Segment(segment) = event else { continue };
            reserved = match segment.action {
                SegmentAction::Alloc | SegmentAction::Map => reserved.saturating_add(segment.size),
                // More than there was: the start was not empty.
                SegmentAction::Free | SegmentAction::Unmap if self.initial.is_none() => {
                    reserved.checked_sub(segment.size)?
                }
                SegmentAction::Free | SegmentAction::Unmap => reserved.saturating_sub(segment.size),
            };
            curve.push((time as Time, reserved));
        }
        (self.initial.is_some() || curve.len() > 1).then_some(curve)
    }

    /// The most that the recorded allocator held at once, bytes; `None` if the format does not say. O(events).
    pub fn peak_reserved(&self) -> Option<u64> {
        let peak = self.reserved_curve()?.into_iter().map(|(_, reserved)| reserved).max();
        // A snapshot's segments may be all that is known.
        peak.into_iter().chain(self.last.as_ref().map(MemoryState::reserved)).max()
    }
}
