//! Small blocks that stay among large ones do not keep the large ones' memory.
use crate::common::*;
use stalloc_allocator::Allocator;
use stalloc_device::Counting;
use stalloc_plan::Plan;

const GIB: u64 = 1 << 30;

/// What is held at most over what lives at most, when each large block of a step is followed by a small one that stays until the next.
fn held(small: u64, large: u64) -> f64 {
    let mut checked = over_counting(&Plan::default(), Counting::new(80 * GIB));
    checked.allocator.arena_mut().set_tight(true);
    let mut staying = Vec::new();
    for _ in 0..4 {
        checked.allocator.step_begin();
        let before = std::mem::take(&mut staying);
        let mut passing = Vec::new();
        for _ in 0..2 * GIB / large {
            passing.push(checked.malloc(large));
            staying.push(checked.malloc(small));
        }
        before.into_iter().chain(passing).for_each(|served| checked.free(served));
        let after: Vec<_> = (0..15).map(|_| checked.malloc(128 * MIB)).collect();
        after.into_iter().for_each(|served| checked.free(served));
    }
    let statistics = checked.allocator.statistics();
    statistics.peak_reserved as f64 / statistics.peak_allocated as f64
}

#[test]
fn small_blocks_that_stay_keep_no_pages_of_large_ones() {
    const KIB: u64 = 1 << 10;
    for (small, large) in
        [(512, MIB), (512, 2 * MIB), (512, 8 * MIB), (64 * KIB, 2 * MIB), (256 * KIB, 2 * MIB), (MIB, 4 * MIB)]
    {
        let held = held(small, large);
        assert!(held <= 1.01, "{small} and {large}: {held}");
    }
}
