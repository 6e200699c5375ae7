//! How much device memory the arena holds: what blocks needed at most, and a slack that driver time decides.
use crate::common::*;
use stalloc_allocator::{Allocator, Arena, Served};
use stalloc_device::{Counting, Device, Shared};
use stalloc_plan::Plan;

const GIB: u64 = 1 << 30;

fn open(bytes: u64) -> Checked<Shared<Counting>> {
    over_counting(&Plan::default(), Counting::new(bytes))
}

/// A step whose sizes are others each time: blocks of which half outlive the next ones.
fn varying_step(checked: &mut Checked<Shared<Counting>>, seed: u64) {
    checked.allocator.step_begin();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut live: Vec<Served> = Vec::new();
    for _ in 0..60 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        live.push(checked.malloc((state >> 33) % (600 * MIB) + 1));
        if live.len() > 12 {
            let served = live.swap_remove((state >> 33) as usize % live.len());
            checked.free(served);
        }
    }
    live.into_iter().for_each(|served| checked.free(served));
}

/// Held at most, over what lived at most.
fn held(checked: &Checked<Shared<Counting>>) -> f64 {
    let statistics = checked.allocator.statistics();
    statistics.peak_reserved as f64 / statistics.peak_allocated as f64
}

#[test]
fn on_a_device_with_room_little_more_is_held_than_blocks_needed() {
    let mut checked = open(80 * GIB);
    for seed in 0..40 {
        varying_step(&mut checked, seed);
        assert!(held(&checked) < 1.11, "{} after step {seed}", held(&checked));
    }
    let remaps = checked.allocator.statistics().remaps;
    assert!(remaps > 0, "this program cannot do without");
}

#[test]
fn streams_have_memory_of_their_own_where_nobody_notices_it_and_not_on_a_device_without_limit() {
    let held = |bytes| {
        let mut arena = Arena::new(Counting::new(bytes), &Plan::default()).unwrap();
        for stream in 0..4 {
            let blocks = [(); 20].map(|()| arena.serve(8 * MIB, stream).unwrap().address);
            blocks.into_iter().for_each(|address| _ = arena.free(address).unwrap());
        }
        arena.reserved()
    };
    let (card, simulated) = (held(80 * GIB), held(u64::MAX));
    assert!(simulated < 2 * 160 * MIB && card > 3 * simulated / 2, "{card} {simulated}");
}

#[test]
fn tight_holds_less_and_takes_the_driver_longer() {
    let [loose, tight] = [false, true].map(|is_tight| {
        let mut checked = open(80 * GIB);
        checked.allocator.arena_mut().set_tight(is_tight);
        (0..20).for_each(|seed| varying_step(&mut checked, seed));
        (held(&checked), checked.allocator.statistics().driver.nanoseconds)
    });
    assert!(tight.0 < loose.0 && tight.1 > loose.1, "{tight:?} {loose:?}");
    assert!(tight.0 < 1.02, "{tight:?}");
}

#[test]
fn the_slack_grows_only_where_remapping_takes_long() {
    // The same program, with many steps and with few for the same remaps: time passes by steps here.
    let held_with = |idle: u64| {
        let mut checked = open(80 * GIB);
        for seed in 0..60 {
            varying_step(&mut checked, seed);
            (0..idle).for_each(|_| checked.allocator.step_begin());
        }
        held(&checked)
    };
    let (busy, idle) = (held_with(0), held_with(2000));
    assert!(idle <= 1.055 && busy > idle, "busy {busy}, idle {idle}");
}

#[test]
fn the_slack_leaves_other_libraries_their_part_of_the_device() {
    let mut checked = open(2 * GIB);
    let blocks: Vec<Served> = (0..24).map(|_| checked.malloc(81 * MIB)).collect();
    for served in blocks.iter().step_by(2) {
        checked.free(*served);
    }
    // Between the blocks that are left there are 81 MiB each: others are needed.
    let _more: Vec<Served> = (0..10).map(|_| checked.malloc(83 * MIB)).collect();
    let free = checked.allocator.arena().statistics().reserved;
    assert!(free <= 2 * GIB - 2 * GIB / 128, "{free}");
}

#[test]
fn where_nothing_is_left_to_remap_more_memory_is_taken() {
    let mut checked = open(8 * GIB);
    checked.allocator.arena_mut().set_tight(true);
    // On each page one small block stays.
    let mut kept = Vec::new();
    for _ in 0..100 {
        let large = checked.malloc(2 * MIB - 512);
        kept.push(checked.malloc(70 * 1024));
        checked.free(large);
    }
    let large = checked.malloc(GIB);
    assert_eq!(checked.allocator.statistics().fallback, 0);
    checked.free(large);
}

#[test]
fn a_cache_that_grows_in_every_step_is_held_once_and_a_little_more() {
    let mut checked = open(80 * GIB);
    let mut caches: Vec<Served> = (0..8).map(|_| checked.malloc(16 * MIB)).collect();
    // Time passes by steps here: the program has run for a second before.
    (0..10).for_each(|_| checked.allocator.step_begin());
    for step in 1..60u64 {
        checked.allocator.step_begin();
        for cache in &mut caches {
            let larger = checked.malloc(16 * MIB + step * MIB);
            checked.free(std::mem::replace(cache, larger));
        }
    }
    assert!(held(&checked) < 1.11, "{}", held(&checked));
    let work = checked.allocator.statistics().driver;
    assert!(work.calls > 0 && work.nanoseconds > 0);
    assert_eq!(work, checked.allocator.arena().statistics().driver);
}

#[test]
fn what_is_counted_of_the_driver_is_what_the_device_was_asked_for() {
    let device = Shared::new(Counting::new(GIB));
    let mut checked = over(&Plan::default(), device.clone());
    let served = checked.malloc(9 * MIB);
    checked.free(served);
    checked.allocator.empty_cache().unwrap();
    assert_eq!(checked.allocator.statistics().driver, device.driver_work());
    assert!(device.driver_work().calls >= 4);
}

#[test]
fn no_page_is_mapped_for_what_the_device_has_no_memory_for() {
    let device = Shared::new(Counting::new(2 * GIB));
    let mut arena = Arena::new(device.clone(), &Plan::default()).unwrap();
    let kept = arena.serve(100 * MIB, 0).unwrap();
    let held = arena.reserved();
    assert!(arena.serve(3 * GIB, 0).is_none());
    assert_eq!(arena.statistics().peak_reserved, held, "more than there is");
    let others = device.clone().alloc(GIB).unwrap();
    arena.step_begin();
    assert!(arena.serve(3 * GIB / 2, 0).is_none());
    assert_eq!(arena.statistics().peak_reserved, held, "more than others leave");
    device.clone().free(others).unwrap();
    assert!(arena.serve(3 * GIB / 2, 0).is_some(), "what they gave back in the same step is seen");
    arena.free(kept.address).unwrap();
}

#[test]
fn a_block_that_stays_does_not_leave_a_rest_that_no_large_block_can_use() {
    // Each step keeps 8 MiB and 2 MiB; 3 MiB and 8 MiB come and go, so that 2 MiB find gaps of 3 MiB.
    let mut checked = open(80 * GIB);
    let mut image = None;
    for _ in 0..200 {
        checked.allocator.step_begin();
        let new = checked.malloc(3 * MIB);
        image.replace(new).into_iter().for_each(|old| checked.free(old));
        let _label = checked.malloc(2 * MIB);
        let (first, second) = (checked.malloc(8 * MIB), checked.malloc(8 * MIB));
        checked.free(first);
        let _kept = checked.malloc(8 * MIB);
        checked.free(second);
    }
    let statistics = checked.allocator.statistics();
    let live = statistics.allocated;
    assert!(statistics.reserved <= live + live / 25, "{} for {live}", statistics.reserved);
}
