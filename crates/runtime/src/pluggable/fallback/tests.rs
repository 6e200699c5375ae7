//! Private pools, captures and events, over a device that counts.
#![allow(clippy::unwrap_used)]

use std::ops::Range;

use stalloc_device::{Counting, Shared};

use super::*;

const POOL: PoolId = (0, 7);

fn fallback(capacity: u64) -> (Shared<Counting>, CachingFallback<Shared<Counting>>) {
    let device = Shared::new(Counting::without_pages(capacity));
    (device.clone(), CachingFallback::new(device, Settings::default()))
}

fn segment(fallback: &CachingFallback<Shared<Counting>>, pool: PoolId) -> Vec<Range<Address>> {
    let segments = fallback.segments().into_iter().filter(|&(id, _)| id == pool);
    segments.map(|(_, segment)| segment.address..segment.address + segment.size).collect()
}

#[test]
fn a_graphs_memory_stays_its_own_until_the_graph_and_its_tensors_are_gone() {
    let (device, mut fallback) = fallback(1 << 30);
    fallback.begin_pool(POOL);
    let (passing, _) = fallback.malloc(1000, 1).unwrap();
    fallback.free(passing).unwrap();
    let (again, _) = fallback.malloc(1000, 1).unwrap();
    assert_eq!(again, passing, "within the capture it is reused");
    fallback.end_pool(POOL);
    fallback.end_capture();
    let of_graph = segment(&fallback, POOL).remove(0);
    for _ in 0..10_000 {
        let (address, held) = fallback.malloc(1000, 1).unwrap();
        assert!(!of_graph.contains(&address) && held.pool == (0, 0));
    }
    fallback.empty_cache().unwrap();
    assert_eq!(segment(&fallback, POOL), std::slice::from_ref(&of_graph));
    // The graph is gone, a tensor of its is not.
    fallback.release_pool(POOL);
    fallback.empty_cache().unwrap();
    assert_eq!(segment(&fallback, POOL), [of_graph]);
    let before = device.lock().used();
    fallback.free(again).unwrap();
    assert_eq!(segment(&fallback, POOL), []);
    assert_eq!(device.lock().used(), before - (2 << 20));
}

#[test]
fn a_pool_that_two_graphs_share_lives_as_long_as_the_second() {
    let (_, mut fallback) = fallback(1 << 30);
    for _ in 0..2 {
        fallback.begin_pool(POOL);
        let (address, _) = fallback.malloc(1000, 1).unwrap();
        fallback.free(address).unwrap();
        fallback.end_pool(POOL);
        fallback.end_capture();
    }
    fallback.release_pool(POOL);
    fallback.empty_cache().unwrap();
    assert_eq!(segment(&fallback, POOL).len(), 1);
    fallback.release_pool(POOL);
    assert_eq!(segment(&fallback, POOL).len(), 0);
    // What is said of pools that there are none of changes nothing.
    fallback.release_pool(POOL);
    fallback.end_pool((9, 9));
    assert!(fallback.malloc(1000, 1).is_ok());
}

#[test]
fn a_graph_does_not_lose_memory_to_a_request_that_does_not_fit() {
    let (_, mut fallback) = fallback(8 << 20);
    fallback.begin_pool(POOL);
    let (passing, _) = fallback.malloc(1000, 1).unwrap();
    fallback.free(passing).unwrap();
    assert!(matches!(fallback.malloc(64 << 20, 1), Err(Error::OutOfMemory { .. })));
    assert_eq!(segment(&fallback, POOL).len(), 1, "kernels that were captured write there");
    fallback.end_pool(POOL);
    fallback.end_capture();
    assert!(matches!(fallback.malloc(64 << 20, 1), Err(Error::OutOfMemory { .. })));
    assert_eq!(segment(&fallback, POOL).len(), 1);
}

#[test]
fn what_another_stream_uses_waits_for_the_end_of_a_capture() {
    let (_, mut fallback) = fallback(1 << 30);
    let (shared, _) = fallback.malloc(1000, 1).unwrap();
    fallback.record_stream(shared, 2);
    fallback.begin_pool(POOL);
    assert!(fallback.free(shared).is_some());
    assert!(fallback.free(shared).is_none(), "it is given back once");
    assert!(fallback.empty_cache().is_ok());
    fallback.end_pool(POOL);
    let state = |fallback: &CachingFallback<_>| segment(fallback, (0, 0)).len();
    assert_eq!(state(&fallback), 1, "no event was recorded yet");
    fallback.end_capture();
    assert_eq!(fallback.malloc(1000, 1).unwrap().0, shared, "its event has completed");
}

#[test]
fn snapshots_tell_what_is_held_and_what_was_asked_for() {
    let (_, mut fallback) = fallback(1 << 30);
    let (a, _) = fallback.malloc(1000, 1).unwrap();
    let (b, _) = fallback.malloc(5 << 20, 1).unwrap();
    assert_eq!(fallback.held(b).map(|held| (held.size, held.requested)), Some((5 << 20, 5 << 20)));
    fallback.free(a).unwrap();
    let segments = fallback.segments();
    let sizes: Vec<_> = segments.iter().map(|(_, s)| (s.small, s.size, s.blocks.len())).collect();
    assert_eq!(sizes, [(true, 2 << 20, 1), (false, 20 << 20, 2)]);
    assert_eq!(fallback.counts().reserved, 22 << 20);
}
