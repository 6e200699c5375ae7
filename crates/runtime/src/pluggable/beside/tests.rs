//! Private pools, captures and events, over a device that counts.
#![allow(clippy::unwrap_used)]

use std::ops::Range;

use stalloc_device::{Counting, Shared};

use super::*;

const POOL: PoolId = (0, 7);

fn beside(capacity: u64) -> (Shared<Counting>, Beside<Shared<Counting>>) {
    let device = Shared::new(Counting::without_pages(capacity));
    (device.clone(), Beside::new(device, Settings::default()))
}

fn segment(beside: &Beside<Shared<Counting>>, pool: PoolId) -> Vec<Range<Address>> {
    let segments = beside.segments().into_iter().filter(|&(id, _)| id == pool);
    segments.map(|(_, segment)| segment.address..segment.address + segment.size).collect()
}

#[test]
fn a_graphs_memory_stays_its_own_until_the_graph_and_its_tensors_are_gone() {
    let (device, mut beside) = beside(1 << 30);
    beside.begin_pool(POOL);
    let (passing, _) = beside.malloc(1000, 1).unwrap();
    beside.free(passing).unwrap();
    let (again, _) = beside.malloc(1000, 1).unwrap();
    assert_eq!(again, passing, "within the capture it is reused");
    beside.end_pool(POOL);
    beside.end_capture();
    let of_graph = segment(&beside, POOL).remove(0);
    for _ in 0..10_000 {
        let (address, held) = beside.malloc(1000, 1).unwrap();
        assert!(!of_graph.contains(&address) && held.pool == (0, 0));
    }
    beside.empty_cache().unwrap();
    assert_eq!(segment(&beside, POOL), std::slice::from_ref(&of_graph));
    // The graph is gone, a tensor of its is not.
    beside.release_pool(POOL);
    beside.empty_cache().unwrap();
    assert_eq!(segment(&beside, POOL), [of_graph]);
    let before = device.lock().used();
    beside.free(again).unwrap();
    assert_eq!(segment(&beside, POOL), []);
    assert_eq!(device.lock().used(), before - (2 << 20));
}

#[test]
fn a_pool_that_two_graphs_share_lives_as_long_as_the_second() {
    let (_, mut beside) = beside(1 << 30);
    for _ in 0..2 {
        beside.begin_pool(POOL);
        let (address, _) = beside.malloc(1000, 1).unwrap();
        beside.free(address).unwrap();
        beside.end_pool(POOL);
        beside.end_capture();
    }
    beside.release_pool(POOL);
    beside.empty_cache().unwrap();
    assert_eq!(segment(&beside, POOL).len(), 1);
    beside.release_pool(POOL);
    assert_eq!(segment(&beside, POOL).len(), 0);
    // What is said of pools that there are none of changes nothing.
    beside.release_pool(POOL);
    beside.end_pool((9, 9));
    assert!(beside.malloc(1000, 1).is_ok());
}

#[test]
fn a_graph_does_not_lose_memory_to_a_request_that_does_not_fit() {
    let (_, mut beside) = beside(8 << 20);
    beside.begin_pool(POOL);
    let (passing, _) = beside.malloc(1000, 1).unwrap();
    beside.free(passing).unwrap();
    assert!(matches!(beside.malloc(64 << 20, 1), Err(Error::OutOfMemory { .. })));
    assert_eq!(segment(&beside, POOL).len(), 1, "kernels that were captured write there");
    beside.end_pool(POOL);
    beside.end_capture();
    assert!(matches!(beside.malloc(64 << 20, 1), Err(Error::OutOfMemory { .. })));
    assert_eq!(segment(&beside, POOL).len(), 1);
}

#[test]
fn what_another_stream_uses_waits_for_the_end_of_a_capture() {
    let (_, mut beside) = beside(1 << 30);
    let (shared, _) = beside.malloc(1000, 1).unwrap();
    beside.record_stream(shared, 2);
    beside.begin_pool(POOL);
    assert!(beside.free(shared).is_some());
    assert!(beside.free(shared).is_none(), "it is given back once");
    assert!(beside.empty_cache().is_ok());
    beside.end_pool(POOL);
    let state = |beside: &Beside<_>| segment(beside, (0, 0)).len();
    assert_eq!(state(&beside), 1, "no event was recorded yet");
    beside.end_capture();
    assert_eq!(beside.malloc(1000, 1).unwrap().0, shared, "its event has completed");
}

#[test]
fn snapshots_tell_what_is_held_and_what_was_asked_for() {
    let (_, mut beside) = beside(1 << 30);
    let (a, _) = beside.malloc(1000, 1).unwrap();
    let (b, _) = beside.malloc(5 << 20, 1).unwrap();
    assert_eq!(beside.held(b).map(|held| (held.size, held.requested)), Some((5 << 20, 5 << 20)));
    beside.free(a).unwrap();
    let segments = beside.segments();
    let sizes: Vec<_> = segments.iter().map(|(_, s)| (s.small, s.size, s.blocks.len())).collect();
    assert_eq!(sizes, [(true, 2 << 20, 1), (false, 20 << 20, 2)]);
    assert_eq!(beside.counts().reserved, 22 << 20);
}
