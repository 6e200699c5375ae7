use super::*;
use stalloc_planner::Buffer;

/// Three arcs that overlap in pairs, two at a time: they need more than the load, which takes a search to prove.
fn hard() -> Instance {
    let arc = |lower| Buffer { lower, upper: lower + 4, size: 1, alignment: 1, fixed: None };
    Instance { buffers: vec![arc(0), arc(2), arc(4)], period: Some(6), ..Instance::default() }
}

#[test]
fn what_is_spent_on_one_instance_is_not_spent_again_on_the_next() {
    // More than the first plan takes, less than the search.
    let options = SolveOptions { work_limit: Some(200), ..SolveOptions::default() };
    let mut budget = Work::new(&options);
    let first = budget.solve(&hard(), 0).expect("solvable");
    let second = budget.solve(&hard(), 0).expect("solvable");
    assert!(second.work < first.work, "{} {}", second.work, first.work);
    assert_eq!((second.peak, second.optimal), (3, false));
}

#[test]
fn nothing_is_spent_to_go_below_what_is_enough() {
    let work = |limit, enough| {
        let mut budget = Work::new(&SolveOptions { work_limit: limit, ..SolveOptions::default() });
        budget.solve(&hard(), enough).expect("solvable").work
    };
    assert_eq!(work(None, 3), work(Some(0), 0));
    assert!(work(None, 0) > work(Some(0), 0));
}
