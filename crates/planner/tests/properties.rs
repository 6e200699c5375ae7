//! What holds for every instance, tried on random small ones against exhaustive search.

use proptest::prelude::*;
use stalloc_planner::{Buffer, Error, Instance, Options, check, solve};

mod brute;

fn buffer(horizon: u64, cyclic: bool) -> impl Strategy<Value = Buffer> {
    let length = if cyclic { horizon } else { 5 };
    (0..horizon, 0..=length, 0u64..12, prop_oneof![4 => Just(1u64), 1 => Just(2), 1 => Just(4)]).prop_map(
        |(lower, length, size, alignment)| Buffer { lower, upper: lower + length, size, alignment, fixed: None },
    )
}

fn instance(n: usize) -> impl Strategy<Value = Instance> {
    let plain = prop::collection::vec(buffer(9, false), 0..n).prop_map(|buffers| Instance { buffers, period: None });
    let cyclic = prop::collection::vec(buffer(7, true), 0..n).prop_map(|buffers| Instance { buffers, period: Some(7) });
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_plan_is_right_and_no_better_than_the_best_there_is(instance in instance(7)) {
        match solve(&instance, &Options::default()) {
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
}
