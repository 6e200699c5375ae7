use stalloc_device::Counting;
use stalloc_plan::Plan;

use super::*;
use crate::Arena;

const PAGE: u64 = 2 << 20;

fn memory() -> (Memory<Counting>, Ledger) {
    let frames = Frames::new(&mut Counting::new(80 << 30), 0, 0, 1 << 30).unwrap();
    (Memory::new(frames), Ledger::new(0, 0))
}

#[test]
fn a_plan_under_which_one_request_more_in_two_hundred_waits_has_streams_wait() {
    let (mut memory, ledger) = memory();
    let mut has_waited = |waits: u32, requests, has_plan| {
        (0..waits).for_each(|_| memory.note_wait(&ledger));
        memory.has_waited(requests, has_plan)
    };
    assert!(!has_waited(100, 1_000, true), "how many waited without a plan is not known");
    assert!(!has_waited(100, 11_000, false));
    assert!(!has_waited(10 + 5, 12_000, true));
    assert!(has_waited(10 + 6, 13_000, true));
    assert!(!has_waited(0, 14_000, true));
    assert!(has_waited(20 + 11, 16_000, true));
}

#[test]
fn where_the_device_is_short_of_memory_waits_do_not_count() {
    let (mut memory, mut ledger) = memory();
    ledger.note_pools(1 << 30);
    assert!(!memory.has_waited(1_000, false));
    memory.may_hold = 0;
    (0..1_000).for_each(|_| memory.note_wait(&ledger));
    assert!(!memory.has_waited(2_000, true));
}

#[test]
fn a_plan_of_more_frames_than_may_be_held_has_no_memory_however_much_it_saves() {
    let (memory, mut ledger) = memory();
    for _ in 0..3 {
        ledger.count(100 * PAGE, |counted| &mut counted.remapped);
        ledger.step_begin();
    }
    let plan = |frames: u64| {
        let mut plan = FrameSet::default();
        plan.insert(0..(frames * PAGE / GRANULE) as u32, PAGE);
        plan
    };
    assert!(memory.is_enough_for(&plan(4), 4 * PAGE, &ledger));
    assert!(!memory.is_enough_for(&plan(40), 4 * PAGE, &ledger));
}

#[test]
fn handles_that_meet_a_range_are_spared_and_no_other() {
    let mut arena = Arena::new(Counting::new(4 << 30), &Plan::default()).unwrap();
    let blocks = [(); 3].map(|()| arena.serve(2 * PAGE, 0).unwrap().address);
    let handles = blocks.map(|address| arena.handles(&arena.block(address).unwrap()).unwrap());
    assert_eq!(handles.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    blocks.into_iter().for_each(|address| _ = arena.free(address).unwrap());
    let page = (PAGE / GRANULE) as u32;
    let empty = |arena: &mut Arena<Counting>, spared| arena.mapper().empty_handles(u64::MAX, &spared).len();
    assert_eq!(empty(&mut arena, 0..0), 6);
    assert_eq!(empty(&mut arena, 2 * page..4 * page), 4);
    assert_eq!(empty(&mut arena, 2 * page + 1..3 * page + 1), 4);
}
