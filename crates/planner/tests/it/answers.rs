//! What a solution claims, and what becomes of invalid instances.

use stalloc_planner::{Buffer, Error, Flaw, Instance, SolveOptions, check, solve};

fn buffer(lower: u64, upper: u64, size: u64) -> Buffer {
    Buffer { lower, upper, size, alignment: 1, fixed: None }
}

fn line(buffers: Vec<Buffer>) -> Instance {
    Instance { buffers, period: None, ..Instance::default() }
}

fn options() -> SolveOptions {
    SolveOptions { work_limit: Some(2_000_000), ..SolveOptions::default() }
}

#[test]
fn a_claim_that_is_tampered_with_is_caught() {
    let instance = line(vec![buffer(0, 4, 3), buffer(2, 6, 5), buffer(5, 9, 3)]);
    let good = solve(&instance, &options()).expect("solvable");
    assert!(good.optimal);
    assert_eq!(check(&instance, &good), Ok(()));
    let mut lower = good.clone();
    lower.peak -= 1;
    assert_eq!(check(&instance, &lower), Err(Flaw::Peak { claimed: 7, real: 8 }));
    let mut beyond = good.clone();
    beyond.lower_bound += 1;
    assert_eq!(check(&instance, &beyond), Err(Flaw::Bound { claimed: 9, peak: 8 }));
    let mut unproven = good.clone();
    unproven.lower_bound -= 1;
    assert_eq!(check(&instance, &unproven), Err(Flaw::Unproven { bound: 7, peak: 8 }));
    let mut moved = good.clone();
    moved.offsets[0] = moved.offsets[1];
    assert_eq!(check(&instance, &moved), Err(Flaw::Overlap(0, 1)));
    let mut short = good;
    short.offsets.pop();
    assert!(matches!(check(&instance, &short), Err(Flaw::Count { .. })));
}

#[test]
fn three_arcs_that_overlap_in_pairs_are_proven_to_need_more_than_the_load() {
    // At most two live at any time, but each meets both others.
    let arcs = vec![buffer(0, 4, 1), buffer(2, 6, 1), buffer(4, 8, 1)];
    let instance = Instance { buffers: arcs, period: Some(6), ..Instance::default() };
    let solution = solve(&instance, &options()).expect("solvable");
    assert_eq!((solution.peak, solution.lower_bound, solution.optimal), (3, 3, true));
}

#[test]
fn a_buffer_that_has_no_neighbours_is_placed_where_something_fixed_is_the_peak() {
    let fixed = Buffer { fixed: Some(1), ..buffer(6, 8, 1) };
    let instance = Instance { buffers: vec![buffer(0, 1, 3), fixed], period: Some(7), ..Instance::default() };
    let solution = solve(&instance, &options()).expect("solvable");
    assert_eq!((solution.peak, check(&instance, &solution)), (5, Ok(())));
}

#[test]
fn instances_that_make_no_sense_are_refused_by_name() {
    assert_eq!(
        solve(&line(vec![buffer(5, 4, 1)]), &options()),
        Err(Error::EndsBeforeStart { index: 0, lower: 5, upper: 4 })
    );
    let outside = Instance { buffers: vec![buffer(7, 8, 1)], period: Some(7), ..Instance::default() };
    assert_eq!(solve(&outside, &options()), Err(Error::OutsideCycle { index: 0, lower: 7, period: 7 }));
    assert_eq!(
        solve(&Instance { buffers: vec![], period: Some(0), ..Instance::default() }, &options()),
        Err(Error::ZeroPeriod)
    );
    let unaligned = Buffer { alignment: 0, ..buffer(0, 1, 1) };
    assert_eq!(solve(&line(vec![unaligned]), &options()), Err(Error::ZeroAlignment { index: 0 }));
}

#[test]
fn what_does_not_fit_in_64_bits_is_an_error_and_what_does_is_planned() {
    let half = 1 << 63;
    let apart = line(vec![buffer(0, 1, half), buffer(1, 2, half), buffer(2, 3, u64::MAX)]);
    assert_eq!(solve(&apart, &options()).map(|s| s.peak), Ok(u64::MAX));
    let together = line(vec![buffer(0, 2, half), buffer(1, 2, half)]);
    assert_eq!(solve(&together, &options()), Err(Error::TooLarge));
    let ring = Instance {
        buffers: vec![buffer(0, u64::MAX, half), buffer(3, 4, half)],
        period: Some(10),
        ..Instance::default()
    };
    assert_eq!(solve(&ring, &options()), Err(Error::TooLarge));
    let far = line(vec![Buffer { fixed: Some(u64::MAX), ..buffer(0, 1, 2) }]);
    assert_eq!(solve(&far, &options()), Err(Error::TooLarge));
}

#[test]
fn what_never_lives_or_has_no_size_is_in_nobodys_way() {
    let instance = line(vec![buffer(3, 3, 10), buffer(0, 9, 0), buffer(0, 9, 4)]);
    let solution = solve(&instance, &options()).expect("solvable");
    assert_eq!((solution.peak, solution.optimal), (4, true));
    assert_eq!(solve(&line(vec![]), &options()).map(|s| s.peak), Ok(0));
}

#[test]
fn many_alike_and_nested_lifetimes_reach_the_bound() {
    let alike = line((0..20_000).map(|_| buffer(1, 5, 7)).collect());
    assert_eq!(solve(&alike, &options()).map(|s| (s.peak, s.optimal)), Ok((140_000, true)));
    let nested = line((0..20_000).map(|k| buffer(k, 40_000 - k, 1 + k % 5)).collect());
    assert!(solve(&nested, &options()).expect("solvable").optimal);
}

#[test]
fn nothing_is_spent_to_go_below_what_is_enough_and_no_proof_is_claimed_for_it() {
    let arcs = vec![buffer(0, 4, 2), buffer(2, 6, 2), buffer(4, 8, 2)];
    let instance = Instance { buffers: arcs, period: Some(6), ..Instance::default() };
    let enough = SolveOptions { enough: 7, ..options() };
    let solution = solve(&instance, &enough).expect("solvable");
    let first = solve(&instance, &SolveOptions { work_limit: Some(0), ..options() }).expect("solvable");
    assert_eq!((solution.peak, solution.lower_bound, solution.optimal, solution.work), (6, 4, false, first.work));
    let proven = solve(&instance, &SolveOptions { enough: 5, ..options() }).expect("solvable");
    assert_eq!((proven.peak, proven.optimal), (6, true));
}

#[test]
fn what_is_left_after_a_solution_is_less_by_its_work() {
    let arcs = vec![buffer(0, 4, 1), buffer(2, 6, 1), buffer(4, 8, 1)];
    let solution =
        solve(&Instance { buffers: arcs, period: Some(6), ..Instance::default() }, &options()).expect("solvable");
    assert!(solution.work > 0);
    let left = options().after(&solution);
    assert_eq!(left.work_limit, options().work_limit.map(|limit| limit - solution.work));
    assert!(left.time_limit <= options().time_limit);
}
