//! A device that fails for other reasons than memory, and states that cannot be.

use super::*;

#[test]
fn a_failing_device_is_reported_and_nothing_is_lost() {
    let (mut allocator, watch) = default();
    watch.borrow_mut().broken.insert("alloc");
    assert!(matches!(allocator.malloc(1, 0), Err(Error::Device(DeviceError::Driver { call: "alloc", .. }))));
    watch.borrow_mut().broken.clear();
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.free(a).unwrap();
    watch.borrow_mut().broken.insert("free");
    assert!(allocator.empty_cache().is_err());
    watch.borrow_mut().broken.clear();
    assert_eq!(allocator.reserved(), 30 * MIB);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), a);
}

#[test]
fn a_block_whose_events_cannot_be_recorded_stays_live() {
    let (mut allocator, watch) = default();
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.record_stream(a, 1).unwrap();
    watch.borrow_mut().broken.insert("record");
    assert!(allocator.free(a).is_err());
    watch.borrow_mut().broken.clear();
    assert_ne!(allocator.malloc(30 * MIB, 0).unwrap(), a);
    allocator.free(a).unwrap();
    assert_eq!(watch.borrow().events, 1);
}

#[test]
fn pages_that_could_not_be_unmapped_are_never_used_again() {
    let (mut allocator, watch) = on(1 << 40, Settings { expandable_segments: true, ..Settings::default() });
    let a = allocator.malloc(50 * MIB, 0).unwrap();
    allocator.free(a).unwrap();
    watch.borrow_mut().broken.insert("unmap");
    assert!(allocator.empty_cache().is_err());
    watch.borrow_mut().broken.clear();
    let b = allocator.malloc(50 * MIB, 0).unwrap();
    assert!(b >= a + 60 * MIB);
    allocator.free(b).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.reserved(), 60 * MIB);
}

fn adopted(parts: Vec<SegmentPiece>) -> Adopted {
    Adopted { address: 1 << 30, stream: 4, small: false, expandable: false, owner: 0, parts }
}

#[test]
fn an_adopted_segment_serves_like_ones_own() {
    let (mut allocator, watch) = default();
    let live = SegmentPiece::Live { size: 8 * MIB, requested: 8 * MIB - 700 };
    let segment = adopted(vec![SegmentPiece::Free { size: 4 * MIB }, live, SegmentPiece::Free { size: 8 * MIB }]);
    allocator.cache_mut().adopt(&segment).unwrap();
    assert_eq!((allocator.allocated(), allocator.reserved()), (8 * MIB - 512, 20 * MIB));
    assert_eq!(allocator.malloc(4 * MIB, 4).unwrap(), 1 << 30);
    allocator.free((1 << 30) + 4 * MIB).unwrap();
    assert_eq!(allocator.malloc(16 * MIB, 4).unwrap(), (1 << 30) + 4 * MIB);
    assert_eq!(did(&watch), []);
}

#[test]
fn an_adopted_private_pool_stays_apart() {
    let (mut allocator, watch) = default();
    let live = SegmentPiece::Live { size: 10 * MIB, requested: 10 * MIB };
    let segment = Adopted { owner: 3, ..adopted(vec![live, SegmentPiece::Free { size: 10 * MIB }]) };
    allocator.cache_mut().adopt(&segment).unwrap();
    allocator.malloc(2 * MIB, 4).unwrap();
    allocator.free(1 << 30).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(did(&watch), [Did::Alloc(20 * MIB)]);
    assert_eq!(allocator.reserved(), 40 * MIB);
}

#[test]
fn an_adopted_range_grows_where_it_has_room() {
    let (mut allocator, watch) = on(1 << 40, Settings { expandable_segments: true, ..Settings::default() });
    // The device must know the range that it is to map into.
    let base = allocator.device.inner.reserve(120 * MIB).unwrap();
    let live = SegmentPiece::Live { size: 20 * MIB, requested: 20 * MIB };
    let parts = vec![SegmentPiece::Unmapped { size: 40 * MIB }, live, SegmentPiece::Unmapped { size: 60 * MIB }];
    let segment = Adopted { address: base, expandable: true, ..adopted(parts) };
    allocator.cache_mut().adopt(&segment).unwrap();
    assert_eq!(allocator.malloc(50 * MIB, 4).unwrap(), base + 60 * MIB);
    assert_eq!(allocator.malloc(30 * MIB, 4).unwrap(), base);
    assert_eq!(did(&watch).len(), 3 + 2);
}

#[test]
fn an_impossible_state_is_refused_whole() {
    let (mut allocator, _) = default();
    let cache = allocator.cache_mut();
    let start = 1 << 30;
    let cases = [
        (vec![SegmentPiece::Free { size: 0 }], AdoptError::Size(start)),
        (vec![SegmentPiece::Free { size: 512 }, SegmentPiece::Free { size: u64::MAX - 512 }], AdoptError::Size(start)),
        (vec![SegmentPiece::Live { size: 512, requested: 513 }], AdoptError::Size(start)),
        (vec![SegmentPiece::Live { size: 512, requested: u64::MAX }], AdoptError::Size(start)),
        (vec![SegmentPiece::Unmapped { size: 20 * MIB }], AdoptError::Unmapped(start)),
    ];
    for (parts, error) in cases {
        assert_eq!(cache.adopt(&adopted(parts)), Err(error));
    }
    let off = vec![SegmentPiece::Free { size: 512 }, SegmentPiece::Unmapped { size: 20 * MIB }];
    assert_eq!(cache.adopt(&Adopted { expandable: true, ..adopted(off) }), Err(AdoptError::Unmapped(start)));
    let live = adopted(vec![SegmentPiece::Live { size: 512, requested: 1 }]);
    cache.adopt(&live).unwrap();
    assert_eq!(cache.adopt(&live), Err(AdoptError::Twice(start)));
    assert_eq!((cache.allocated(), cache.reserved()), (512, 512));
}
