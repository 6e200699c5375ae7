//! Gaps and conflicts, against every way to place a few buffers.

use proptest::prelude::*;
use stalloc_planner::{Buffer, Error, Flaw, Instance, LifetimeGap, Solution, SolveOptions, check, solve};

/// A solution that claims nothing of a bound.
fn placed(instance: &Instance, offsets: &[u64]) -> Solution {
    let top = |(b, offset): (&Buffer, &u64)| if b.lower < b.upper && b.size > 0 { offset + b.size } else { 0 };
    let peak = instance.buffers.iter().zip(offsets).map(top).max().unwrap_or(0);
    Solution { offsets: offsets.to_vec(), peak, lower_bound: 0, optimal: false, work: 0 }
}

/// The lowest peak of all placements.
fn lowest(instance: &Instance, offsets: &mut Vec<u64>, best: &mut u64) {
    let most: u64 = instance.buffers.iter().map(|b| b.size).sum();
    if offsets.len() == instance.buffers.len() {
        let solution = placed(instance, offsets);
        if solution.peak < *best && check(instance, &solution).is_ok() {
            *best = solution.peak;
        }
        return;
    }
    for offset in 0..most.min(*best) {
        offsets.push(offset);
        lowest(instance, offsets, best);
        offsets.pop();
    }
}

fn instance() -> impl Strategy<Value = Instance> {
    let buffer = (0u64..6, 1u64..6, 1u64..4);
    let gap = (any::<prop::sample::Index>(), 0u64..5, 1u64..4, prop::option::of((0u64..3, 1u64..3)));
    let conflict = (0usize..4, 0usize..4);
    let all =
        (prop::collection::vec(buffer, 2..=4), prop::collection::vec(gap, 0..3), prop::collection::vec(conflict, 0..3));
    (all, any::<bool>()).prop_map(|((shapes, gaps, conflicts), cyclic)| {
        let buffer = |&(lower, length, size): &(u64, u64, u64)| Buffer {
            lower,
            upper: lower + length,
            size,
            alignment: 1,
            fixed: None,
        };
        let buffers: Vec<Buffer> = shapes.iter().map(buffer).collect();
        let mut instance = Instance { period: cyclic.then_some(6), ..Instance::default() };
        for (which, from, length, window) in gaps {
            let k = which.index(buffers.len());
            let b = buffers[k];
            let (lower, upper) = (b.lower + from, (b.lower + from + length).min(b.upper));
            let window = window.map(|(from, length)| (from, from + length)).filter(|&(_, to)| to <= b.size);
            if lower < upper && instance.gaps.iter().all(|gap| gap.buffer != k) {
                instance.gaps.push(LifetimeGap { buffer: k, lower, upper, window });
            }
        }
        instance.conflicts = conflicts.into_iter().filter(|&(a, b)| a != b && a.max(b) < buffers.len()).collect();
        instance.buffers = buffers;
        instance
    })
}

fn options() -> SolveOptions {
    SolveOptions { work_limit: Some(100_000), ..SolveOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plan_around_gaps_and_conflicts_is_right_and_no_better_than_the_best_there_is(instance in instance()) {
        let solution = solve(&instance, &options()).expect("solvable");
        prop_assert_eq!(check(&instance, &solution), Ok(()));
        let mut best = u64::MAX;
        lowest(&instance, &mut Vec::new(), &mut best);
        prop_assert!(solution.lower_bound <= best && best <= solution.peak, "{:?}, {best}", solution);
        prop_assert!(!solution.optimal || solution.peak == best);
    }
}

fn buffer(lower: u64, upper: u64, size: u64) -> Buffer {
    Buffer { lower, upper, size, alignment: 1, fixed: None }
}

#[test]
fn a_gap_makes_room_and_its_window_does_not() {
    let gap = LifetimeGap { buffer: 0, lower: 3, upper: 6, window: None };
    let mut instance =
        Instance { buffers: vec![buffer(0, 9, 8), buffer(3, 6, 8)], gaps: vec![gap], ..Instance::default() };
    assert_eq!(solve(&instance, &options()).map(|s| (s.peak, s.optimal)), Ok((8, true)));
    instance.gaps[0].window = Some((0, 2));
    assert_eq!(solve(&instance, &options()).map(|s| s.peak), Ok(10));
    instance.gaps[0].upper = 10;
    assert_eq!(solve(&instance, &options()), Err(Error::BadGap { index: 0 }));
}

#[test]
fn buffers_in_conflict_share_no_address_at_any_time() {
    let buffers = vec![buffer(0, 2, 4), buffer(5, 6, 4)];
    let mut instance = Instance { buffers, conflicts: vec![(1, 0)], ..Instance::default() };
    let solution = solve(&instance, &options()).expect("solvable");
    assert_eq!((solution.peak, check(&instance, &solution)), (8, Ok(())));
    assert_eq!(check(&instance, &placed(&instance, &[0, 3])), Err(Flaw::Overlap(0, 1)));
    instance.conflicts = vec![(0, 2)];
    assert_eq!(solve(&instance, &options()), Err(Error::BadConflict { index: 0 }));
}

#[test]
fn what_is_all_gap_comes_to_an_end() {
    let buffers = vec![buffer(5, 6, 1), buffer(5, 7, 2)];
    let gap = |buffer: usize, upper| LifetimeGap { buffer, lower: 5, upper, window: None };
    let mut instance = Instance { buffers, gaps: vec![gap(0, 6), gap(1, 7)], ..Instance::default() };
    for (conflicts, peak) in [(vec![], 2), (vec![(0, 1)], 3)] {
        instance.conflicts = conflicts;
        let (tell, told) = std::sync::mpsc::channel();
        let instance = instance.clone();
        // A thread that is left behind if it does not end.
        std::thread::spawn(move || tell.send(solve(&instance, &options()).map(|s| s.peak)));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(60)), Ok(Ok(peak)));
    }
}
