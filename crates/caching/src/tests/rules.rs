//! The native rules: sizes, splitting, best fit, release.

use super::*;

#[test]
fn sizes_are_rounded_up_to_512() {
    let settings = Settings::default();
    for (size, rounded) in [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)] {
        assert_eq!(settings.rounded(size), Some(rounded));
    }
    assert_eq!(settings.rounded(u64::MAX), None);
}

#[test]
fn power_of_two_divisions_round_up_to_the_next_one() {
    let settings = Settings { roundup_power2_divisions: vec![(MIB, 4)], ..Settings::default() };
    // PyTorch's own example: four divisions between 1024 and 2048 are 1024, 1280, 1536 and 1792.
    assert_eq!(settings.rounded(1200), Some(1536), "below 512 times the divisions, multiples of 512 hold");
    assert_eq!(settings.rounded(1200 * KIB), Some(1280 * KIB));
    assert_eq!(settings.rounded(1800 * KIB), Some(2048 * KIB));
    assert_eq!(settings.rounded(1 << 30), Some(1 << 30));
    assert_eq!(settings.rounded((1 << 63) + 1), Some((1 << 63) + (1 << 61)));
    assert_eq!(settings.rounded(u64::MAX), None);
}

#[test]
fn divisions_hold_from_their_size_on_and_the_first_also_below() {
    let divisions = vec![(MIB, 0), (256 * MIB, 1), (512 * MIB, 2), (1024 * MIB, 4)];
    let settings = Settings { roundup_power2_divisions: divisions, ..Settings::default() };
    assert_eq!(settings.rounded(100 * KIB + 1), Some(100 * KIB + 512));
    assert_eq!(settings.rounded(300 * MIB), Some(300 * MIB));
    assert_eq!(settings.rounded(600 * MIB), Some(768 * MIB));
    assert_eq!(settings.rounded(1100 * MIB), Some(1280 * MIB));
    assert_eq!(settings.rounded(65 << 30), Some(80 << 30));
}

#[test]
fn a_segment_is_2_mib_then_20_mib_then_a_multiple_of_2_mib() {
    for (size, segment) in [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 1, 10 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
    ] {
        let (mut allocator, watch) = default();
        allocator.malloc(size, 0).unwrap();
        assert_eq!(did(&watch), [Did::Alloc(segment)], "{size}");
    }
}

#[test]
fn a_small_block_is_split_from_512_bytes_on_a_large_one_above_1_mib() {
    let (mut allocator, watch) = default();
    let a = allocator.malloc(MIB, 0).unwrap();
    assert_eq!(allocator.malloc(MIB - 512, 0).unwrap(), a + MIB);
    assert_eq!(allocator.malloc(512, 0).unwrap(), a + 2 * MIB - 512);
    assert_eq!(did(&watch), [Did::Alloc(2 * MIB)]);

    // 20 MiB segment: 9 MiB leave 11 MiB, of which 10 MiB would leave 1 MiB, which is not split off.
    let b = allocator.malloc(9 * MIB, 0).unwrap();
    assert_eq!(allocator.malloc(10 * MIB, 0).unwrap(), b + 9 * MIB);
    assert_eq!(did(&watch), [Did::Alloc(20 * MIB)]);
    allocator.malloc(2 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [Did::Alloc(20 * MIB)], "the last mebibyte of the first one went with its block");
}

#[test]
fn the_smallest_block_that_fits_is_taken_and_among_equals_the_lowest() {
    let (mut allocator, _) = default();
    let blocks: Vec<_> = [30, 40, 30, 50].map(|size| allocator.malloc(size * MIB, 0).unwrap()).into();
    for address in blocks.iter().rev() {
        allocator.free(*address).unwrap();
    }
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[0]);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[2]);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[1]);
    assert_eq!(allocator.malloc(30 * MIB, 0).unwrap(), blocks[3]);
}

#[test]
fn freed_neighbours_merge_on_both_sides() {
    let (mut allocator, watch) = default();
    let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(512 * KIB, 0).unwrap()).collect();
    for place in [0, 2, 1, 3] {
        allocator.free(blocks[place]).unwrap();
    }
    assert_eq!(allocator.malloc(MIB, 0).unwrap(), blocks[0]);
    assert_eq!(allocator.malloc(MIB, 0).unwrap(), blocks[2]);
    assert_eq!(did(&watch), [Did::Alloc(2 * MIB)]);
}

#[test]
fn streams_do_not_share_blocks() {
    let (mut allocator, watch) = default();
    let a = allocator.malloc(30 * MIB, 1).unwrap();
    allocator.free(a).unwrap();
    assert_ne!(allocator.malloc(30 * MIB, 2).unwrap(), a);
    assert_eq!(allocator.malloc(30 * MIB, 1).unwrap(), a);
    assert_eq!(did(&watch), [Did::Alloc(30 * MIB), Did::Alloc(30 * MIB)]);
}

#[test]
fn emptying_the_cache_gives_whole_segments_back_large_ones_first_by_stream_and_size() {
    let (mut allocator, watch) = default();
    let held = allocator.malloc(2 * MIB, 1).unwrap();
    let mut cached = Vec::new();
    for (size, stream) in [(1, 9), (40 * MIB, 9), (60 * MIB, 3), (50 * MIB, 3), (1, 3), (6 * MIB, 1)] {
        cached.push(allocator.malloc(size, stream).unwrap());
    }
    cached.into_iter().for_each(|address| allocator.free(address).unwrap());
    did(&watch);
    allocator.empty_cache().unwrap();
    assert_eq!(did(&watch), [50 * MIB, 60 * MIB, 40 * MIB, 2 * MIB, 2 * MIB].map(Did::Free));
    assert_eq!(allocator.reserved(), 20 * MIB);
    allocator.free(held).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!((allocator.reserved(), watch.borrow().used), (0, 0));
}

#[test]
fn without_memory_everything_cached_is_given_back_and_the_request_tried_again() {
    let (mut allocator, watch) = on(100 * MIB, Settings::default());
    let held = allocator.malloc(40 * MIB, 0).unwrap();
    for stream in 1..4 {
        let block = allocator.malloc(20 * MIB, stream).unwrap();
        allocator.free(block).unwrap();
    }
    did(&watch);
    allocator.malloc(30 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [Did::Free(20 * MIB), Did::Free(20 * MIB), Did::Free(20 * MIB), Did::Alloc(30 * MIB)]);
    let error = allocator.malloc(31 * MIB, 0).unwrap_err();
    let expected = Error::OutOfMemory { requested: 31 * MIB, allocated: 70 * MIB, reserved: 70 * MIB };
    assert_eq!(error, expected);
    allocator.free(held).unwrap();
    allocator.malloc(31 * MIB, 0).unwrap();
    assert_eq!(allocator.cache().stats().out_of_memory, 1);
}

#[test]
fn blocks_from_max_split_size_on_are_neither_split_nor_lent_to_small_requests() {
    let settings = Settings { max_split_size: Some(100 * MIB), ..Settings::default() };
    let (mut allocator, watch) = on(1 << 40, settings);
    let large = allocator.malloc(200 * MIB, 0).unwrap();
    allocator.free(large).unwrap();
    assert_ne!(allocator.malloc(50 * MIB, 0).unwrap(), large, "not for a request below the limit");
    assert_ne!(allocator.malloc(180 * MIB, 0).unwrap(), large, "20 MiB larger is too much");
    assert_eq!(allocator.malloc(182 * MIB, 0).unwrap(), large, "18 MiB are not");
    allocator.malloc(18 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [200, 50, 180, 18].map(|size| Did::Alloc(size * MIB)), "and it was not split");
}

#[test]
fn without_memory_oversize_blocks_go_first_and_only_as_many_as_it_takes() {
    let settings = Settings { max_split_size: Some(100 * MIB), ..Settings::default() };
    let (mut allocator, watch) = on(700 * MIB, settings);
    let sizes = [100 * MIB, 130 * MIB, 160 * MIB, 30 * MIB];
    let blocks = sizes.map(|size| allocator.malloc(size, 0).unwrap());
    blocks.iter().for_each(|&address| allocator.free(address).unwrap());
    did(&watch);
    allocator.malloc(702 * MIB, 0).unwrap_err();
    let all: Vec<_> = [160, 130, 100, 30].map(|size| Did::Free(size * MIB)).into();
    assert_eq!(did(&watch), all, "all of them are too few: the rest of the cache went as well");
    let blocks = sizes.map(|size| allocator.malloc(size, 0).unwrap());
    blocks.iter().for_each(|&address| allocator.free(address).unwrap());
    did(&watch);
    allocator.malloc(290 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [Did::Free(160 * MIB), Did::Free(130 * MIB), Did::Alloc(290 * MIB)]);
    allocator.malloc(120 * MIB, 0).unwrap();
    assert_eq!(did(&watch), [Did::Alloc(120 * MIB)]);
}

#[test]
fn garbage_collection_gives_back_what_was_not_used_for_longest() {
    let settings =
        Settings { garbage_collection_threshold: 0.5, memory_limit: Some(1000 * MIB), ..Settings::default() };
    let (mut allocator, watch) = on(1 << 40, settings);
    let old = allocator.malloc(200 * MIB, 0).unwrap();
    allocator.free(old).unwrap();
    for _ in 0..10 {
        let young = allocator.malloc(300 * MIB, 0).unwrap();
        allocator.free(young).unwrap();
    }
    assert_eq!(did(&watch), [Did::Alloc(200 * MIB), Did::Alloc(300 * MIB)]);
    allocator.malloc(310 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 810 * MIB, "exactly half is not above half");
    did(&watch);
    allocator.malloc(100 * MIB, 1).unwrap();
    let collected = [Did::Free(200 * MIB), Did::Free(300 * MIB), Did::Alloc(100 * MIB)];
    assert_eq!(did(&watch), collected, "200 MiB are not enough below half of the limit");
}

#[test]
fn no_more_than_the_memory_limit_is_reserved() {
    let settings = Settings { memory_limit: Some(100 * MIB), ..Settings::default() };
    let (mut allocator, _) = on(1 << 40, settings);
    let a = allocator.malloc(60 * MIB, 0).unwrap();
    assert!(matches!(allocator.malloc(50 * MIB, 0), Err(Error::OutOfMemory { .. })));
    allocator.free(a).unwrap();
    allocator.malloc(80 * MIB, 0).unwrap();
}

#[test]
fn hostile_requests_are_refused() {
    for expandable_segments in [false, true] {
        let (mut allocator, _) = on(1 << 40, Settings { expandable_segments, ..Settings::default() });
        for size in [u64::MAX, u64::MAX - 600, 1 << 63, (1 << 63) + 1, 1 << 50] {
            assert!(matches!(allocator.malloc(size, 0), Err(Error::OutOfMemory { .. })), "{size}");
        }
        assert_eq!(allocator.free(512), Err(Error::UnknownAddress(512)));
        assert_eq!(allocator.record_stream(512, 1), Err(Error::UnknownAddress(512)));
        let a = allocator.malloc(1, 0).unwrap();
        allocator.free(a).unwrap();
        assert_eq!(allocator.free(a), Err(Error::UnknownAddress(a)));
        assert_eq!(allocator.reserved(), 2 * MIB);
    }
}
