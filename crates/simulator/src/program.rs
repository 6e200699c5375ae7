//! What a trace asks of an allocator, compiled to a flat list, so that a replay measures the allocator.

use stalloc_trace::{AllocatorSettings, Event, Mark, RequestId, SegmentAction, SegmentEvent, Time, Trace};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Serve a request.
    Malloc(RequestId),
    /// Take a request's memory back; it can be reused at once.
    Free(RequestId),
    /// Take a request's memory back; another stream still uses it.
    FreeLater(RequestId),
    /// The other stream is done with a request's memory.
    Complete(RequestId),
    /// Give everything cached back.
    EmptyCache,
    /// A training step begins.
    StepBegin,
}

/// An operation and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub time: Time,
    pub op: Op,
}

/// The operations of a trace's events, in order.
pub(crate) fn compile(trace: &Trace) -> Vec<Step> {
    let mut steps = Vec::with_capacity(trace.events.len());
    // Whether the first of segments given back together was met: it stands for all.
    let mut met = false;
    for (time, event) in trace.events.iter().enumerate() {
        let time = time as Time;
        met &= !is_request(event);
        let op = match *event {
            Event::Alloc(id) => Op::Malloc(id),
            Event::FreeRequested(id) if completes_at_once(trace, id, time) => Op::Free(id),
            Event::FreeRequested(id) => Op::FreeLater(id),
            Event::FreeCompleted(id) if completed_at_once(trace, id, time) => continue,
            Event::FreeCompleted(id) => Op::Complete(id),
            Event::Segment(segment) if gives_back(&segment) && !std::mem::replace(&mut met, true) => {
                if !empties(trace, time) {
                    continue;
                }
                Op::EmptyCache
            }
            Event::Mark(Mark::StepBegin) => Op::StepBegin,
            _ => continue,
        };
        steps.push(Step { time, op });
    }
    steps
}

fn gives_back(segment: &SegmentEvent) -> bool {
    matches!(segment.action, SegmentAction::Free | SegmentAction::Unmap)
}

/// Whether segments that are given back from `time` on show that everything cached was.
///
/// A request that finds no memory has everything given back before it is tried again. As it found no cached block
/// before, it finds none after, so that this is the same as emptying the cache first. Only where the allocator may give
/// a part of its cache back to serve a request, it is left to do so: if the request then took memory, or failed.
fn empties(trace: &Trace, time: Time) -> bool {
    let partial = |s: &AllocatorSettings| s.max_split_size.is_some() || s.garbage_collection_threshold > 0.0;
    let next = next_request(trace, time);
    let took = |event: &Event| matches!(event, Event::Segment(s) if matches!(s.action, SegmentAction::Alloc | SegmentAction::Map));
    let serves = match trace.events.get(next as usize) {
        Some(Event::Alloc(_)) => trace.events[time as usize..next as usize].iter().any(took),
        Some(Event::OutOfMemory { .. }) => true,
        _ => false,
    };
    !(serves && trace.settings.as_ref().is_some_and(partial))
}

/// When the program next asks for something: an allocation, granted or not, or a release.
pub(crate) fn next_request(trace: &Trace, time: Time) -> Time {
    let rest = trace.events.get(time as usize..).unwrap_or_default();
    rest.iter().position(is_request).map_or(trace.end(), |place| time + place as Time)
}

fn is_request(event: &Event) -> bool {
    matches!(event, Event::Alloc(_) | Event::FreeRequested(_) | Event::OutOfMemory { .. })
}

/// Whether nothing happens between the release at `time` and its completion.
fn completes_at_once(trace: &Trace, id: RequestId, time: Time) -> bool {
    trace.request(id).free_completed.is_some_and(|completed| completed.saturating_sub(time) <= 1)
}

fn completed_at_once(trace: &Trace, id: RequestId, time: Time) -> bool {
    trace.request(id).free_requested.is_some_and(|requested| time.saturating_sub(requested) <= 1)
}

/// Requests that were live before the first event, in the order of the trace.
pub(crate) fn initial(trace: &Trace) -> impl Iterator<Item = RequestId> + '_ {
    let before = trace.requests.iter().enumerate().filter(|(_, request)| request.alloc.is_none());
    before.map(|(place, _)| RequestId(place as u32))
}
