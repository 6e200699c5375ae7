//! Expandable segments.

use super::*;

fn expandable(capacity: u64) -> (Caching<Watched>, Rc<RefCell<Watch>>) {
    on(capacity, Settings { expandable_segments: true, ..Settings::default() })
}

/// The mapped ranges, those side by side as one, as (offset from `base`, bytes) in MiB.
fn maps(watch: &Rc<RefCell<Watch>>, base: Address) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for did in did(watch) {
        let Did::Map(address, bytes) = did else { panic!("{did:?}") };
        let (offset, bytes) = ((address - base) / MIB, bytes / MIB);
        match out.last_mut() {
            Some(last) if last.0 + last.1 == offset => last.1 += bytes,
            _ => out.push((offset, bytes)),
        }
    }
    out
}

#[test]
fn small_requests_map_pages_of_2_mib_large_ones_of_20_mib() {
    let (mut allocator, watch) = expandable(1 << 40);
    let a = allocator.malloc(1, 0).unwrap();
    assert_eq!(maps(&watch, a), [(0, 2)]);
    let b = allocator.malloc(50 * MIB, 0).unwrap();
    assert_eq!(maps(&watch, b), [(0, 60)]);
    assert_eq!(allocator.malloc(10 * MIB - 512, 0).unwrap(), b + 50 * MIB);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), b + 60 * MIB - 512, "what is left grows");
    assert_eq!(maps(&watch, b), [(60, 40)]);
}

#[test]
fn the_end_of_a_segment_grows_by_what_is_missing() {
    let (mut allocator, watch) = expandable(1 << 40);
    let a = allocator.malloc(15 * MIB, 0).unwrap();
    assert_eq!(maps(&watch, a), [(0, 20)]);
    assert_eq!(allocator.malloc(24 * MIB, 0).unwrap(), a + 15 * MIB);
    assert_eq!(maps(&watch, a), [(20, 20)], "5 of 24 MiB were there");
}

#[test]
fn a_hole_is_preferred_to_the_growing_end_even_if_the_end_fits_better() {
    let (mut allocator, watch) = expandable(1 << 40);
    let a = allocator.malloc(40 * MIB, 0).unwrap();
    let b = allocator.malloc(30 * MIB, 0).unwrap();
    allocator.free(a).unwrap();
    did(&watch);
    // 10 MiB are left at the end, but it can grow: the hole of 40 MiB counts as the smaller one.
    assert_eq!(allocator.malloc(9 * MIB, 0).unwrap(), a);
    assert_eq!(b, a + 40 * MIB);
}

#[test]
fn emptying_unmaps_whole_free_pages_and_the_holes_are_filled_first() {
    let (mut allocator, watch) = expandable(1 << 40);
    let a = allocator.malloc(50 * MIB, 0).unwrap();
    let b = allocator.malloc(20 * MIB, 0).unwrap();
    allocator.free(a).unwrap();
    did(&watch);
    allocator.empty_cache().unwrap();
    assert_eq!(did(&watch), [Did::Wait, Did::Unmap(a, 40 * MIB)], "the page at 40 MiB is half used; so is the last");
    assert_eq!(allocator.reserved(), 40 * MIB);
    assert_eq!(allocator.malloc(45 * MIB, 0).unwrap(), a, "unmapped and free side by side");
    assert_eq!(maps(&watch, a), [(0, 40)]);
    for address in [a, b] {
        allocator.free(address).unwrap();
    }
    did(&watch);
    allocator.empty_cache().unwrap();
    assert_eq!(did(&watch), [Did::Wait, Did::Unmap(a, 80 * MIB)]);
    assert_eq!(allocator.reserved(), 0);
    assert_ne!(allocator.malloc(45 * MIB, 0).unwrap(), a, "the empty range was given back");
}

#[test]
fn without_memory_free_pages_of_other_streams_are_unmapped() {
    let (mut allocator, watch) = expandable(100 * MIB);
    let a = allocator.malloc(60 * MIB, 1).unwrap();
    allocator.free(a).unwrap();
    let b = allocator.malloc(80 * MIB, 2).unwrap();
    let expected = [Did::Unmap(a, 60 * MIB), Did::Map(b, 20 * MIB)];
    let all = did(&watch);
    assert!(all.windows(2).any(|w| w == expected), "{all:?}");
    assert_eq!(allocator.reserved(), 80 * MIB);
    assert!(matches!(allocator.malloc(21 * MIB, 2), Err(Error::OutOfMemory { .. })));
    assert_eq!((allocator.reserved(), watch.borrow().used), (80 * MIB, 80 * MIB), "a half mapped request is undone");
}

#[test]
fn several_ranges_are_used_when_one_is_full() {
    // The device claims 64 MiB: ranges of 72 MiB, rounded up to 80.
    let (mut allocator, _) = expandable(64 * MIB);
    let a = allocator.malloc(20 * MIB, 0).unwrap();
    let b = allocator.malloc(20 * MIB, 0).unwrap();
    let c = allocator.malloc(20 * MIB, 0).unwrap();
    assert_eq!([b, c], [a + 20 * MIB, a + 40 * MIB]);
    allocator.free(a).unwrap();
    allocator.free(b).unwrap();
    // 40 MiB are free at the front, 20 MiB unmapped at the end, in between lies `c`.
    assert_eq!(allocator.malloc(40 * MIB, 0).unwrap(), a);
    assert!(allocator.malloc(21 * MIB, 0).is_err());
}

#[test]
fn a_device_without_virtual_memory_gets_ordinary_segments() {
    let (mut allocator, watch) = expandable(1 << 40);
    watch.borrow_mut().broken.insert("page_size");
    let a = allocator.malloc(30 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [Did::Alloc(30 * MIB)]);
    assert!(!allocator.cache().settings().expandable_segments);
    allocator.free(a).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.reserved(), 0);
}
