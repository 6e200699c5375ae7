//! Steps that were not recorded: what a plan from a few steps is worth to others, whose sizes differ.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use stalloc_planner::Effort;
use stalloc_simulator::{Kind, Options, Replay, replay};
use stalloc_synthesizer::testing::Training;
use stalloc_trace::Trace;

/// The trace's sizes are as small as a test of plans wants them: so many times larger they are like a model's.
const SCALE: u64 = 2048;

/// Frames that are mapped in part, and small pools: what no allocator goes without.
const GRAIN: u64 = 96 << 20;

fn recorded(training: &Training) -> Trace {
    let mut trace = training.trace();
    trace.requests.iter_mut().for_each(|request| request.size *= SCALE);
    trace
}

/// Plans one run and replays another one.
fn replayed(planned: &Training, run: &Training, kinds: &[Kind]) -> Vec<Replay> {
    let mut options = stalloc_synthesizer::Options::default();
    options.planner.effort = Effort::Quick;
    let (plan, _) = stalloc_synthesizer::plan(&recorded(planned), &options, &mut |_, _| {}).expect("a plan");
    let run = recorded(run);
    let options = Options { plan: Some(&plan), ..Options::default() };
    let replay = |&kind: &Kind| replay(&run, kind, &options, &mut |_, _| {}).expect("a replay");
    kinds.iter().map(replay).collect()
}

fn efficiency(planned: &Training, run: &Training) -> f64 {
    replayed(planned, run, &[Kind::Stalloc])[0].efficiency()
}

#[test]
fn experts_that_get_other_numbers_of_tokens_find_their_room() {
    for (experts, with) in [(4, usize::MAX), (8, 2), (24, 2), (16, 0)] {
        let planned = Training { experts, layers: 6, steps_with_stacks: with, marks: true, ..Training::default() };
        let run = Training { seed: 7, steps: 24, ..planned.clone() };
        let efficiency = efficiency(&planned, &run);
        assert!(efficiency > 0.96, "{experts} experts, {with} steps with call stacks: {efficiency}");
    }
}

#[test]
fn lengths_that_were_never_recorded_are_served_as_tightly_as_memory_can_be_moved() {
    let lengths = vec![40, 33, 48, 51];
    let planned = Training { lengths, layers: 6, steps: 5, marks: true, ..Training::default() };
    let lengths = (0..24).map(|step| 30 + step * 37 % 41).collect();
    let run = Training { lengths, steps: 24, ..planned.clone() };
    let efficiency = efficiency(&planned, &run);
    assert!(efficiency > 0.93, "{efficiency}");
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
            stacks: flags[2],
            marks: true,
            steps_with_stacks: 2,
            ..Training::default()
        };
        let lengths = if flags[3] { others } else { seen };
        let run = Training { seed: seed ^ 1, steps: 16, lengths, ..planned.clone() };
        (planned, run)
    })
}

/// What is wrong with the memory that a run takes by another one's plan, in MiB.
fn excess(planned: &Training, run: &Training) -> Option<String> {
    let replays = replayed(planned, run, &[Kind::Pytorch, Kind::Stalloc]);
    let (pytorch, stalloc) = (replays[0].peak_reserved, replays[1].peak_reserved);
    let peak = replays[1].peak_allocated;
    let is_more = stalloc > pytorch.max(peak + peak / 64) + GRAIN;
    is_more.then(|| format!("{} MiB, PyTorch {} MiB, live {} MiB", stalloc >> 20, pytorch >> 20, peak >> 20))
}

proptest! {
    // The same cases every time: of random ones about one in 200 takes more (docs/dynamic.md).
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn steps_that_were_not_recorded_hardly_take_more_memory_than_pytorch_would((planned, run) in training()) {
        let excess = excess(&planned, &run);
        prop_assert!(excess.is_none(), "{excess:?}");
    }
}

/// `cargo test --release -p stalloc-simulator --test unrecorded -- --ignored --nocapture`
#[test]
#[ignore = "thousands of jobs: minutes"]
fn of_many_random_jobs_few_take_more_memory_than_pytorch_would() {
    const JOBS: usize = 6000;
    let mut runner = TestRunner::new(ProptestConfig { rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() });
    let mut failures = 0;
    for number in 0..JOBS {
        let (planned, run) = training().new_tree(&mut runner).expect("a job").current();
        if let Some(excess) = excess(&planned, &run) {
            failures += 1;
            println!("job {number}, call stacks {}: {excess}", planned.stacks);
        }
    }
    println!("{failures} of {JOBS}");
    assert!(failures * 100 < JOBS, "{failures} of {JOBS}");
}
