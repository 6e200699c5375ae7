//! When memory that other streams use comes back.

use stalloc_trace::{Event, Mark, Time, Trace};

/// When it comes back, in place of as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// As it is freed: the device is never behind.
    AtOnce,
    /// When the step ends: the host is as far ahead of the device as it can be in a loop that waits for each step.
    AtStepEnd,
}

/// A trace in which freed memory that other streams use comes back at other times; none where nothing waits, or no step is marked. The
/// events have no clock. O(events).
pub fn returning(trace: &Trace, when: Return) -> Option<Trace> {
    let waits = |event: &Event, time: usize| match *event {
        Event::FreeCompleted(id) => trace.request(id).free_requested.is_some_and(|freed| freed as usize + 1 < time),
        _ => false,
    };
    let is_step = |event: &Event| *event == Event::Mark(Mark::StepBegin);
    if !trace.events.iter().enumerate().any(|(time, event)| waits(event, time)) || !trace.events.iter().any(is_step) {
        return None;
    }
    let (mut changed, mut waiting) = (Trace { times_us: Vec::new(), ..trace.clone() }, Vec::new());
    changed.events.clear();
    for (time, event) in trace.events.iter().enumerate() {
        if waits(event, time) {
            waiting.extend((when == Return::AtStepEnd).then(|| event.clone()));
            continue;
        }
        if is_step(event) {
            changed.events.append(&mut waiting);
        }
        changed.events.push(event.clone());
        if let (Event::FreeRequested(id), Return::AtOnce) = (event, when)
            && trace.request(*id).free_completed.is_some_and(|completed| completed as usize > time + 1)
        {
            changed.events.push(Event::FreeCompleted(*id));
        }
    }
    changed.events.append(&mut waiting);
    for (time, event) in changed.events.iter().enumerate() {
        let time = Some(time as Time);
        match *event {
            Event::Alloc(id) => changed.requests[id.index()].alloc = time,
            Event::FreeRequested(id) => changed.requests[id.index()].free_requested = time,
            Event::FreeCompleted(id) => changed.requests[id.index()].free_completed = time,
            _ => {}
        }
    }
    Some(changed)
}
