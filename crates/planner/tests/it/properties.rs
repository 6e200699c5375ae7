//! What holds for every instance, tried on random small ones against exhaustive search.

use crate::{brute, noisy};
use proptest::prelude::*;
use stalloc_planner::{Buffer, Effort, Error, Instance, SolveOptions, check, solve};

fn buffer(horizon: u64, cyclic: bool) -> impl Strategy<Value = Buffer> {
    let length = if cyclic { horizon } else { 5 };
    (0..horizon, 0..=length, 0u64..12, prop_oneof![4 => Just(1u64), 1 => Just(2), 1 => Just(4)]).prop_map(
        |(lower, length, size, alignment)| Buffer { lower, upper: lower + length, size, alignment, fixed: None },
    )
}

fn instance(n: usize) -> impl Strategy<Value = Instance> {
    let plain = prop::collection::vec(buffer(9, false), 0..n).prop_map(|buffers| Instance {
        buffers,
        period: None,
        ..Instance::default()
    });
    let cyclic = prop::collection::vec(buffer(7, true), 0..n).prop_map(|buffers| Instance {
        buffers,
        period: Some(7),
        ..Instance::default()
    });
    (prop_oneof![plain, cyclic], prop::collection::vec((any::<prop::sample::Index>(), 0u64..6), 0..3)).prop_map(
        |(mut instance, fixed)| {
            for (which, place) in fixed {
                if !instance.buffers.is_empty() {
                    let b = which.get_mut(&mut instance.buffers);
                    b.fixed = Some(place * b.alignment);
                }
            }
            instance
        },
    )
}

/// Enough for small instances.
fn options() -> SolveOptions {
    SolveOptions { work_limit: Some(200_000), ..SolveOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_plan_is_right_and_no_better_than_the_best_there_is(instance in instance(7)) {
        match solve(&instance, &options()) {
            Err(Error::FixedOverlap { .. }) => prop_assert!(brute::best(&instance).is_none()),
            Err(other) => prop_assert!(false, "{other}"),
            Ok(solution) => {
                prop_assert_eq!(check(&instance, &solution), Ok(()));
                let best = brute::best(&instance).expect("solve found one");
                prop_assert!(solution.lower_bound <= best, "bound {} above the best {best}", solution.lower_bound);
                prop_assert!(solution.peak >= best);
                if solution.optimal {
                    prop_assert_eq!(solution.peak, best);
                }
            }
        }
    }

    #[test]
    fn quick_plans_are_right_too(instance in instance(40)) {
        let options = SolveOptions { effort: Effort::Quick, ..SolveOptions::default() };
        if let Ok(solution) = solve(&instance, &options) {
            prop_assert_eq!(check(&instance, &solution), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_seed_and_threads_give_the_same_plan(instance in instance(60), threads in 1usize..4, seed: u64) {
        let options = SolveOptions { work_limit: Some(200_000), threads, seed, ..SolveOptions::default() };
        prop_assert_eq!(solve(&instance, &options), solve(&instance, &options));
    }

    #[test]
    fn a_longer_limit_never_gives_a_worse_plan(instance in instance(60), threads in 1usize..4) {
        never_worse(&instance, threads, [0, 50_000, 200_000, 500_000])?;
    }
}

#[test]
fn a_longer_limit_never_gives_a_worse_plan_of_some_hundred_buffers() -> Result<(), TestCaseError> {
    for name in ["blurred:300:1", "zero_bubble:300:5", "tiling:300:3"] {
        let known = noisy::by_name(name).expect("a family");
        never_worse(&known.instance, 1, [1_000_000, 1_500_000, 2_000_000, 3_000_000])?;
    }
    Ok(())
}

fn never_worse(instance: &Instance, threads: usize, works: [u64; 4]) -> Result<(), TestCaseError> {
    let mut peak = u64::MAX;
    for work in works {
        let options = SolveOptions { work_limit: Some(work), threads, ..SolveOptions::default() };
        if let Ok(solution) = solve(instance, &options) {
            prop_assert!(solution.peak <= peak, "{} with {work}, {peak} with less", solution.peak);
            peak = solution.peak;
        }
    }
    Ok(())
}
