use super::*;

/// An arena of which only what it says is of interest.
#[derive(Default)]
struct Said {
    now: Statistics,
    next: u32,
}

impl Said {
    /// A step of requests of these sizes, granules, so many of which were at planned offsets.
    fn step(&mut self, learning: &mut Learning, sizes: &[u32], planned: u64) -> Option<Proposal> {
        let journal = learning.journal();
        journal.push(JournalEvent::StepBegin);
        for (start, &granules) in (0..).step_by(1000).zip(sizes) {
            journal.extend([JournalEvent::Alloc { start, granules, stream: 0 }, JournalEvent::Free { start }]);
        }
        self.now.requests += sizes.len() as u64;
        self.now.planned += planned;
        self.next += 1;
        learning.hear(true);
        learning.think(&self.now)
    }
}

const A: [u32; 10] = [5; 10];

/// Steps that repeat, until a plan for them is proposed.
fn with_proposal(said: &mut Said, learning: &mut Learning) -> Proposal {
    (0..20).find_map(|_| said.step(learning, &A, 0)).expect("a proposal")
}

#[test]
fn steps_that_repeat_are_planned_once() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    assert!(with_proposal(&mut said, &mut learning).is_plan());
    learning.answered(true, true);
    assert!((0..500).all(|_| said.step(&mut learning, &A, 10).is_none()));
}

#[test]
fn a_plan_is_left_where_steps_vary_and_comes_back_where_they_repeat_again() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    with_proposal(&mut said, &mut learning);
    learning.answered(true, true);
    let left = (0..20u32).find_map(|step| said.step(&mut learning, &[step + 7; 10], 0)).expect("a proposal");
    assert!(!left.is_plan());
    learning.answered(false, true);
    assert!(with_proposal(&mut said, &mut learning).is_plan());
}

#[test]
fn a_plan_that_serves_most_requests_stays_though_steps_differ_a_little() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    with_proposal(&mut said, &mut learning);
    learning.answered(true, true);
    for step in 0..50u32 {
        let mut sizes = A.to_vec();
        sizes.push(step + 7);
        assert!(said.step(&mut learning, &sizes, 10).is_none());
    }
}

#[test]
fn a_plan_is_not_judged_by_its_first_step_in_which_what_lived_before_is_at_its_addresses() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    with_proposal(&mut said, &mut learning);
    learning.answered(true, true);
    for (step, planned) in (0u32..).zip([0, 3, 10, 10, 10, 10]) {
        let mut sizes = A.to_vec();
        sizes.push(step + 7);
        assert!(said.step(&mut learning, &sizes, planned).is_none(), "{step}");
    }
}

#[test]
fn a_plan_is_judged_soon_after_a_part_of_the_journal_is_lost() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    (0..200).for_each(|step| drop(said.step(&mut learning, &[step + 7; 10], 0)));
    with_proposal(&mut said, &mut learning);
    learning.answered(true, true);
    learning.hear(false);
    let left = (0..20u32).find_map(|step| said.step(&mut learning, &[step + 7; 10], 0)).expect("a proposal");
    assert!(!left.is_plan());
}

#[test]
fn a_plan_that_found_no_memory_is_proposed_again_later() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    with_proposal(&mut said, &mut learning);
    let tighter = learning.answered(true, false).expect("another plan");
    assert!(tighter.is_plan());
    assert!(learning.answered(true, false).is_none());
    assert!(with_proposal(&mut said, &mut learning).is_plan());
}

#[test]
fn a_plan_that_is_never_followed_is_made_more_and_more_rarely() {
    let (mut said, mut learning) = (Said::default(), Learning::default());
    let made = (0..2000).filter(|_| {
        let is_made = said.step(&mut learning, &A, 0).is_some();
        if is_made {
            assert!(learning.answered(true, false).is_some() && learning.answered(true, false).is_none());
        }
        is_made
    });
    assert!((5..15).contains(&made.count()));
}
