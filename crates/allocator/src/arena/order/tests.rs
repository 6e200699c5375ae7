#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use stalloc_device::Counting;

use super::*;

fn order() -> (Order<Counting>, Counting) {
    (Order::new(), Counting::new(1 << 30))
}

/// All blocks that no stream uses any more.
fn done(order: &mut Order<Counting>, device: &mut Counting) -> Vec<u32> {
    let mut left = order.pending();
    std::iter::from_fn(|| order.next_done(device, &mut left)).collect()
}

#[test]
fn a_block_waits_for_every_stream_that_it_was_recorded_on() {
    let (mut order, mut device) = order();
    order.record_stream(7, 1);
    order.record_stream(7, 2);
    order.record_stream(7, 1);
    order.record_stream(9, 2);
    order.wait_for_others(&mut device, 7);
    order.wait_for_others(&mut device, 9);
    assert_eq!(order.pending(), 2, "one queue for each stream");
    assert_eq!(done(&mut order, &mut device), [9, 7], "each once, when the last of its streams is done");
    assert_eq!(order.pending(), 0);
}

#[test]
fn what_is_given_back_during_a_capture_waits_from_its_end_on() {
    let (mut order, mut device) = order();
    order.set_capturing(&mut device, true);
    order.record_stream(7, 1);
    order.wait_for_others(&mut device, 7);
    assert!(order.is_capturing() && order.pending() == 0);
    order.set_capturing(&mut device, false);
    assert_eq!(done(&mut order, &mut device), [7]);
}

#[test]
fn all_mapped_memory_is_the_first_streams_until_a_second_one_comes() {
    let (mut order, mut device) = order();
    let [first, second] = [40, 50].map(|stream| order.ordinal(stream).expect("few streams"));
    assert_eq!((order.ordinal(40), order.handle(second)), (Some(first), 50));
    let mapped = || [0..8, 16..24].into_iter();
    order.admit(first, mapped);
    assert!(order.is_alone(first));
    order.admit(second, mapped);
    assert!(!order.is_alone(first));
    let own = |order: &mut Order<_>, range, stream| order.search().own(range, 8, stream);
    assert_eq!(own(&mut order, 0..8, first), Ok(0));
    assert!(own(&mut order, 0..8, second).is_err());
    assert_eq!(own(&mut order, 0..24, second), Ok(8), "where nothing is mapped");
    order.take_over(&mut device, &(0..8), second).expect("streams can wait");
    assert_eq!(own(&mut order, 0..8, second), Ok(0));
    order.wait_for_device(&mut device).expect("it can be waited for");
    order.admit(second, mapped);
    assert_eq!(own(&mut order, 16..24, second), Ok(16), "nobody's after all work is done");
}
