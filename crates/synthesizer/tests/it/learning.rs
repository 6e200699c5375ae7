//! The learner as a running job uses it.

use std::collections::BTreeMap;

use crate::common::Training;
use proptest::prelude::*;
use stalloc_plan::{Entry, Plan};
use stalloc_planner::Effort;
use stalloc_synthesizer::{Around, Learner, SynthesisOptions, plan};
use stalloc_trace::{Event, Mark, Trace};

/// A plan of what repeats now, with nothing in the arena.
fn plan_now(learner: &mut Learner) -> Plan {
    learner.draft().plan(|_| None, Around::Between).expect("a plan").plan
}

/// Feeds a trace as a running job would, and does something at each step's end.
fn hear(learner: &mut Learner, trace: &Trace, mut after_step: impl FnMut(&mut Learner)) {
    let mut steps = 0;
    for event in &trace.events {
        match event {
            Event::Mark(Mark::StepBegin) => learner.step_begin(),
            Event::Alloc(id) => {
                learner.alloc(id.0.into(), trace.request(*id).size, trace.request(*id).stream.0);
                if learner.steps() > steps {
                    steps = learner.steps();
                    after_step(learner);
                }
            }
            Event::FreeCompleted(id) => learner.free(id.0.into()),
            _ => {}
        }
    }
}

fn quick() -> SynthesisOptions {
    let mut options = SynthesisOptions::default();
    options.planner.effort = Effort::Quick;
    options
}

/// Where an arena that takes the lowest free address puts what a trace asks for.
fn lowest(trace: &Trace) -> Vec<u64> {
    let mut offsets = vec![0; trace.requests.len()];
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for event in &trace.events {
        match event {
            Event::Alloc(id) => {
                let size = trace.request(*id).rounded();
                let mut at = 0;
                for (&start, &end) in &live {
                    if start - at >= size {
                        break;
                    }
                    at = end;
                }
                live.insert(at, at + size);
                offsets[id.index()] = at;
            }
            Event::FreeCompleted(id) => {
                live.remove(&offsets[id.index()]);
            }
            _ => {}
        }
    }
    offsets
}

#[test]
fn what_a_running_job_learned_makes_the_same_plan_as_its_recording() {
    for training in [
        Training { marks: true, keep_gradients: true, ..Training::default() },
        Training { marks: true, keep_output: true, lengths: vec![64, 32], steps: 9, ..Training::default() },
    ] {
        let mut trace = training.trace();
        // A running job hears of beginnings alone.
        trace.events.retain(|event| !matches!(event, Event::Mark(Mark::StepEnd)));
        for (event, time) in trace.events.iter().zip(0..) {
            match event {
                Event::Alloc(id) => trace.requests[id.index()].alloc = Some(time),
                Event::FreeRequested(id) => trace.requests[id.index()].free_requested = Some(time),
                Event::FreeCompleted(id) => trace.requests[id.index()].free_completed = Some(time),
                _ => {}
            }
        }
        let mut learner = Learner::default();
        hear(&mut learner, &trace, |_| {});
        let learned = learner.whole_plan(&quick());
        let (recorded, _) = plan(&trace, &quick(), &mut |_, _| {}).expect("a plan");
        assert!(!learned.slots.is_empty());
        assert_eq!((learned.slots, learned.sections), (recorded.slots, recorded.sections));
        assert_eq!((learned.arena, learned.expected_peak), (recorded.arena, recorded.expected_peak));
    }
}

#[test]
fn a_draft_is_due_when_a_kind_of_step_came_twice_and_not_before_or_again() {
    let trace = Training { marks: true, steps: 12, ..Training::default() }.trace();
    let mut learner = Learner::default();
    let mut due = Vec::new();
    hear(&mut learner, &trace, |learner| {
        if learner.is_draft_due() {
            due.push(learner.steps());
            let drafted = plan_now(learner);
            assert_eq!(drafted.sections.len(), 1);
        }
    });
    // The prologue, the first step, and two that repeat.
    assert_eq!(due, [4]);
}

#[test]
fn a_second_phase_of_a_job_is_drafted_when_it_repeats() {
    let lengths = (0..80).map(|step| if step < 40 { 64 } else { 32 }).collect();
    let trace = Training { marks: true, steps: 80, lengths, ..Training::default() }.trace();
    let mut learner = Learner::default();
    let mut due = Vec::new();
    hear(&mut learner, &trace, |learner| {
        if learner.is_draft_due() {
            due.push((learner.steps(), plan_now(learner).sections.len()));
        }
    });
    assert_eq!(due, [(4, 1), (43, 2)]);
}

#[test]
fn the_next_draft_waits_for_eight_times_the_requests_of_the_last() {
    let lengths = (0..40).map(|step| if step < 5 { 64 } else { 32 }).collect();
    let trace = Training { marks: true, steps: 40, lengths, ..Training::default() }.trace();
    let mut learner = Learner::default();
    let mut due = Vec::new();
    hear(&mut learner, &trace, |learner| {
        if learner.is_draft_due() {
            due.push(learner.steps());
            plan_now(learner);
        }
    });
    // The second phase came twice at 8; the draft at 4 was of one step.
    assert_eq!(due, [4, 4 + 8]);
}

#[test]
fn a_phase_that_is_over_is_left_out_of_plans_and_what_comes_at_an_even_pace_is_not() {
    // Of two phases the second evaluates every seventh step.
    let length = |step: u32| match step {
        0..40 => 64,
        _ if step.is_multiple_of(7) => 96,
        _ => 32,
    };
    let lengths = (0..90).map(length).collect();
    let trace = Training { marks: true, steps: 90, lengths, ..Training::default() }.trace();
    let (mut learner, mut drafted) = (Learner::default(), Vec::new());
    hear(&mut learner, &trace, |learner| {
        if learner.steps() == 44 || learner.steps() == 89 {
            drafted.push(plan_now(learner).sections.len());
        }
    });
    // The first phase was there for longer than it is gone at step 44, but not at the end.
    assert_eq!(drafted, [2, 2]);
    assert!(learner.whole_plan(&quick()).sections.iter().filter(|section| section.runs > 1).count() >= 3, "kept");
}

#[test]
fn steps_whose_sizes_are_drawn_are_never_drafted() {
    let trace = Training { marks: true, experts: 8, steps: 50, ..Training::default() }.trace();
    let mut learner = Learner::default();
    hear(&mut learner, &trace, |learner| assert!(!learner.is_draft_due()));
    assert!(learner.whole_plan(&quick()).slots.is_empty());
}

#[test]
fn what_is_kept_stays_bounded_over_many_steps_of_changing_shape() {
    let mut learner = Learner::default();
    let mut id = 0;
    for step in 0..100_000u64 {
        learner.step_begin();
        for request in 0..50 {
            id += 1;
            learner.alloc(id, 512 * (1 + step * 31 % 4099 + request), 0);
            learner.free(id);
        }
        // Something of each step lives on into the next.
        learner.alloc(u64::MAX - step % 2, 512 * (1 + step % 7), 0);
        let (requests, kinds) = learner.kept();
        assert!(requests <= (1 << 20) + 51 && kinds <= 257, "step {step}: {requests} requests of {kinds} kinds");
    }
    assert_eq!(learner.steps(), 99_999);
}

#[test]
fn a_step_without_end_is_forgotten_and_the_next_ones_are_learned() {
    let mut learner = Learner::default();
    for id in 0..2_000_000u64 {
        learner.alloc(id % 1000, 512, 0);
        assert!(learner.kept().0 <= 1 << 20);
    }
    for _ in 0..4 {
        learner.step_begin();
        for id in 0..10u64 {
            learner.alloc(5000 + id, 1024, 0);
            learner.free(5000 + id);
        }
    }
    let plan = learner.whole_plan(&quick());
    assert_eq!((plan.arena, plan.lower_bound), (1024, 1024));
}

/// The plan of the running job, with everything that stays at `fixed`: the ranges that are fixed, checked for themselves.
fn assert_clear_of(plan: &Plan, fixed: &[(u64, u64)]) {
    let verdict = plan.check();
    assert!(verdict.ok, "{:?}", verdict.problems);
    for slot in &plan.slots {
        for &(start, end) in fixed {
            assert!(slot.offset >= end || slot.offset + slot.size <= start, "{slot:?} meets {start}..{end}");
        }
    }
}

fn training() -> impl Strategy<Value = Training> {
    let shape = (3usize..9, 1usize..4, 1usize..3, prop::collection::vec(16u64..80, 1..3), 0usize..4);
    (any::<u64>(), shape, any::<[bool; 3]>()).prop_map(
        |(seed, (steps, layers, micro_batches, lengths, evaluate_every), flags)| Training {
            seed,
            steps,
            layers,
            micro_batches,
            lengths,
            evaluate_every,
            keep_gradients: flags[0],
            keep_output: flags[1],
            two_streams: flags[2],
            marks: true,
            ..Training::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_stays_keeps_its_offset_and_nothing_planned_meets_it(
        training in training(),
        gap in 0u64..4,
        missing in 0u64..9,
        around in prop_oneof![Just(Around::Between), Just(Around::Above)],
    ) {
        let trace = training.trace();
        let offsets = lowest(&trace);
        let at = |id: u64| offsets[id as usize] + gap * 512 * id;
        let mut learner = Learner::default();
        hear(&mut learner, &trace, |learner| {
            if !learner.is_draft_due() {
                return;
            }
            let draft = learner.draft();
            // Some are not in the arena.
            let known = |id: u64| (id % 9 != missing).then_some(at(id));
            let drafted = draft.plan(known, around).expect("a plan");
            let plan = drafted.plan;
            let staying: Vec<u64> = draft.staying().filter(|&id| known(id).is_some()).collect();
            let fixed: Vec<(u64, u64)> =
                staying.iter().map(|&id| (at(id), at(id) + trace.requests[id as usize].rounded())).collect();
            assert_clear_of(&plan, &fixed);
            assert!(plan.sections.iter().all(|s| s.entries.iter().any(|e| matches!(e, Entry::Slot(_)))));
            let stays = |at: u64| drafted.staying.iter().any(|range| range.contains(&at));
            assert!(fixed.iter().all(|&(start, end)| stays(start) && stays(end - 1)));
            // With a room for all between them, what is above it is no part of the plan.
            let mut near = fixed.clone();
            near.sort_unstable();
            let staying_bytes: u64 = near.iter().map(|(start, end)| end - start).sum();
            if near.windows(2).any(|pair| pair[1].0 - pair[0].1 >= staying_bytes) {
                return;
            }
            assert!(fixed.iter().all(|&(_, end)| end <= plan.arena));
            let top = fixed.iter().map(|&(_, end)| end).max().unwrap_or(0);
            assert!(around == Around::Between || plan.slots.iter().all(|slot| slot.offset >= top));
        });
    }
}

#[test]
fn what_stays_far_above_leaves_a_plan_as_low_as_it_was() {
    let trace = Training { marks: true, ..Training::default() }.trace();
    let offsets = lowest(&trace);
    let mut learner = Learner::default();
    let mut tops = Vec::new();
    hear(&mut learner, &trace, |learner| {
        if learner.is_draft_due() {
            let draft = learner.draft();
            let far = draft.staying().max().expect("something stays");
            for around in [Around::Between, Around::Above] {
                let plan = |known: &dyn Fn(u64) -> Option<u64>| draft.plan(known, around).expect("a plan").plan.arena;
                let without = plan(&|id| (id != far).then_some(offsets[id as usize]));
                let with = plan(&|id| Some(if id == far { 1 << 40 } else { offsets[id as usize] }));
                tops.push((without, with));
            }
        }
    });
    assert!(!tops.is_empty() && tops.iter().all(|(without, with)| without == with), "{tops:?}");
}

#[test]
fn weights_stay_and_what_the_steps_make_and_free_does_not() {
    let training = Training { marks: true, keep_gradients: true, ..Training::default() };
    let trace = training.trace();
    let mut learner = Learner::default();
    let mut staying = Vec::new();
    hear(&mut learner, &trace, |learner| {
        if learner.is_draft_due() {
            staying = learner.draft().staying().collect();
        }
    });
    let sizes: Vec<u64> = staying.iter().map(|&id| trace.requests[id as usize].size).collect();
    let weights = (0..4).map(|layer| 40_000 + 1_000 * layer);
    let mut expected: Vec<u64> = weights.flat_map(|weight| [weight, 2 * weight]).collect();
    expected.sort_unstable();
    let mut sizes = sizes;
    sizes.sort_unstable();
    assert_eq!(sizes, expected, "weights and states");
}

/// Feeds a trace without its marks, and says at which requests a draft was due, and of how many sections its plan was.
fn hear_unmarked(learner: &mut Learner, trace: &Trace) -> Vec<(usize, usize)> {
    let (mut due, mut asked) = (Vec::new(), 0);
    for event in &trace.events {
        match event {
            Event::Alloc(id) => {
                learner.alloc(id.0.into(), trace.request(*id).size, trace.request(*id).stream.0);
                asked += 1;
                if learner.is_draft_due() {
                    due.push((asked, plan_now(learner).sections.len()));
                }
            }
            Event::FreeCompleted(id) => learner.free(id.0.into()),
            _ => {}
        }
    }
    due
}

#[test]
fn steps_that_nobody_marks_are_found_by_their_repetition() {
    let trace = Training { marks: false, keep_gradients: true, steps: 1500, ..Training::default() }.trace();
    let mut learner = Learner::default();
    let due = hear_unmarked(&mut learner, &trace);
    assert_eq!(due.len(), 1, "{due:?}");
    assert_eq!(due[0].1, 1);
    assert!(trace.requests.len() > 2 * due[0].0, "most of the job is after {due:?}");
    let plan = learner.whole_plan(&quick());
    assert!(plan.check().ok && !plan.slots.is_empty());
}

#[test]
fn after_something_else_an_unmarked_job_is_followed_again() {
    let lengths = (0..2000).map(|step| if step > 1000 && step % 100 == 0 { 32 } else { 64 }).collect();
    let trace = Training { marks: false, steps: 2000, lengths, ..Training::default() }.trace();
    let mut learner = Learner::default();
    let due = hear_unmarked(&mut learner, &trace);
    let sections: Vec<usize> = due.iter().map(|&(_, sections)| sections).collect();
    assert!(!sections.is_empty() && sections[0] == 1, "{due:?}");
    assert!(learner.repeats_now());
    // Each step is told apart from its neighbours, not a few of them together.
    assert!(learner.steps() > 900, "{} steps", learner.steps());
}

#[test]
fn the_first_mark_ends_the_guesses_on_where_steps_begin() {
    let unmarked = Training { marks: false, steps: 1000, ..Training::default() }.trace();
    let marked = Training { marks: true, steps: 12, ..Training::default() }.trace();
    let mut learner = Learner::default();
    assert_eq!(hear_unmarked(&mut learner, &unmarked).len(), 1);
    let before = learner.steps();
    let mut due = 0;
    hear(&mut learner, &marked, |learner| due += u32::from(learner.is_draft_due() && learner.draft().requests() > 0));
    assert_eq!(learner.steps() - before, 12, "the stretch before the first mark, and the steps that are complete");
    assert_eq!(due, 1);
}

/// Steps that make a large tensor and a loss; some losses are kept, the oldest is freed when so many are.
fn with_losses(steps: u64, kept: u64, loss: u64) -> Learner {
    let mut learner = Learner::default();
    for step in 0..steps {
        learner.step_begin();
        for request in 0..20 {
            learner.alloc(1000 + request, 1 << 20, 0);
        }
        learner.alloc(step % kept, loss, 0);
        (0..20).for_each(|request| learner.free(1000 + request));
    }
    learner
}

#[test]
fn losses_that_are_kept_for_some_steps_do_not_multiply_the_step() {
    let few_bytes = with_losses(12, 3, 512).whole_plan(&quick());
    let repeating = few_bytes.sections.iter().filter(|section| section.runs > 1).count();
    assert_eq!(repeating, 1);
    let without = |entry: &&Entry| matches!(entry, Entry::WithoutOffset { .. });
    let open = few_bytes.sections.iter().flat_map(|section| &section.entries).filter(without).count();
    assert!(open > 0 && few_bytes.slots.len() >= 20);
    // What two steps keep at once is planned, however small, for two copies are few.
    let two = with_losses(12, 2, 512).whole_plan(&quick());
    assert_eq!(two.sections.iter().filter(|section| section.runs > 1).count(), 2);
    // What is large is worth it.
    let large = with_losses(12, 3, 1 << 20).whole_plan(&quick());
    assert!(large.sections.iter().filter(|section| section.runs > 1).count() > 1);
}
