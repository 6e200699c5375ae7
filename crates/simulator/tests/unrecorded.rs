//! Steps that were not recorded: what our arena is worth to jobs whose steps vary, with another run's plan, with none, and
//! learning as it goes.

#[path = "../../synthesizer/tests/it/common/mod.rs"]
mod common;

use common::Training;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use stalloc_planner::Effort;
use stalloc_simulator::{Kind, Options, Replay, replay};
use stalloc_trace::Trace;

/// The trace's sizes are as small as a test of plans wants them: so many times larger they are like a model's.
const SCALE: u64 = 2048;

/// Frames that are mapped in part, and small pools: what no allocator goes without.
const GRAIN: u64 = 32 << 20;

const OURS: [Kind; 3] = [Kind::StallocOpen, Kind::Stalloc, Kind::StallocAuto];

fn recorded(training: &Training) -> Trace {
    let mut trace = training.trace();
    trace.requests.iter_mut().for_each(|request| request.size *= SCALE);
    trace
}

/// Plans one run and replays another one.
fn replayed(planned: &Training, run: &Training, kinds: &[Kind]) -> Vec<Replay> {
    let mut options = stalloc_synthesizer::SynthesisOptions::default();
    options.planner.effort = Effort::Quick;
    let (plan, _) = stalloc_synthesizer::plan(&recorded(planned), &options, &mut |_, _| {}).expect("a plan");
    let run = recorded(run);
    let options = Options { plan: Some(&plan), ..Options::default() };
    let replay = |&kind: &Kind| replay(&run, kind, &options, &mut |_, _| {}).expect("a replay");
    kinds.iter().map(replay).collect()
}

#[test]
fn experts_that_get_other_numbers_of_tokens_are_served_tightly_whatever_is_known_of_them() {
    for experts in [4, 8, 24] {
        let planned = Training { experts, layers: 6, marks: true, ..Training::default() };
        let run = Training { seed: 7, steps: 24, ..planned.clone() };
        for replay in replayed(&planned, &run, &OURS) {
            assert!(replay.efficiency() > 0.95, "{experts} experts, {}: {}", replay.allocator, replay.efficiency());
        }
    }
}

#[test]
fn lengths_that_were_never_recorded_are_served_tightly_whatever_is_known_of_them() {
    let lengths = vec![40, 33, 48, 51];
    let planned = Training { lengths, layers: 6, steps: 5, marks: true, ..Training::default() };
    let lengths = (0..24).map(|step| 30 + step * 37 % 41).collect();
    let run = Training { lengths, steps: 24, ..planned.clone() };
    for replay in replayed(&planned, &run, &OURS) {
        assert!(replay.efficiency() > 0.95, "{}: {}", replay.allocator, replay.efficiency());
    }
}

#[test]
fn a_job_that_repeats_is_learned_while_it_runs_and_then_remaps_nothing() {
    let run = Training { steps: 16, layers: 8, keep_gradients: true, marks: true, ..Training::default() };
    let [open, auto] = &replayed(&run, &run, &[Kind::StallocOpen, Kind::StallocAuto])[..] else {
        panic!("two replays")
    };
    assert_eq!(open.planned, Some(0));
    assert!(auto.planned > Some(run_requests(&run) / 2), "{:?} of {}", auto.planned, run_requests(&run));
    assert!(auto.remaps_by_step[8..].iter().all(|&remaps| remaps == 0), "{:?}", auto.remaps_by_step);
}

#[test]
fn a_job_that_repeats_is_planned_on_a_device_that_it_nearly_fills_too() {
    let run = Training { steps: 16, layers: 6, marks: true, ..Training::default() };
    let trace = recorded(&run);
    let capacity = trace.peak_allocated() / 100 * 101;
    let options = Options { capacity: Some(capacity), ..Options::default() };
    let replay = |kind| replay(&trace, kind, &options, &mut |_, _| {}).expect("a replay");
    let (open, auto) = (replay(Kind::StallocOpen), replay(Kind::StallocAuto));
    assert!(
        open.remaps_by_step[..8].iter().any(|&remaps| remaps > 0),
        "it is short of memory: {:?}",
        open.remaps_by_step
    );
    assert!(auto.planned > Some(run_requests(&run) / 2), "{:?} of {}", auto.planned, run_requests(&run));
    assert!(auto.remaps_by_step[8..].iter().all(|&remaps| remaps == 0), "{:?}", auto.remaps_by_step);
}

fn run_requests(run: &Training) -> u64 {
    recorded(run).requests.len() as u64
}

#[test]
fn the_plan_of_another_job_costs_no_more_than_none() {
    let planned = Training { seed: 3, layers: 5, lengths: vec![50], marks: true, ..Training::default() };
    let run = Training { seed: 9, layers: 9, lengths: vec![44], steps: 12, marks: true, ..Training::default() };
    let [open, foreign] = &replayed(&planned, &run, &[Kind::StallocOpen, Kind::Stalloc])[..] else {
        panic!("two replays")
    };
    let allowed = open.peak_reserved + open.peak_reserved / 100 + GRAIN / 8;
    assert!(foreign.peak_reserved <= allowed, "{} and {}", foreign.peak_reserved, open.peak_reserved);
}

fn training() -> impl Strategy<Value = (Training, Training)> {
    let lengths = || prop::collection::vec(16u64..64, 1..6);
    let shape = (any::<u64>(), 2usize..6, 1usize..3, 0u64..12, 0u64..60);
    (shape, lengths(), lengths(), 0usize..4, any::<[bool; 4]>()).prop_map(|(shape, seen, others, every, flags)| {
        let (seed, layers, micro_batches, experts, imbalance) = shape;
        let planned = Training {
            seed,
            layers,
            micro_batches,
            experts,
            imbalance,
            steps: 5,
            lengths: seen.clone(),
            evaluate_every: every,
            keep_gradients: flags[0],
            keep_output: flags[1],
            two_streams: flags[2],
            marks: true,
        };
        let lengths = if flags[3] { others } else { seen };
        let run = Training { seed: seed ^ 1, steps: 16, lengths, ..planned.clone() };
        (planned, run)
    })
}

/// What is wrong with the memory that a run takes, in MiB: it is more than PyTorch's allocator and expandable segments take.
fn excess(planned: &Training, run: &Training) -> Option<String> {
    let mut replays = replayed(planned, run, &[&[Kind::Pytorch, Kind::PytorchExpandable], &OURS[..]].concat());
    let ours = replays.split_off(2);
    let rivals = replays.iter().map(|replay| replay.peak_reserved).min().unwrap_or(0);
    // A plan says how much memory to expect.
    let peak = ours[0].peak_allocated.max(recorded(planned).peak_allocated());
    let is_more = |replay: &&Replay| replay.peak_reserved > rivals.max(peak + peak / 33) + GRAIN;
    let worst = ours.iter().find(is_more)?;
    let (taken, rivals) = (worst.peak_reserved >> 20, rivals >> 20);
    Some(format!("{}: {taken} MiB, the best rival {rivals} MiB, live {} MiB", worst.allocator, peak >> 20))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_jobs_take_no_more_memory_than_under_their_best_rival((planned, run) in training()) {
        let excess = excess(&planned, &run);
        prop_assert!(excess.is_none(), "{excess:?}");
    }
}

/// `cargo test --release -p stalloc-simulator --test unrecorded -- --ignored --nocapture`
#[test]
#[ignore = "thousands of jobs: minutes"]
fn of_many_random_jobs_hardly_any_takes_more_memory_than_under_its_best_rival() {
    const JOBS: usize = 6000;
    let mut runner = TestRunner::new(ProptestConfig { rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() });
    let mut failures = 0;
    for number in 0..JOBS {
        let (planned, run) = training().new_tree(&mut runner).expect("a job").current();
        if let Some(excess) = excess(&planned, &run) {
            failures += 1;
            println!("job {number}: {excess}");
        }
    }
    println!("{failures} of {JOBS}");
    assert!(failures * 1000 < JOBS, "{failures} of {JOBS}");
}
