//! Streams, events, capture.
use super::{Execution, Mode, capture::exchange_thread_mode};
use crate::errors::{
    CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURED_EVENT, ILLEGAL_STATE, INVALID_HANDLE,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests that start work, or must not see any, take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two streams.
fn streams() -> (Execution, u64, u64) {
    let mut execution = Execution::default();
    let one = execution.create_stream(0, 0, 0);
    let two = execution.create_stream(0, -1, 0);
    (execution, one, two)
}

#[test]
fn handles_of_nothing_are_refused() {
    let (mut execution, one, _) = streams();
    assert!(execution.destroy_stream(one).is_ok());
    assert_eq!(execution.destroy_stream(one), Err(INVALID_HANDLE));
    assert_eq!(execution.synchronize_stream(one), Err(INVALID_HANDLE));
    assert_eq!(execution.record_event(7, 0), Err(INVALID_HANDLE));
    assert_eq!(execution.launch_graph(7, one), Err(INVALID_HANDLE));
    assert_eq!(execution.begin_capture(one, Mode::Global, None), Err(INVALID_HANDLE));
}

#[test]
fn a_capture_counts_its_own_work() {
    let _alone = alone();
    let (mut execution, one, two) = streams();
    execution.begin_capture(one, Mode::Global, None).unwrap();
    execution.count_nodes(Some(one));
    execution.count_nodes(Some(two));
    execution.count_nodes(None);
    assert!(execution.is_capturing(one) && !execution.is_capturing(two));
    let graph = execution.end_capture(one).unwrap();
    assert_eq!(execution.graph(graph).unwrap().nodes, 2);
    assert!(!execution.is_capturing(one));
    let executable = execution.instantiate(graph).unwrap();
    execution.launch_graph(executable, one).unwrap();
}

#[test]
fn a_stream_joins_a_capture_by_waiting_for_its_event() {
    let (mut execution, one, two) = streams();
    let event = execution.create_event();
    execution.begin_capture(one, Mode::Relaxed, None).unwrap();
    execution.record_event(event, one).unwrap();
    assert_eq!(execution.query_event(event), Err(CAPTURED_EVENT));
    execution.wait_event(two, event).unwrap();
    assert!(execution.is_capturing(two));
    assert_eq!(execution.end_capture(two), Err(CAPTURE_UNMATCHED));
    execution.end_capture(one).unwrap();
    assert!(!execution.is_capturing(two));
    assert!(execution.query_event(event).is_ok());
}

#[test]
fn waiting_for_a_capturing_stream_breaks_the_capture() {
    let (mut execution, one, _) = streams();
    execution.begin_capture(one, Mode::Relaxed, None).unwrap();
    assert_eq!(execution.synchronize_stream(one), Err(CAPTURE_UNSUPPORTED));
    assert!(!execution.capture_info(one).unwrap().valid);
    assert_eq!(execution.end_capture(one), Err(CAPTURE_INVALIDATED));
    assert_eq!(execution.end_capture(one), Err(ILLEGAL_STATE));
}

#[test]
fn allocation_is_forbidden_while_a_capture_is_global_and_allowed_to_who_relaxed() {
    let (mut execution, one, _) = streams();
    execution.begin_capture(one, Mode::Global, None).unwrap();
    assert_eq!(exchange_thread_mode(Mode::Relaxed), Mode::Global);
    assert!(execution.synchronize().is_ok());
    assert_eq!(exchange_thread_mode(Mode::Global), Mode::Relaxed);
    assert_eq!(execution.synchronize(), Err(CAPTURE_UNSUPPORTED));
    assert_eq!(execution.end_capture(one), Err(CAPTURE_INVALIDATED));
}

#[test]
fn the_default_stream_cannot_be_captured() {
    let (mut execution, ..) = streams();
    assert_eq!(execution.begin_capture(0, Mode::Global, None), Err(CAPTURE_UNSUPPORTED));
}

#[test]
fn time_between_events_is_never_zero() {
    let (mut execution, one, _) = streams();
    let [from, to] = [0, 1].map(|_| execution.create_event());
    assert_eq!(execution.elapsed(from, to), Err(INVALID_HANDLE), "not recorded");
    execution.record_event(from, one).unwrap();
    execution.record_event(to, one).unwrap();
    assert!(execution.elapsed(from, to).unwrap() > 0.0);
}
