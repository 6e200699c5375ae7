use super::*;

const PEAK: u64 = 1 << 30;
/// A device of 80 GiB: 320 MiB of it are not noticed, ten times what the least slack is.
const DEVICE: u64 = 80 << 30;
const UNNOTICED: u64 = DEVICE / 256;

/// What remaps may take before they are dear.
fn credit() -> Duration {
    AHEAD / remap_time()
}

fn budget() -> SlackBudget {
    let mut budget = SlackBudget::new();
    budget.set_device(DEVICE);
    budget
}

/// Has remaps take more than there is credit for, and looks.
fn be_dear(budget: &mut SlackBudget, now: Duration, rivals: u64) -> Expense {
    budget.spend(2 * SAVED / remap_time() + Duration::from_nanos(1), 0);
    budget.review(now, PEAK, rivals)
}

#[test]
fn remapping_is_dear_when_it_takes_more_than_was_earned() {
    let mut budget = budget();
    assert!(!budget.owes());
    budget.spend(credit() / 2, 0);
    budget.spend(credit() / 2, 0);
    assert!(budget.owes() && budget.review(Duration::ZERO, PEAK, 0) == Expense::Cheap && !budget.owes());
    // Nothing is left, but for what time brings.
    let second = Duration::from_secs(1);
    budget.spend(second / remap_time(), 0);
    assert_eq!(budget.review(second, PEAK, 0), Expense::Cheap);
    budget.spend(Duration::from_nanos(1), 0);
    assert_eq!(budget.review(second, PEAK, 0), Expense::Granted);
}

#[test]
fn a_job_gets_what_nobody_notices_and_then_what_pytorch_would_hold() {
    let (mut budget, rivals) = (budget(), 4 * PEAK);
    let least = PEAK / least_slack();
    assert_eq!(budget.of(PEAK, rivals), least, "as long as remapping is not dear");
    assert_eq!(be_dear(&mut budget, Duration::ZERO, rivals), Expense::Granted);
    assert_eq!(budget.of(PEAK, rivals), least + UNNOTICED);
    assert_eq!(budget.of(PEAK, 0), UNNOTICED, "no more where PyTorch would hold less");
    for _ in 0..8 {
        be_dear(&mut budget, Duration::ZERO, rivals);
    }
    assert_eq!(budget.of(PEAK, rivals), rivals - PEAK);
    assert_eq!(be_dear(&mut budget, Duration::ZERO, rivals), Expense::Dear, "there is no more to be had");
}

#[test]
fn no_more_than_the_least_slack_is_granted_where_that_is_more_than_anything_else() {
    let mut budget = budget();
    let peak = DEVICE / 4;
    budget.spend(SAVED, 0);
    assert_eq!(budget.review(Duration::ZERO, peak, peak), Expense::Dear);
    assert_eq!(budget.of(peak, peak), peak / least_slack());
}

#[test]
fn a_tight_budget_does_not_grow() {
    let mut budget = budget();
    budget.set_tight(true);
    be_dear(&mut budget, Duration::ZERO, 4 * PEAK);
    assert!(budget.is_tight());
    assert_eq!(budget.of(PEAK, 4 * PEAK), PEAK / tight_slack());
}

#[test]
fn what_was_granted_is_halved_after_a_quiet_time_that_each_grant_doubles() {
    let (mut budget, rivals) = (budget(), 2 * PEAK);
    let mut now = Duration::ZERO;
    for grants in 1..4 {
        assert_eq!(be_dear(&mut budget, now, rivals), Expense::Granted);
        let before = budget.of(PEAK, rivals);
        for quiet in 0..1 << grants {
            // Looked at often, or seldom.
            assert_eq!(budget.of(PEAK, rivals), before, "{grants} grants, {quiet} quiet times");
            now += SAVED;
            assert_eq!(budget.review(now, PEAK, rivals), Expense::Cheap);
        }
        let least = budget.least(PEAK);
        assert_eq!(budget.of(PEAK, rivals) - least, (before - least) / 2, "{grants} grants");
        // Until nothing of it is left.
        for _ in 0..1 << 10 {
            now += SAVED;
            budget.review(now, PEAK, rivals);
        }
        assert_eq!(budget.of(PEAK, rivals), least);
    }
}

#[test]
fn a_start_in_which_libraries_load_earns_nothing_for_the_steps() {
    let (mut budget, rivals) = (budget(), 2 * PEAK);
    let mut now = Duration::from_secs(8);
    let mut step = |budget: &mut SlackBudget, millis: u64| {
        now += Duration::from_millis(millis);
        budget.begin_step(now);
        budget.review(now, PEAK, rivals)
    };
    for millis in [0, 5000, 400, 20, 5, 5, 3000, 5] {
        assert_eq!(step(&mut budget, millis), Expense::Cheap);
    }
    // What the start gave, the steps of 400 and 20 ms, and five times 5 ms.
    budget.spend(credit() + Duration::from_millis(446) / remap_time(), 0);
    assert_eq!(step(&mut budget, 5), Expense::Granted);
}

#[test]
fn as_much_is_granted_at_once_as_was_remapped_for_want_of_it() {
    let (mut budget, rivals) = (budget(), 4 * PEAK);
    let least = PEAK / least_slack();
    budget.spend(SAVED, PEAK);
    assert_eq!(budget.review(Duration::ZERO, PEAK, rivals), Expense::Granted);
    assert_eq!(budget.of(PEAK, rivals), least + PEAK);
    budget.spend(SAVED, PEAK / 8);
    assert_eq!(budget.review(Duration::ZERO, PEAK, rivals), Expense::Granted);
    assert_eq!(budget.of(PEAK, rivals), least + 2 * PEAK, "or twice as much as before");
}
