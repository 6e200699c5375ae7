use super::*;

#[test]
fn where_no_clock_runs_steps_are_counted_and_requests_before_the_first() {
    let mut ledger = Ledger::new(0, 0);
    assert_eq!(ledger.modelled(), Duration::ZERO);
    for _ in 0..5 {
        ledger.request(None);
    }
    assert_eq!(ledger.modelled(), Duration::from_micros(50));
    ledger.step_begin();
    ledger.request(Some(ServedBy::BestFit));
    ledger.step_begin();
    assert_eq!(
        ledger.modelled(),
        Duration::from_micros(200_050),
        "what is asked for in a step takes no time of its own"
    );
    ledger.statistics.steps = u64::MAX;
    assert!(ledger.modelled() > Duration::from_secs(1 << 30));
}

#[test]
fn peaks_count_blocks_and_pools_at_once() {
    let mut ledger = Ledger::new(0, 0);
    ledger.alloc(0, Key::new(4, 0));
    ledger.note_pools(2 * GRANULE);
    assert_eq!(ledger.statistics().peak_allocated, 6 * GRANULE);
    ledger.given_back(4 * GRANULE);
    ledger.alloc(8, Key::new(3, 0));
    let counted = *ledger.statistics();
    assert_eq!((counted.allocated, counted.peak_allocated), (3 * GRANULE, 6 * GRANULE));
    assert_eq!((ledger.most_lately(), ledger.most_lately()), (4 * GRANULE, 3 * GRANULE), "without pools");
}

#[test]
fn remaps_count_from_the_second_step_after_a_plan_was_adopted() {
    let mut ledger = Ledger::new(0, 0);
    assert!(ledger.is_settled());
    ledger.step_begin();
    ledger.adopt(7);
    assert_eq!((ledger.statistics().arena, ledger.statistics().plans), (7 * GRANULE, 1));
    for settled in [false, false, true] {
        assert_eq!(ledger.is_settled(), settled);
        ledger.step_begin();
    }
}

#[test]
fn of_a_job_that_starts_with_a_plan_remaps_count_once_it_has_followed_two_steps_that_repeat() {
    let mut ledger = Ledger::new(7 * GRANULE, 0);
    for settled in [true, false, false, false, true] {
        assert_eq!(ledger.is_settled(), settled, "step {}", ledger.statistics().steps);
        ledger.step_begin();
    }
}

#[test]
fn only_the_first_departure_is_kept() {
    let mut ledger = Ledger::new(0, 0);
    ledger.request(None);
    ledger.departed(None, Key::new(2, 0), 9);
    ledger.departed(None, Key::new(3, 0), 0);
    let departure = ledger.statistics().departure.expect("it departed");
    assert_eq!((departure.request, departure.expected, departure.seen), (1, None, (2 * GRANULE, 9)));
}

#[test]
fn what_was_said_of_pytorchs_allocators_is_not_taken_from_who_is_behind() {
    let mut ledger = Ledger::new(0, 0);
    ledger.rivals_hold(1 << 30, 0);
    assert_eq!(ledger.rivals(), 1 << 30);
    ledger.give_back();
    ledger.rivals_hold(1 << 30, 0);
    assert_eq!(ledger.rivals(), 0, "it had not heard of that");
    ledger.rivals_hold(1 << 29, 1);
    assert_eq!(ledger.rivals(), 1 << 29);
}
