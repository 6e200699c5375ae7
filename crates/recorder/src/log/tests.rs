use stalloc_trace::{Mark, RawEvent, SegmentAction, StackId, StringId, Whose};

use super::{Log, StackOf, Timed};

fn alloc(address: u64, stack: u32) -> RawEvent {
    RawEvent::Alloc { address, size: address * 10, stream: 0, stack: StackId(stack) }
}

fn free(address: u64) -> RawEvent {
    RawEvent::FreeRequested { address, size: address * 10, stream: 0 }
}

fn stack_of(address: u64, stack: u32) -> StackOf {
    StackOf { address, size: address * 10, stack: StackId(stack) }
}

fn taken(log: &mut Log) -> Vec<RawEvent> {
    log.take().into_iter().flat_map(|(_, events)| events).map(|timed| timed.event).collect()
}

#[test]
fn events_wait_for_nothing_by_default() {
    let mut log = Log::default();
    log.event(0, alloc(1, 0), 5);
    log.mark(&Mark::StepBegin, 6);
    assert_eq!(taken(&mut log), [alloc(1, 0), RawEvent::Mark(Mark::StepBegin)]);
    assert_eq!(taken(&mut log), []);
}

#[test]
fn allocations_wait_for_their_stacks_and_what_follows_waits_for_them() {
    let mut log = Log::default();
    log.wait_for_stacks(true);
    log.event(0, alloc(1, 0), 0);
    log.mark(&Mark::StepEnd, 0);
    log.event(0, alloc(2, 0), 0);
    log.event(0, free(1), 0);
    assert_eq!(taken(&mut log), []);
    log.stacks(0, &[stack_of(1, 7)]).unwrap();
    assert_eq!(taken(&mut log), [alloc(1, 7), RawEvent::Mark(Mark::StepEnd)]);
    log.stacks(0, &[stack_of(2, 8)]).unwrap();
    assert_eq!(taken(&mut log), [alloc(2, 8), free(1)]);
}

#[test]
fn when_stacks_end_nothing_waits_any_more() {
    let mut log = Log::default();
    log.wait_for_stacks(true);
    log.event(0, alloc(1, 0), 0);
    log.wait_for_stacks(false);
    assert_eq!(taken(&mut log), [alloc(1, 0)]);
}

#[test]
fn a_history_of_other_allocations_is_noticed() {
    let mut log = Log::default();
    log.wait_for_stacks(true);
    log.event(0, alloc(1, 0), 0);
    assert!(log.stacks(0, &[stack_of(2, 7)]).is_err());
    assert!(log.stacks(0, &[StackOf { size: 11, ..stack_of(1, 7) }]).is_err(), "of another size");
    assert!(log.stacks(0, &[stack_of(1, 7), stack_of(2, 7)]).is_err());
    assert!(log.stacks(1, &[stack_of(1, 7)]).is_err(), "of a device that nothing happened on");
}

#[test]
fn the_history_agrees_if_it_has_the_same_events_marks_and_stacks_aside() {
    let mut log = Log::default();
    log.wait_for_stacks(true);
    let segment = RawEvent::Segment { action: SegmentAction::Alloc, address: 0, size: 100, stream: 0 };
    log.event(0, segment.clone(), 0);
    log.event(0, alloc(1, 0), 0);
    log.mark(&Mark::StepBegin, 0);
    log.event(0, free(1), 0);
    assert!(log.agrees(0, &[segment.clone(), alloc(1, 3), RawEvent::Snapshot, free(1)]));
    assert!(!log.agrees(0, &[segment.clone(), alloc(1, 3)]), "one is missing");
    assert!(!log.agrees(0, &[alloc(1, 3), segment, free(1)]), "another order");
    assert!(log.agrees(1, &[]));
}

#[test]
fn a_history_that_replaces_the_tracker_comes_before_the_marks_that_follow_it() {
    let mut log = Log::default();
    log.event(0, alloc(9, 0), 0);
    log.mark(&Mark::StepBegin, 0);
    let _written = log.take();
    log.wait_for_stacks(true);
    log.event(0, alloc(1, 0), 0);
    log.mark(&Mark::StepEnd, 0);
    log.replace(0, vec![Timed { event: alloc(2, 4), time_us: 1 }]);
    assert_eq!(taken(&mut log), [alloc(2, 4), RawEvent::Mark(Mark::StepEnd)]);
}

#[test]
fn a_device_that_is_used_late_knows_how_many_steps_went_before_and_which_phase_it_is() {
    let mut log = Log::default();
    let phase = |micro_batch| Mark::Phase { kind: StringId(0), micro_batch };
    log.event(0, alloc(1, 0), 0);
    for (mark, time_us) in [(Mark::StepBegin, 1), (phase(0), 2), (Mark::StepEnd, 3)] {
        log.mark(&mark, time_us);
    }
    log.event(1, alloc(2, 0), 4);
    for (mark, time_us) in [(Mark::StepBegin, 5), (phase(1), 6), (phase(2), 7)] {
        log.mark(&mark, time_us);
    }
    log.event(2, alloc(3, 0), 8);
    let taken = log.take();
    let early: Vec<_> = taken[1].1.iter().take(3).map(|timed| (timed.event.clone(), timed.time_us)).collect();
    assert_eq!(early, [(RawEvent::Mark(Mark::StepBegin), 1), (RawEvent::Mark(Mark::StepEnd), 3), (alloc(2, 0), 4)]);
    let late: Vec<_> = taken[2].1.iter().skip(2).map(|timed| (timed.event.clone(), timed.time_us)).collect();
    assert_eq!(late, [(RawEvent::Mark(Mark::StepBegin), 5), (RawEvent::Mark(phase(2)), 7), (alloc(3, 0), 8)]);
}

#[test]
fn stacks_that_nobody_waited_for_are_told_by_the_number_of_the_allocation() {
    let mut log = Log::default();
    log.event(0, alloc(1, 0), 0);
    log.forget_recent();
    log.event(0, alloc(2, 0), 0);
    log.event(0, free(2), 0);
    log.event(0, alloc(3, 0), 0);
    let _written = log.take();
    assert!(log.late_stacks(0, &[stack_of(2, 7), stack_of(2, 7)], 0).is_err(), "another address");
    assert!(log.late_stacks(0, &[stack_of(1, 7), stack_of(2, 7), stack_of(3, 7)], 0).is_err(), "more than there were");
    assert!(log.late_stacks(0, &[stack_of(2, 7), stack_of(3, 8)], 0).is_ok());
    let told = |n, stack| RawEvent::Stack { whose: Whose::Nth(n), stack: StackId(stack) };
    assert_eq!(taken(&mut log), [told(1, 7), told(2, 8)]);
    log.forget_recent();
    log.event(0, alloc(4, 0), 0);
    log.event(0, alloc(5, 0), 0);
    assert!(log.late_stacks(0, &[stack_of(5, 9)], 0).is_ok(), "the history forgets the oldest");
    assert_eq!(taken(&mut log)[2..], [told(4, 9)]);
}

#[test]
fn a_new_peak_is_one_that_is_a_hundredth_higher() {
    let mut log = Log::default();
    assert!(!log.has_new_peak());
    for address in 0..300 {
        log.event(0, alloc(address, 0), 0);
    }
    assert!(log.has_new_peak() && !log.has_new_peak());
    log.event(0, alloc(300, 0), 0);
    assert!(!log.has_new_peak(), "a little more");
    for address in 301..310 {
        log.event(0, alloc(address, 0), 0);
    }
    assert!(log.has_new_peak());
}

#[test]
fn a_step_differs_if_it_asks_for_something_else_or_grows() {
    let mut log = Log::default();
    let mut step = |events: &[RawEvent]| {
        for event in events {
            log.event(0, event.clone(), 0);
        }
        log.step_differs()
    };
    assert!(step(&[alloc(300, 0), free(300)]));
    assert!(!step(&[alloc(300, 0), free(300)]));
    assert!(step(&[alloc(200, 0), free(200)]), "less");
    assert!(step(&[alloc(100, 0), free(100), alloc(100, 0), free(100)]), "the same bytes in two");
    assert!(!step(&[alloc(100, 0), free(100), alloc(100, 0), free(100)]));
    assert!(step(&[alloc(400, 0)]));
    assert!(step(&[alloc(400, 0)]), "the same again, kept: it grows");
}
