//! A recording as the learner hears it.

use rustc_hash::FxHashMap;
use stalloc_trace::{Event, Trace};

use crate::learner::{Learner, RequestKey};
use crate::limits::Limits;
use crate::step_detection::{NEVER, Sequence};

/// The requests of a trace in order, as numbers. A request ends when its free completed. O(events).
pub(crate) fn sequence(trace: &Trace) -> Sequence {
    let initial = trace.requests.partition_point(|request| request.alloc.is_none()) as u32;
    let mut numbers: FxHashMap<RequestKey, u32> = FxHashMap::default();
    let mut sequence = Sequence { initial, ..Sequence::default() };
    for request in &trace.requests {
        let key = RequestKey { size: request.rounded(), stream: request.stream.0 };
        let next = numbers.len() as u32;
        sequence.key.push(*numbers.entry(key).or_insert(next));
        sequence.size.push(key.size);
    }
    sequence.dies = vec![NEVER; trace.requests.len()];
    let mut asked = initial;
    for event in &trace.events {
        match event {
            Event::Alloc(_) => asked += 1,
            Event::FreeCompleted(id) => sequence.dies[id.index()] = asked,
            _ => {}
        }
    }
    sequence
}

/// A learner that heard all of a trace, in which steps begin with the requests `starts`. Requests are called by their
/// index. O(events).
pub(crate) fn learner(trace: &Trace, starts: &[u32]) -> Learner {
    let mut learner = Learner::with(Limits::RECORDING);
    let mut begins = starts.iter().copied().peekable();
    let mut alloc = |learner: &mut Learner, index: usize| {
        if begins.next_if(|&start| start as usize == index).is_some() {
            learner.step_begin();
        }
        let request = &trace.requests[index];
        learner.alloc(index as u64, request.size, request.stream.0);
    };
    for index in (0..trace.requests.len()).take_while(|&index| trace.requests[index].alloc.is_none()) {
        alloc(&mut learner, index);
    }
    let last = trace.events.iter().rposition(|event| matches!(event, Event::Alloc(_))).unwrap_or(0);
    let is_kept = kept_by_steps(trace, starts, &trace.events[..=last.min(trace.events.len().saturating_sub(1))]);
    for (time, event) in trace.events.iter().enumerate() {
        match event {
            Event::Alloc(id) => alloc(&mut learner, id.index()),
            // It has no end: the program's end frees it.
            Event::FreeCompleted(id) if time > last && is_kept(id.index()) => {}
            Event::FreeCompleted(id) => learner.free(id.0.into()),
            _ => {}
        }
    }
    learner.finish();
    learner
}

/// Whether steps keep a request, of those that live after some events: it is of an earlier step than the last, or an earlier step made the
/// same request at the same place, which lives too. O(events) at once, O(steps) for each request.
fn kept_by_steps(trace: &Trace, starts: &[u32], before: &[Event]) -> impl Fn(usize) -> bool {
    let mut lives = vec![true; trace.requests.len()];
    for event in before {
        if let Event::FreeCompleted(id) = event {
            lives[id.index()] = false;
        }
    }
    let last_start = starts.last().map_or(0, |&start| start as usize);
    let key = |index: usize| (trace.requests[index].size, trace.requests[index].stream);
    move |index| {
        let is_like = |start: &u32| {
            let earlier = *start as usize + index.saturating_sub(last_start);
            earlier < last_start && lives[earlier] && key(earlier) == key(index)
        };
        index < last_start || starts.iter().any(is_like)
    }
}

/// Most live bytes at once of the requests that count, each until its memory can be used again. O(events).
pub(crate) fn most_alive(trace: &Trace, counts: impl Fn(usize) -> bool) -> u64 {
    let size = |index: usize| if counts(index) { trace.requests[index].rounded() } else { 0 };
    let initial = (0..trace.requests.len()).take_while(|&index| trace.requests[index].alloc.is_none());
    let mut live = initial.map(size).fold(0, u64::saturating_add);
    let mut peak = live;
    for event in &trace.events {
        match event {
            Event::Alloc(id) => live = live.saturating_add(size(id.index())),
            Event::FreeCompleted(id) => live = live.saturating_sub(size(id.index())),
            _ => {}
        }
        peak = peak.max(live);
    }
    peak
}
