//! Each violation is found, and what is ordered is none.
#![allow(clippy::unwrap_used)]

use super::*;

const START: u64 = 0x1000;

/// A block that stream 1 used and gave back.
fn given_back_by_one(late: Option<u64>) -> WorkOrder {
    let mut order = WorkOrder::new(late);
    order.handed_out(START, 100, 1).unwrap();
    assert_eq!(order.given_back(START), 100);
    order
}

/// A seed with which an event is late, asked once.
fn late() -> Option<u64> {
    (0..100).map(Some).find(|&seed| {
        let mut order = WorkOrder::new(seed);
        let moment = order.record(1);
        !order.completed(&moment)
    })?
}

#[test]
fn its_own_stream_may_have_a_block_again_at_once() {
    let mut order = given_back_by_one(None);
    order.handed_out(START + 50, 100, 1).unwrap();
}

#[test]
fn another_stream_may_have_it_only_after_a_wait_for_an_event_behind_its_last_use() {
    let race = Violation::Race { start: START + 99, bytes: 8, stream: 2, user: 1 };
    assert_eq!(given_back_by_one(None).handed_out(START + 99, 8, 2), Err(race.clone()));
    let mut order = given_back_by_one(None);
    let moment = order.record(1);
    assert_eq!(order.handed_out(START + 99, 8, 2), Err(race.clone()), "an event that nobody waits for orders nothing");
    let mut order = given_back_by_one(None);
    let moment2 = order.record(1);
    order.queue_wait(2, &moment2);
    order.handed_out(START + 99, 8, 2).unwrap();
    let mut order = WorkOrder::new(None);
    order.handed_out(START, 100, 1).unwrap();
    let early = order.record(1);
    order.given_back(START);
    order.queue_wait(2, &early);
    assert_eq!(order.handed_out(START + 99, 8, 2), Err(race), "the event comes before the last use");
    drop(moment);
}

#[test]
fn order_passes_through_a_third_stream_and_through_the_host() {
    let mut order = given_back_by_one(None);
    let first = order.record(1);
    order.queue_wait(3, &first);
    let second = order.record(3);
    order.queue_wait(2, &second);
    order.handed_out(START, 100, 2).unwrap();
    let mut order = given_back_by_one(None);
    order.wait_for_stream(1);
    order.handed_out(START, 100, 2).unwrap();
    let mut order = given_back_by_one(late());
    let moment = order.record(1);
    assert!(!order.completed(&moment), "the seed makes it late");
    assert!(order.handed_out(START, 100, 2).is_err());
    let mut order = given_back_by_one(late());
    let moment = order.record(1);
    while !order.completed(&moment) {}
    assert!(order.completed(&moment), "what was complete stays so");
    order.handed_out(START, 100, 2).unwrap();
}

#[test]
fn every_stream_that_was_recorded_has_to_be_waited_for() {
    let recorded = |waited: &[Stream]| {
        let mut order = WorkOrder::new(None);
        order.handed_out(START, 100, 1).unwrap();
        order.used_on(START + 20, 2);
        order.given_back(START);
        waited.iter().for_each(|&stream| order.wait_for_stream(stream));
        order.handed_out(START, 100, 1)
    };
    assert!(matches!(recorded(&[]), Err(Violation::Race { user: 2, .. })));
    assert!(matches!(recorded(&[1]), Err(Violation::Race { user: 2, .. })));
    recorded(&[2]).unwrap();
}

#[test]
fn a_copy_uses_a_block_once() {
    let copied = |waits: bool| {
        let mut order = WorkOrder::new(None);
        order.handed_out(START, 100, HOST).unwrap();
        order.used_once(START + 20, 2);
        if waits {
            order.wait_for_stream(2);
        }
        order.given_back(START);
        order.handed_out(START, 100, HOST)
    };
    assert!(matches!(copied(false), Err(Violation::Race { user: 2, .. })));
    copied(true).unwrap();
}

#[test]
fn memory_that_is_taken_away_has_to_be_done_with_by_the_host_s_knowledge() {
    let mut order = given_back_by_one(None);
    let moment = order.record(1);
    order.queue_wait(2, &moment);
    assert!(matches!(order.unmapped(START & !0xFFF, 0x1000), Err(Violation::Unmapped { user: 1, .. })));
    let mut order = given_back_by_one(None);
    order.wait_for_all();
    order.unmapped(START, 10).unwrap();
    order.handed_out(START + 5, 5, 7).unwrap();
    assert!(order.unmapped(START, 10).is_err(), "a block lies there");
    order.unmapped(START + 10, 90).unwrap();
}

#[test]
fn blocks_that_overlap_and_uses_after_the_end_are_told() {
    let mut order = WorkOrder::new(None);
    order.handed_out(START, 100, 1).unwrap();
    order.accessed(START, 100, 5).unwrap();
    order.accessed(START + 100, 100, 5).unwrap();
    assert!(matches!(order.handed_out(START + 99, 1, 1), Err(Violation::Overlap { other: START, .. })));
    let mut order = given_back_by_one(None);
    assert!(matches!(order.accessed(START + 99, 1, 1), Err(Violation::AfterFree { .. })));
    assert_eq!(order.given_back(START), 0, "what is not live cannot be given back");
}

#[test]
fn the_default_stream_takes_turns_with_the_streams_that_ask_for_it() {
    let mut order = given_back_by_one(None);
    assert!(order.handed_out(START, 100, 0).is_err());
    let mut order = WorkOrder::new(None);
    order.add_blocking(1, 0);
    order.handed_out(START, 100, 1).unwrap();
    order.given_back(START);
    order.handed_out(START, 100, 0).unwrap();
    order.given_back(START);
    order.handed_out(START, 100, 1).unwrap();
}
