//! A trace that goes on as its last step did.

use stalloc_trace::{Event, Mark, Request, RequestId, SegmentAction, Time, Trace};

/// A trace up to the end of its last step, and then that step `times` more; none where fewer than three steps end, where the last two do
/// not ask for and give back the same, or where the last gives back what is older than the one before it. O(events).
pub fn continued(trace: &Trace, times: u32) -> Option<Trace> {
    let ends = step_ends(trace);
    let [.., before, begin, end] = *ends.as_slice() else { return None };
    let made_by = |end: usize| trace.requests.partition_point(|made| made.alloc.is_none_or(|at| (at as usize) < end));
    let [oldest, first, last] = [before, begin, end].map(made_by);
    let is_past = |time: Option<Time>, end: usize| time.is_some_and(|time| (time as usize) < end);
    let asked = |request: &Request, end: usize| {
        (request.size, request.stream, is_past(request.free_requested, end), is_past(request.free_completed, end))
    };
    let [one, other] = [&trace.requests[oldest..first], &trace.requests[first..last]];
    if !one.iter().map(|request| asked(request, begin)).eq(other.iter().map(|request| asked(request, end))) {
        return None;
    }

    let mut longer = Trace { last: None, ..trace.clone() };
    longer.events.truncate(end);
    longer.times_us.truncate(end);
    longer.requests.truncate(last);
    for request in &mut longer.requests {
        request.free_requested = request.free_requested.filter(|time| is_past(Some(*time), end));
        request.free_completed = request.free_completed.filter(|time| is_past(Some(*time), end));
    }
    let clock = |at: usize| trace.times_us.get(at).copied().unwrap_or(0);
    let step_us = clock(end - 1).saturating_sub(clock(begin - 1));
    for turn in 1..=times {
        // Requests are numbered as they are made, and each step makes as many.
        let later = |id: RequestId| {
            (id.index() >= oldest).then(|| RequestId(id.0.saturating_add(turn.saturating_mul((last - first) as u32))))
        };
        for at in begin..end {
            let now = Some(longer.events.len() as Time);
            let event = match &trace.events[at] {
                Event::Alloc(id) => {
                    let again = Request {
                        address: None,
                        alloc: now,
                        free_requested: None,
                        free_completed: None,
                        ..*trace.request(*id)
                    };
                    longer.requests.push(again);
                    Event::Alloc(later(*id)?)
                }
                Event::FreeRequested(id) => {
                    longer.requests.get_mut(later(*id)?.index())?.free_requested = now;
                    Event::FreeRequested(later(*id)?)
                }
                Event::FreeCompleted(id) => {
                    longer.requests.get_mut(later(*id)?.index())?.free_completed = now;
                    Event::FreeCompleted(later(*id)?)
                }
                // What was taken of the device is not said again: that it was given back says that the cache was emptied.
                Event::Segment(segment) if matches!(segment.action, SegmentAction::Alloc | SegmentAction::Map) => {
                    continue;
                }
                Event::OutOfMemory { .. } | Event::Snapshot => continue,
                other => other.clone(),
            };
            longer.events.push(event);
            if !trace.times_us.is_empty() {
                longer.times_us.push(clock(at).saturating_add(u64::from(turn).saturating_mul(step_us)));
            }
        }
    }
    Some(longer)
}

/// The time after each step's end: the last one that is said of it.
fn step_ends(trace: &Trace) -> Vec<usize> {
    let mut ends = Vec::new();
    for (time, mark) in trace.marks() {
        match (mark, ends.last_mut()) {
            (Mark::StepBegin, _) => ends.push(0),
            (Mark::StepEnd, Some(end)) => *end = time as usize + 1,
            _ => {}
        }
    }
    ends.retain(|&end| end > 0);
    ends
}
