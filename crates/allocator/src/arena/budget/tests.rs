use super::*;

/// What remaps may take before they are dear.
fn credit() -> Duration {
    AHEAD / remap_time()
}

const PEAK: u64 = 1 << 40;

/// One under which remapping was dear once, at the time 0.
fn grown() -> Slack {
    let mut slack = Slack::new();
    slack.spend(credit() + Duration::from_nanos(1));
    assert!(slack.review(Duration::ZERO, false));
    slack
}

#[test]
fn remapping_is_dear_when_it_takes_more_than_was_earned() {
    let mut slack = Slack::new();
    assert!(!slack.owes());
    slack.spend(credit() / 2);
    slack.spend(credit() / 2);
    assert!(slack.owes() && !slack.review(Duration::ZERO, false) && !slack.owes());
    // Nothing is left, but for what time brings.
    let second = Duration::from_secs(1);
    slack.spend(second / remap_time());
    assert!(!slack.review(second, false));
    slack.spend(Duration::from_nanos(1));
    assert!(slack.review(second, false));
}

#[test]
fn the_slack_grows_when_remapping_is_dear_unless_that_can_be_saved() {
    assert_eq!(Slack::new().of(PEAK), PEAK / least_slack());
    assert_eq!(grown().of(PEAK), PEAK / most_slack());
    let mut saved = Slack::new();
    saved.spend(2 * credit());
    assert!(saved.review(Duration::ZERO, true));
    assert_eq!(saved.of(PEAK), PEAK / least_slack());
    let mut tight = grown();
    tight.set_tight(true);
    assert!(tight.is_tight());
    assert_eq!(tight.of(PEAK), PEAK / tight_slack());
}

#[test]
fn it_shrinks_after_quiet_times_of_which_each_growth_asks_for_twice_as_many() {
    let mut slack = grown();
    let mut now = Duration::ZERO;
    for growths in 1..4 {
        for quiet in 0..1 << growths {
            assert_eq!(slack.of(PEAK), PEAK / most_slack(), "{growths} growths, {quiet} quiet times");
            now += SAVED;
            assert!(!slack.review(now, false));
        }
        assert_eq!(slack.of(PEAK), PEAK / least_slack(), "{growths} growths");
        slack.spend(credit() + Duration::from_nanos(1));
        assert!(slack.review(now, false), "what was earned does not add up beyond some time");
    }
}

#[test]
fn where_no_clock_runs_steps_are_counted_and_requests_before_the_first() {
    assert_eq!(Slack::modelled(2, 5), Duration::from_micros(200_050));
    assert_eq!(Slack::modelled(0, 0), Duration::ZERO);
    assert!(Slack::modelled(u64::MAX, u64::MAX) > Duration::from_secs(1 << 30));
}
