//! What a trace asks of an allocator, compiled to a flat list, so that a replay measures the allocator.

use stalloc_trace::{Event, Mark, RequestId, Time, Trace};

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
    for (time, event) in trace.events.iter().enumerate() {
        let time = time as Time;
        let op = match *event {
            Event::Alloc(id) => Op::Malloc(id),
            Event::FreeRequested(id) if completes_at_once(trace, id, time) => Op::Free(id),
            Event::FreeRequested(id) => Op::FreeLater(id),
            Event::FreeCompleted(id) if completed_at_once(trace, id, time) => continue,
            Event::FreeCompleted(id) => Op::Complete(id),
            Event::Mark(Mark::StepBegin) => Op::StepBegin,
            _ => continue,
        };
        steps.push(Step { time, op });
    }
    steps
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
