//! What plans of training-like traces must look like.

use crate::common::Training;
use proptest::prelude::*;
use stalloc_plan::{CARRIED, Entry, Plan, SectionKind, Slot};
use stalloc_planner::Effort;
use stalloc_synthesizer::{PlanSummary, SynthesisOptions, plan, steps};
use stalloc_trace::{Mark, RawEvent, StackId, Trace, TraceBuilder};

/// Soundness does not depend on how long the planner searches.
fn quick() -> SynthesisOptions {
    let mut options = SynthesisOptions::default();
    options.planner.effort = Effort::Quick;
    options
}

fn planned(trace: &Trace) -> (Plan, PlanSummary) {
    let (plan, summary) = plan(trace, &quick(), &mut |_, _| {}).expect("a plan");
    let verdict = plan.check().and(plan.check_against(trace));
    assert!(verdict.ok, "{:?}", verdict.problems);
    (plan, summary)
}

fn kinds(plan: &Plan) -> Vec<SectionKind> {
    plan.sections.iter().map(|section| section.kind).collect()
}

fn repeating(plan: &Plan) -> usize {
    kinds(plan).into_iter().filter(|&kind| kind == SectionKind::Repeating).count()
}

fn slots_of_size(plan: &Plan, size: u64) -> Vec<Slot> {
    plan.slots.iter().copied().filter(|slot| slot.size == stalloc_trace::rounded(size)).collect()
}

/// The plan gives no offsets, promises nothing, and a note says why.
fn assert_no_offsets(plan: &Plan, summary: &PlanSummary, why: &str) {
    assert!(plan.slots.is_empty() && plan.sections.is_empty() && plan.arena == 0);
    assert_eq!((plan.lower_bound, summary.planned.requests), (plan.expected_peak, 0));
    assert!(plan.trace_map.iter().all(Option::is_none));
    assert!(summary.notes.iter().any(|note| note.contains(why)), "{:?}", summary.notes);
}

#[test]
fn steps_that_repeat_exactly_are_planned_to_the_bound() {
    for marks in [true, false] {
        let (plan, summary) = planned(&Training { marks, ..Training::default() }.trace());
        assert_eq!(kinds(&plan), [SectionKind::Prologue, SectionKind::Once, SectionKind::Repeating]);
        assert_eq!((summary.steps, summary.dynamic.requests), (4, 0));
        assert!(summary.planned.ratio < 1.01, "{}", summary.planned.ratio);
        assert!(summary.efficiency > 0.99, "{}", summary.efficiency);
    }
}

#[test]
fn steps_are_found_with_and_without_marks() {
    for marks in [true, false] {
        assert_eq!(steps(&Training { marks, ..Training::default() }.trace()).requests.len(), 4, "marks {marks}");
    }
}

#[test]
fn a_job_whose_sizes_are_drawn_gets_no_offsets_and_says_why() {
    for marks in [true, false] {
        let (plan, summary) = planned(&Training { experts: 8, steps: 10, marks, ..Training::default() }.trace());
        assert_no_offsets(&plan, &summary, if marks { "steps vary" } else { "no request gets an offset" });
        assert!(plan.expected_peak > 0 && summary.planned_reserved >= plan.expected_peak);
    }
}

#[test]
fn a_trace_of_one_step_gets_no_offsets_and_says_why() {
    let (plan, summary) = planned(&Training { steps: 1, marks: true, ..Training::default() }.trace());
    assert_no_offsets(&plan, &summary, "record three steps or more");
}

#[test]
fn a_buffer_replaced_before_the_old_one_is_freed_gets_two_addresses() {
    let (plan, summary) = planned(&Training { keep_output: true, micro_batches: 1, ..Training::default() }.trace());
    let names: Vec<&str> = plan.sections.iter().map(|section| &section.name[..]).collect();
    assert_eq!(names, ["prologue", "first step", "step, copy 1", "step, copy 2"], "steps take turns");
    let size = stalloc_trace::rounded(64 * 2_000);
    let carried: Vec<Slot> = slots_of_size(&plan, size).into_iter().filter(|slot| slot.upper == CARRIED).collect();
    let offsets: std::collections::BTreeSet<u64> = carried.iter().map(|slot| slot.offset).collect();
    assert_eq!(offsets.len(), 2, "{carried:?}");
    assert!(offsets.last().zip(offsets.first()).is_some_and(|(last, first)| last - first >= size));
    assert_eq!(summary.dynamic.requests, 0);
}

#[test]
fn gradients_that_live_across_the_step_boundary_collide_with_nothing_in_either_step() {
    let (plan, summary) = planned(&Training { keep_gradients: true, ..Training::default() }.trace());
    assert!(plan.slots.iter().any(|slot| slot.upper == CARRIED), "gradients are carried");
    assert_eq!(summary.dynamic.requests, 0);
    // Put one of them where the next step makes something while it is still alive.
    let mut broken = plan.clone();
    let step = plan.sections.iter().position(|s| s.kind == SectionKind::Repeating).expect("a step");
    let carried = plan.sections[step].releases.last().expect("a release");
    let Entry::Slot(first) = plan.sections[step].entries[0] else { panic!("a slot") };
    broken.slots[carried.slot as usize].offset = plan.slots[first as usize].offset;
    assert!(broken.check().overlaps > 0);
}

#[test]
fn two_lengths_that_alternate_are_two_kinds_of_step_in_one_arena() {
    let training =
        Training { lengths: vec![64, 32], steps: 9, marks: true, keep_gradients: true, ..Training::default() };
    let (plan, summary) = planned(&training.trace());
    assert_eq!((repeating(&plan), summary.dynamic.requests), (2, 0), "{:?}", summary.notes);
    assert!(summary.efficiency > 0.97, "{}", summary.efficiency);
}

#[test]
fn a_step_that_came_only_once_is_planned_where_it_is_rare_and_costs_the_plan_where_it_is_not() {
    let training = |steps: usize| {
        let mut lengths = vec![64; steps];
        lengths[steps - 2] = 48;
        planned(&Training { lengths, steps, marks: true, ..Training::default() }.trace())
    };
    let (plan, summary) = training(30);
    assert_eq!((repeating(&plan), summary.dynamic.requests), (1, 0));
    assert_eq!(kinds(&plan).into_iter().filter(|&kind| kind == SectionKind::Once).count(), 2);
    let (plan, summary) = training(5);
    assert_no_offsets(&plan, &summary, "steps vary");
}

#[test]
fn evaluation_every_third_step_is_a_kind_of_its_own() {
    let training = Training { evaluate_every: 3, steps: 9, marks: true, keep_gradients: true, ..Training::default() };
    let (plan, summary) = planned(&training.trace());
    assert_eq!((repeating(&plan), summary.steps), (2, 9));
    assert_eq!(summary.dynamic.requests, 0, "{:?}", summary.notes);
    assert!(summary.efficiency > 0.97, "{}", summary.efficiency);
}

/// Steps of one large request each, each of which also keeps something small for `kept` steps.
fn keeping(steps: u64, kept: u64, large: u64) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let alloc = |address, size| RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
    for step in 0..steps {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        for (address, size) in [(1, large), (1000 + step, 512), (2, 4096)] {
            builder.push(alloc(address, size), None);
        }
        let old = step.checked_sub(kept).map(|step| 1000 + step);
        for address in [Some(2), Some(1), old].into_iter().flatten() {
            builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
        }
    }
    builder.finish()
}

/// A trace of steps that each do these acts: positive numbers ask for that many units by the number, negative ones free; a step
/// may free what an earlier one asked for.
fn acts(steps: &[&[i64]]) -> Trace {
    let mut builder = TraceBuilder::new(0);
    for &step in steps {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        for &act in step {
            let address = act.unsigned_abs();
            let size = 512 * address;
            builder.push(
                if act > 0 {
                    RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE }
                } else {
                    RawEvent::FreeCompleted { address, size: 0, stream: 0 }
                },
                None,
            );
        }
    }
    builder.finish()
}

/// The followers of each repeating section, in the order of sections.
fn followers(plan: &Plan) -> Vec<Vec<u32>> {
    let repeating = plan.sections.iter().filter(|section| section.kind == SectionKind::Repeating);
    repeating.map(|section| section.followers.clone()).collect()
}

#[test]
fn kinds_that_came_in_turn_may_come_in_any_order() {
    let (short, long): (&[i64], &[i64]) = (&[3, -3], &[4, 2, -4, -2]);
    let (plan, _) = planned(&acts(&[&[9], short, long, short, long, short, long]));
    assert_eq!(repeating(&plan), 2);
    let all: Vec<u32> =
        (0..).zip(&plan.sections).filter(|(_, s)| s.kind == SectionKind::Repeating).map(|(i, _)| i).collect();
    for followers in followers(&plan) {
        assert!(all.iter().all(|section| followers.contains(section)), "{followers:?} of {all:?}");
    }
}

#[test]
fn what_one_kind_makes_and_another_frees_late_has_an_offset() {
    let (makes, frees): (&[i64], &[i64]) = (&[5, 3, -3], &[4, 2, -4, -2, -5]);
    let (plan, summary) = planned(&acts(&[&[9], makes, frees, makes, frees, makes, frees, makes, frees]));
    assert_eq!((repeating(&plan), summary.dynamic.requests), (2, 0), "{:?}", summary.notes);
}

#[test]
fn steps_that_keep_nothing_take_no_turn_among_those_that_do() {
    // One kind makes something anew before it frees what it made last time; the other keeps nothing.
    let mut steps: Vec<Vec<(u64, i64)>> = vec![vec![(1, 9)]];
    for turn in 2..10 {
        steps.push(vec![(turn, 64), (turn - 1, -1)]);
        steps.push(vec![(100, 4), (100, -1)]);
    }
    let mut builder = TraceBuilder::new(0);
    for step in steps {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        for (address, units) in step {
            let size = 512 * units.unsigned_abs();
            let free = RawEvent::FreeCompleted { address, size: 0, stream: 0 };
            let alloc = RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
            builder.push(if units > 0 { alloc } else { free }, None);
        }
    }
    let (plan, summary) = planned(&builder.finish());
    assert_eq!(summary.dynamic.requests, 0, "{:?}", summary.notes);
    let runs = |of: u64| -> Vec<u32> {
        let makes = |section: &&stalloc_plan::Section| {
            section.kind == SectionKind::Repeating
                && matches!(section.entries[0], Entry::Slot(slot) if plan.slots[slot as usize].size == 512 * of)
        };
        plan.sections.iter().filter(makes).map(|section| section.runs).collect()
    };
    assert_eq!(runs(64), [4, 4], "each copy comes every other time");
    assert_eq!(runs(4), [4, 4], "after either copy");
}

#[test]
fn the_end_of_a_recording_within_a_step_makes_nothing_odd_that_the_step_frees_later() {
    // Each step frees before its last request what the one before made last.
    let step: &[i64] = &[4, 3, -4, -3, -7, 7];
    let (_, summary) = planned(&acts(&[&[9], &[4, 3, -4, -3, 7], step, step, step, step, &[4]]));
    assert_eq!(summary.dynamic.requests, 0, "{:?}", summary.notes);
}

#[test]
fn notes_say_how_many_steps_were_found_by_what_and_how_many_repeat() {
    let notes = |training: Training| planned(&training.trace()).1.notes;
    let note = |training: Training| notes(training)[0].clone();
    let marked = Training { marks: true, steps: 9, ..Training::default() };
    assert_eq!(note(marked.clone()), "9 steps were found by marks; 8 of them repeat exactly");
    let lengths = Training { lengths: vec![64, 32], ..marked.clone() };
    assert_eq!(note(lengths), "9 steps were found by marks; 8 of them repeat exactly, of 2 kinds");
    let drawn = Training { experts: 8, ..marked.clone() };
    assert_eq!(note(drawn), "9 steps were found by marks; none came twice with exactly the same requests");
    assert_eq!(
        note(Training { marks: false, ..marked.clone() }),
        "9 steps were found by repetition; 8 of them repeat exactly"
    );
    assert_eq!(notes(marked.clone()).len(), 1, "nothing else is to be known");
    let turns = notes(Training { keep_output: true, micro_batches: 1, ..marked.clone() });
    assert!(turns.len() == 2 && turns[1].contains("2 sets of addresses"), "{turns:?}");
    let nothing = note(Training { marks: false, steps: 0, ..marked });
    assert!(nothing.starts_with("no repeating steps were found"), "{nothing}");
}

#[test]
fn what_every_step_keeps_for_ever_is_expected_without_an_offset() {
    for kept in [u64::MAX, 6] {
        let (plan, summary) = planned(&keeping(12, kept, 8192));
        let step = plan.sections.iter().find(|section| section.kind == SectionKind::Repeating).expect("a step");
        assert!(matches!(step.entries[1], Entry::WithoutOffset { size: 512, stream: 0 }), "kept for {kept}: {step:?}");
        assert_eq!((plan.arena, summary.dynamic.requests), (8192 + 4096, 12));
    }
}

#[test]
fn what_steps_keep_has_no_offset_though_the_programs_end_frees_it() {
    for steps in [3, 4] {
        let mut builder = TraceBuilder::new(0);
        let alloc = |address, size| RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
        let free = |address| RawEvent::FreeCompleted { address, size: 0, stream: 0 };
        for step in 0..steps {
            builder.push(RawEvent::Mark(Mark::StepBegin), None);
            let state = (step == 0).then(|| alloc(3, 1 << 20));
            let all = [alloc(1, 8192), alloc(1000 + step, 512), free(1), alloc(2, 4096), free(2)];
            for event in all.into_iter().chain(state) {
                builder.push(event, None);
            }
        }
        for address in (0..steps).map(|step| 1000 + step).chain([3]) {
            builder.push(free(address), None);
        }
        let (plan, _) = planned(&builder.finish());
        let step = plan.sections.iter().find(|section| section.kind == SectionKind::Repeating).expect("a step");
        assert!(matches!(step.entries[1], Entry::WithoutOffset { size: 512, stream: 0 }), "{steps} steps: {step:?}");
    }
}

#[test]
fn what_is_kept_for_a_few_steps_has_an_address_for_each_of_them() {
    // Four steps keep 2 KiB at once, which is less than a part in 1024 of the most live bytes from 2 MiB on.
    for large in [8192, 7 << 18] {
        let (plan, summary) = planned(&keeping(12, 3, large));
        assert_eq!((repeating(&plan), summary.dynamic.requests), (4, 0), "{:?}", summary.notes);
        assert_eq!(plan.arena, large + 4096 + 4 * 512);
    }
    let (plan, summary) = planned(&keeping(12, 3, 9 << 18));
    assert_eq!((repeating(&plan), summary.dynamic.requests), (1, 12), "{:?}", summary.notes);
}

#[test]
fn a_last_step_that_is_cut_off_is_still_planned() {
    let trace = Training { marks: true, steps: 5, ..Training::default() }.trace();
    let mut builder = TraceBuilder::new(0);
    for event in &trace.events[..trace.events.len() - trace.events.len() / 20] {
        let raw = match event {
            stalloc_trace::Event::Alloc(id) => {
                let request = trace.request(*id);
                RawEvent::Alloc {
                    address: request.address.unwrap_or(0),
                    size: request.size,
                    stream: 0,
                    stack: StackId::NONE,
                }
            }
            stalloc_trace::Event::FreeCompleted(id) => {
                RawEvent::FreeCompleted { address: trace.request(*id).address.unwrap_or(0), size: 0, stream: 0 }
            }
            stalloc_trace::Event::Mark(mark) => RawEvent::Mark(mark.clone()),
            _ => continue,
        };
        builder.push(raw, None);
    }
    let (_, summary) = planned(&builder.finish());
    assert_eq!(summary.dynamic.requests, 0, "{:?}", summary.notes);
}

/// Steps in which each stream has a block of its size, one after the other or at the same time.
fn two_streams(together: bool, sizes: [u64; 2]) -> Trace {
    let mut builder = TraceBuilder::new(0);
    for _ in 0..4 {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        for (stream, size) in (0..).zip(sizes) {
            builder.push(RawEvent::Alloc { address: stream, size, stream, stack: StackId::NONE }, None);
            if !together {
                builder.push(RawEvent::FreeCompleted { address: stream, size: 0, stream: 0 }, None);
            }
        }
        for address in 0..2 {
            builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
        }
    }
    builder.finish()
}

#[test]
fn streams_share_addresses_only_where_that_saves_memory() {
    let offsets = |plan: &Plan, stream| -> Vec<u64> {
        plan.slots.iter().filter(|slot| slot.stream == stream).map(|slot| slot.offset).collect()
    };
    let (apart, _) = planned(&two_streams(true, [4096; 2]));
    assert!(offsets(&apart, 0) == [0] && offsets(&apart, 1) == [4096] && apart.arena == 8192, "{:?}", apart.slots);
    let (shared, _) = planned(&two_streams(false, [4096; 2]));
    assert!(offsets(&shared, 0) == [0] && offsets(&shared, 1) == [0] && shared.arena == 4096, "{:?}", shared.slots);
    // A hundredth of the arena is too little.
    let (little, _) = planned(&two_streams(false, [512 * 200, 512]));
    assert!(offsets(&little, 1) == [512 * 200] && little.arena == 512 * 201, "{:?}", little.slots);
}

#[test]
fn the_same_trace_gives_the_same_plan() {
    let trace = Training { lengths: vec![64, 32], keep_output: true, steps: 9, ..Training::default() }.trace();
    assert_eq!(planned(&trace).0, planned(&trace).0);
}

#[test]
fn a_replay_says_what_is_reserved_unless_only_its_last_page_is_not_full() {
    let (_, mut summary) = planned(&Training::default().trace());
    let (planned, peak) = (summary.planned_reserved, summary.peak_allocated);
    summary.replayed(planned + (2 << 20), 8 << 20);
    assert_eq!(summary.planned_reserved, planned);
    summary.replayed(planned + (64 << 20), 8 << 20);
    assert_eq!(summary.planned_reserved, planned + (64 << 20));
    summary.replayed(planned / 3, 8 << 20);
    assert_eq!(summary.planned_reserved, planned / 3);
    assert_eq!(summary.efficiency, peak as f64 / summary.planned_reserved as f64);
}

fn training() -> impl Strategy<Value = Training> {
    let shape = (0usize..9, 1usize..4, 1usize..3, prop::collection::vec(16u64..80, 1..4), 0usize..4);
    (any::<u64>(), shape, prop_oneof![3 => Just(0u64), 1 => 1u64..4], 0u64..101, any::<[bool; 4]>()).prop_map(
        |(seed, (steps, layers, micro_batches, lengths, evaluate_every), experts, imbalance, flags)| Training {
            seed,
            imbalance,
            steps,
            layers,
            micro_batches,
            lengths,
            experts,
            evaluate_every,
            keep_gradients: flags[0],
            keep_output: flags[1],
            two_streams: flags[2],
            marks: flags[3],
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_a_training_run_does_its_plan_is_sound(training in training()) {
        let trace = training.trace();
        let (plan, summary) = planned(&trace);
        prop_assert!(plan.slots.is_empty() || plan.lower_bound <= plan.arena);
        prop_assert!(!summary.notes.iter().any(|note| note.contains("did not hold")), "{:?}", summary.notes);
    }
}
