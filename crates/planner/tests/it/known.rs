//! Instances made from a solution: it is one, it is as low as can be, and where they are small the planner finds it or
//! one that is as good.

use crate::{generate, nested};
use stalloc_planner::{Buffer, Solution, SolveOptions, check, solve};

const NAMES: [&str; 10] = [
    "cut:1",
    "cut:40",
    "cut:300",
    "wheels:60",
    "slack5:100",
    "slack15:60",
    "slack15:150",
    "walls:60",
    "chain:50",
    "pools:60",
];

/// The largest load at the start of a buffer.
fn load(buffers: &[Buffer]) -> u64 {
    let at = |t: u64| buffers.iter().filter(|b| b.lower <= t && t < b.upper).map(|b| b.size).sum();
    buffers.iter().map(|b| at(b.lower)).max().unwrap_or(0)
}

#[test]
fn what_an_instance_was_made_from_is_a_solution_as_low_as_the_load() {
    for name in NAMES {
        for seed in 0..5 {
            let known = generate::by_name(&format!("{name}:{seed}")).expect("a name");
            let optimum = known.optimum;
            let solution =
                Solution { offsets: known.offsets, peak: optimum, lower_bound: optimum, optimal: true, work: 0 };
            assert_eq!(check(&known.instance, &solution), Ok(()), "{name} {seed}");
            assert_eq!(load(&known.instance.buffers), optimum, "{name} {seed}");
        }
    }
}

#[test]
fn so_many_buffers_are_made_as_asked_for_and_no_name_means_nothing() {
    let buffers = |name: &str| generate::by_name(name).map(|known| known.instance.buffers.len());
    assert_eq!(buffers("cut:1000"), Some(1000));
    assert_eq!(buffers("slack15:1000"), Some(850));
    assert_eq!(buffers("chain:7:3"), Some(7));
    assert!(buffers("wheels:100").is_some_and(|n| (100..104).contains(&n)));
    assert!(buffers("pools:500").is_some_and(|n| n >= 500));
    assert!(["cut", "cut:", "slack:5", "what:5"].iter().all(|name| buffers(name).is_none()));
}

#[test]
fn small_ones_are_solved_at_the_known_optimum() {
    let options = SolveOptions { work_limit: Some(50_000_000), ..SolveOptions::default() };
    for name in NAMES {
        let known = generate::by_name(name).expect("a name");
        let solution = solve(&known.instance, &options).expect("solvable");
        assert_eq!(check(&known.instance, &solution), Ok(()));
        assert_eq!((solution.peak, solution.optimal), (known.optimum, true), "{name}");
    }
}

#[test]
fn training_of_micro_batches_that_differ_is_at_the_load_because_stretches_come_first() {
    for name in ["micro_batches:2000:2", "micro_batches:2000:3", "micro_batches:3000:6"] {
        let instance = nested::by_name(name).expect("a name");
        let solution = solve(&instance, &SolveOptions { work_limit: Some(20_000_000), ..SolveOptions::default() })
            .expect("solvable");
        assert_eq!((check(&instance, &solution), solution.optimal), (Ok(()), true), "{name}");
    }
}
