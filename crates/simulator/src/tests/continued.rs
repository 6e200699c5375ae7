//! A trace that goes on as its last step did.

use stalloc_trace::{Event, Mark, RequestId, Trace};

use super::*;
use crate::continued;

/// What one step of a loop asks for, by the step's number.
type Body = fn(u64) -> Vec<RawEvent>;

/// Names a block by a number, of which its address is made.
fn alloc(block: u64, size: u64) -> RawEvent {
    RawEvent::Alloc { address: block << 32, size, stream: 0, stack: StackId::NONE }
}

fn request_free(block: u64, size: u64) -> RawEvent {
    RawEvent::FreeRequested { address: block << 32, size, stream: 0 }
}

fn complete_free(block: u64, size: u64) -> RawEvent {
    RawEvent::FreeCompleted { address: block << 32, size, stream: 0 }
}

/// So many steps of a loop, a second each, with the weights made before and what is let go after.
fn looped(steps: u64, body: Body) -> Trace {
    let mut builder = TraceBuilder::new(0);
    builder.push(alloc(1, 4096), Some(0));
    for step in 0..steps {
        let at = Some(1_000_000 * step);
        builder.push(RawEvent::Mark(Mark::StepBegin), at);
        for event in body(step) {
            builder.push(event, at);
        }
        builder.push(RawEvent::Mark(Mark::StepEnd), Some(1_000_000 * (step + 1)));
    }
    let mut trace = builder.finish();
    trace.requests.iter_mut().for_each(|request| request.address = None);
    trace
}

/// Each step lets go of the gradient of the one before, makes states the first time, and gives back what another stream uses, of which a
/// part is done in the next step.
fn training(step: u64) -> Vec<RawEvent> {
    let block = |step: u64, which: u64| 10 + 10 * step + which;
    let mut events = vec![alloc(block(step, 0), 1_000), alloc(block(step, 1), 2_000)];
    if step == 0 {
        events.push(alloc(2, 5_000));
    } else {
        events.extend([request_free(block(step - 1, 2), 3_000), complete_free(block(step - 1, 2), 3_000)]);
        events.push(complete_free(block(step - 1, 1), 2_000));
    }
    events.extend([
        alloc(block(step, 2), 3_000),
        request_free(block(step, 0), 1_000),
        complete_free(block(step, 0), 1_000),
    ]);
    events.push(request_free(block(step, 1), 2_000));
    events
}

#[test]
fn a_loop_goes_on_as_it_would_have() {
    for times in [0, 1, 4] {
        let longer = continued(&looped(3, training), times).unwrap();
        let really = looped(3 + u64::from(times), training);
        assert_eq!((&longer.events, &longer.times_us), (&really.events, &really.times_us), "{times}");
        assert_eq!(longer.requests, really.requests, "{times}");
    }
}

#[test]
fn what_comes_after_the_last_step_is_left_out() {
    let looped = looped(3, training);
    let mut ended = looped.clone();
    let last = ended.requests.len() - 1;
    ended.events.push(Event::FreeRequested(RequestId(last as u32)));
    ended.requests[last].free_requested = Some(ended.end() - 1);
    ended.times_us.push(3_000_000);
    assert_eq!(continued(&ended, 2).unwrap().events, continued(&looped, 2).unwrap().events);
}

#[test]
fn nothing_is_said_of_a_loop_that_does_not_repeat() {
    let grows: Body = |step| vec![alloc(10 + step, 1_000 * (step + 1))];
    let rings: Body = |step| {
        let mut events = vec![alloc(10 + step, 1_000)];
        events.extend(
            step.checked_sub(2)
                .into_iter()
                .flat_map(|old| [request_free(10 + old, 1_000), complete_free(10 + old, 1_000)]),
        );
        events
    };
    let frees_another: Body = |step| match step {
        2 => vec![
            alloc(30, 1_000),
            request_free(20, 1_000),
            complete_free(20, 1_000),
            request_free(30, 1_000),
            complete_free(30, 1_000),
        ],
        _ => vec![alloc(10 * (step + 1), 1_000)],
    };
    for body in [grows, rings, frees_another] {
        assert_eq!(continued(&looped(3, body), 2), None);
    }
    assert_eq!(continued(&looped(2, training), 2), None, "the first step makes what is never made again");
}
