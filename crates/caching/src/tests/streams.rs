//! Blocks that several streams use.

use super::*;

#[test]
fn a_block_used_on_another_stream_waits_for_it() {
    let (mut allocator, watch) = default();
    watch.borrow_mut().slow = true;
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.record_stream(a, 7).unwrap();
    allocator.record_stream(a, 8).unwrap();
    allocator.record_stream(a, 8).unwrap();
    allocator.free(a).unwrap();
    assert_eq!(watch.borrow().events, 2, "one event per stream");
    assert_eq!(allocator.allocated(), 0);
    let b = allocator.malloc(30 * MIB, 0).unwrap();
    assert_ne!(a, b);
    watch.borrow_mut().pending.remove(&1);
    assert_ne!(allocator.malloc(30 * MIB, 0).unwrap(), a, "the second stream still uses it");
    watch.borrow_mut().pending.remove(&2);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), a);
}

#[test]
fn a_use_on_the_blocks_own_stream_is_no_use() {
    let (mut allocator, watch) = default();
    let a = allocator.malloc(30 * MIB, 5).unwrap();
    allocator.record_stream(a, 5).unwrap();
    allocator.free(a).unwrap();
    assert_eq!(watch.borrow().events, 0);
}

#[test]
fn a_waiting_block_does_not_merge() {
    let (mut allocator, watch) = default();
    watch.borrow_mut().slow = true;
    let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(512 * KIB, 0).unwrap()).collect();
    allocator.record_stream(blocks[1], 9).unwrap();
    for &block in &blocks {
        allocator.free(block).unwrap();
    }
    assert_eq!(allocator.malloc(MIB, 0).unwrap(), blocks[2]);
    watch.borrow_mut().pending.clear();
    assert_eq!(allocator.malloc(MIB, 0).unwrap(), blocks[0]);
    assert_eq!(did(&watch), [Did::Alloc(2 * MIB)]);
}

#[test]
fn a_streams_events_complete_in_order_and_streams_do_not_wait_for_each_other() {
    let (mut allocator, watch) = default();
    watch.borrow_mut().slow = true;
    let blocks: Vec<_> = (0..3).map(|_| allocator.malloc(30 * MIB, 0).unwrap()).collect();
    for (block, stream) in [(0, 1), (1, 1), (2, 2)] {
        allocator.record_stream(blocks[block], stream).unwrap();
        allocator.free(blocks[block]).unwrap();
    }
    watch.borrow_mut().pending.remove(&2);
    watch.borrow_mut().pending.remove(&3);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[2]);
    watch.borrow_mut().pending.remove(&1);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[0]);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[1]);
}

#[test]
fn emptying_the_cache_waits_for_other_streams() {
    let (mut allocator, watch) = default();
    watch.borrow_mut().slow = true;
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.record_stream(a, 1).unwrap();
    allocator.free(a).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(did(&watch), [Did::Alloc(30 * MIB), Did::Wait, Did::Free(30 * MIB)]);
}

#[test]
fn a_reused_address_has_forgotten_its_other_streams() {
    let (mut allocator, watch) = default();
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.record_stream(a, 1).unwrap();
    allocator.free(a).unwrap();
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), a);
    allocator.free(a).unwrap();
    assert_eq!(watch.borrow().events, 1);
}
