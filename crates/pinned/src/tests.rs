#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A device that hands out addresses, none twice and none next to another.
#[derive(Default)]
struct Addresses {
    next: Address,
    held: BTreeMap<Address, u64>,
    /// The most that was held.
    most: u64,
    /// All that was ever taken.
    taken: u64,
}

impl Addresses {
    fn take(&mut self, bytes: u64) -> Address {
        let address = self.next + UNIT;
        self.next = address + bytes;
        self.held.insert(address, bytes);
        self.taken += bytes;
        self.most = self.most.max(self.held.values().sum());
        address
    }
}

fn take(regions: &mut Regions, device: &mut Addresses, (idle, bytes): (Vec<(Address, u64)>, u64), size: u64) {
    idle.iter().for_each(|&(address, bytes)| assert_eq!(device.held.remove(&address), Some(bytes)));
    assert!(regions.add(device.take(bytes), bytes, size));
}

fn serve(regions: &mut Regions, device: &mut Addresses, size: u64) -> Address {
    regions.serve(size).unwrap_or_else(|| {
        let wanted = regions.grow_for(size).unwrap();
        take(regions, device, wanted, size);
        regions.serve_anywhere(size).unwrap()
    })
}

#[test]
fn blocks_of_one_size_fill_their_regions() {
    for size in [5000, 300_000, 3 * MIB, 21 * MIB + 1] {
        let (mut regions, mut device) = (Regions::default(), Addresses::default());
        let mut live = 0;
        while live < 700 * MIB {
            serve(&mut regions, &mut device, size);
            live += size.next_multiple_of(UNIT);
            let most = live + live / 20 + 2 * MIB;
            assert!(regions.reserved() <= most, "{size}: {} for {live}", regions.reserved());
        }
        assert!(regions.len() < 1000, "{size}: {} regions", regions.len());
    }
}

#[test]
fn a_block_is_found_by_every_address_in_it_and_freed_by_its_first() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let first = serve(&mut regions, &mut device, 10_000);
    let second = serve(&mut regions, &mut device, 0);
    assert_eq!(regions.around(first + 9_999), Some(first..first + 3 * UNIT));
    assert_eq!(regions.around(second), Some(second..second + UNIT));
    assert_eq!(regions.around(second + UNIT), None);
    assert_eq!((regions.free(first + UNIT), regions.free(first - 1), regions.free(0)), (None, None, None));
    assert_eq!(regions.free(first), Some(3 * UNIT));
    assert_eq!((regions.free(first), regions.around(first)), (None, None));
}

#[test]
fn regions_without_a_block_are_given_back_and_their_numbers_used_again() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    for _ in 0..3000 {
        // 16 TiB of numbers are not enough for this, if they are used once.
        let large = serve(&mut regions, &mut device, 8 << 30);
        let small = serve(&mut regions, &mut device, 3 * MIB);
        assert_eq!(regions.free(large), Some(8 << 30));
        assert_eq!(regions.take_idle(), [(large, 8 << 30)]);
        assert_eq!(regions.around(large), None);
        regions.free(small).unwrap();
        assert_eq!(regions.take_idle().len(), 1);
        assert!(regions.is_empty() && regions.reserved() == 0);
    }
}

#[test]
fn steps_of_other_sizes_hold_less_than_by_pytorch_for_as_much_time_and_then_take_nothing() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let mut peak = 0;
    let mut before = 0;
    for pass in 0..8 {
        before = device.next;
        for scale in [100, 151, 59, 195] {
            let sizes = (0..120).map(|layer| scale * [70_000, 9_000, 40_000][layer % 3]);
            peak = peak.max(sizes.clone().sum());
            let step: Vec<_> = sizes.map(|size| serve(&mut regions, &mut device, size)).collect();
            step.into_iter().for_each(|address| assert!(regions.free(address).is_some()));
        }
        let native = regions.native.taken_with(0);
        assert!(
            native > peak * 3 / 2 && device.taken <= native + native / 3,
            "pass {pass}: {} and {native}",
            device.taken
        );
        assert!(regions.reserved() <= peak + peak / 3, "pass {pass}: {} for {peak}", regions.reserved());
    }
    assert_eq!(device.next, before, "nothing was taken in the last pass");
}

#[test]
fn copies_made_before_the_old_ones_go_hold_little_more_than_the_largest_needs_and_soon_take_nothing() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let layer = [2560, 9_830_400, 7680, 3_276_800, 13_107_200, 2560, 13_107_200];
    let mut sizes = vec![81_920_000, 2_621_440];
    (0..8).for_each(|_| sizes.extend(layer));
    sizes.push(81_920_000);
    let peak = sizes.iter().sum::<u64>() + sizes[0];
    let mut kept: Vec<_> = sizes.iter().map(|&size| serve(&mut regions, &mut device, size)).collect();
    for pass in 0..20 {
        let before = device.next;
        for (kept, &size) in kept.iter_mut().zip(&sizes) {
            let copy = serve(&mut regions, &mut device, size);
            assert!(regions.free(std::mem::replace(kept, copy)).is_some());
        }
        assert!(regions.reserved() <= peak + peak / 20 + MIB, "pass {pass}: {} for {peak}", regions.reserved());
        assert!(pass < 4 || device.next == before, "pass {pass} took memory");
    }
}

#[test]
fn blocks_go_where_blocks_like_them_were() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let _kept: Vec<_> = (0..500).map(|_| serve(&mut regions, &mut device, 2 * MIB)).collect();
    let mut after_the_first = 0;
    for pass in 0..5 {
        let step: Vec<_> = (0..60).map(|n| serve(&mut regions, &mut device, (n / 20 + 1) * 700_000)).collect();
        if pass == 0 {
            after_the_first = device.next;
        }
        step.into_iter().for_each(|address| assert!(regions.free(address).is_some()));
    }
    assert_eq!(device.next, after_the_first);
}

#[test]
fn a_small_block_leaves_an_idle_region_whole() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let large = serve(&mut regions, &mut device, 20 * MIB);
    regions.free(large);
    serve(&mut regions, &mut device, 128);
    assert_eq!(serve(&mut regions, &mut device, 20 * MIB), large);
}

#[test]
fn blocks_of_many_sizes_that_go_in_any_order_hold_less_than_by_pytorch_for_as_much_time() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    let (mut live, mut bytes, mut peak, mut state) = (Vec::new(), 0, 0, 1_u64);
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let size = 250_000 + draw(7_000_000);
        live.push((0..8).map(|_| serve(&mut regions, &mut device, size)).collect::<Vec<_>>());
        bytes += 8 * size.next_multiple_of(UNIT);
        peak = peak.max(bytes);
        if live.len() as u64 > 10 + draw(10) {
            let gone = live.swap_remove(draw(live.len() as u64) as usize);
            bytes -= gone.iter().filter_map(|&address| regions.free(address)).sum::<u64>();
        }
    }
    let (held, native) = (device.most, regions.native.taken_with(0));
    assert!(held < native - native / 5, "{held} for {peak}, by PyTorch {native}");
    assert!(device.taken <= native + native / 4, "{} taken, by PyTorch {native}", device.taken);
}

#[test]
fn a_step_that_repeats_locks_its_pages_once() {
    let (mut regions, mut device) = (Regions::default(), Addresses::default());
    for _ in 0..5 {
        let step: Vec<_> = (0..400).map(|n| serve(&mut regions, &mut device, [24, 96, 8][n % 3] * MIB)).collect();
        step.into_iter().for_each(|address| assert!(regions.free(address).is_some()));
    }
    assert!(device.taken <= device.most + device.most / 50, "{} for {}", device.taken, device.most);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let mut regions = Regions::default();
    assert_eq!((regions.grow_for(u64::MAX), regions.serve(u64::MAX)), (None, None));
    assert!(!regions.add(UNIT, 0, 1) && !regions.add(17, MIB, 1) && !regions.add(UNIT, u64::MAX, 1));
    assert!(regions.is_empty());
}

proptest! {
    #[test]
    fn no_two_blocks_share_memory_and_each_lies_in_one_region(
        acts in prop::collection::vec((0u8..8, 1u64..3 * MIB), 1..200),
    ) {
        let (mut regions, mut device) = (Regions::default(), Addresses::default());
        let mut live: Vec<(Address, u64)> = Vec::new();
        for (act, size) in acts {
            match act {
                0..5 => {
                    let address = serve(&mut regions, &mut device, size);
                    let end = address + size;
                    prop_assert!(live.iter().all(|&(other, bytes)| end <= other || other + bytes <= address));
                    let (&start, &bytes) = device.held.range(..=address).next_back().unwrap();
                    prop_assert!(end <= start + bytes, "across two regions");
                    live.push((address, size));
                }
                5..7 if !live.is_empty() => {
                    let (address, bytes) = live.swap_remove(size as usize % live.len());
                    prop_assert_eq!(regions.free(address), Some(bytes.next_multiple_of(UNIT)));
                }
                _ => {
                    for (address, bytes) in regions.take_idle() {
                        prop_assert_eq!(device.held.remove(&address), Some(bytes));
                        let end = address + bytes;
                        prop_assert!(live.iter().all(|&(other, size)| end <= other || other + size <= address));
                    }
                }
            }
            prop_assert_eq!(regions.reserved(), device.held.values().sum::<u64>());
            prop_assert_eq!(regions.blocks().count(), live.len());
            for &(address, bytes) in &live {
                prop_assert_eq!(regions.around(address + bytes - 1).map(|range| range.start), Some(address));
            }
        }
        live.iter().for_each(|&(address, _)| assert!(regions.free(address).is_some()));
        regions.take_idle();
        prop_assert_eq!(regions.reserved(), 0);
    }
}
