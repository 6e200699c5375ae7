//! Traces without rhyme or reason are planned soundly as well.

use proptest::prelude::*;
use stalloc_planner::Effort;
use stalloc_synthesizer::{Error, SynthesisOptions, plan};
use stalloc_trace::{Mark, RawEvent, StackId, Trace, TraceBuilder};

/// Soundness does not depend on how long the planner searches.
fn quick() -> SynthesisOptions {
    let mut options = SynthesisOptions::default();
    options.planner.effort = Effort::Quick;
    options
}

/// Allocations and frees at random, the whole repeated a few times so that something like steps may appear.
fn trace(events: &[(u64, u8, u8)], repeats: usize, skip: usize) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let mut live: Vec<u64> = Vec::new();
    let mut next = 1;
    for &(size, stream, action) in events.iter().cycle().take(events.len() * repeats).skip(skip) {
        if action < 120 && !live.is_empty() {
            let address = live.remove(action as usize % live.len());
            builder.push(RawEvent::FreeRequested { address, size: 0, stream: 0 }, None);
            // Some frees complete late, some never.
            if action % 5 != 0 {
                builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
            }
        } else {
            let alloc = RawEvent::Alloc { address: next, size, stream: u64::from(stream), stack: StackId::NONE };
            builder.push(alloc, None);
            live.push(next);
            next += 1;
        }
    }
    builder.finish()
}

/// Steps that do all this and free what is left.
fn steps(events: &[(u64, u8, u8)], steps: usize) -> Trace {
    let mut builder = TraceBuilder::new(0);
    for _ in 0..steps {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        let mut live: Vec<u64> = Vec::new();
        for (&(size, _, action), address) in events.iter().zip(1..) {
            builder.push(RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE }, None);
            live.push(address);
            if action < 120 {
                let address = live.remove(action as usize % live.len());
                builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
            }
        }
        for address in live {
            builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
        }
    }
    builder.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_trace_gets_a_sound_plan(
        events in prop::collection::vec((prop_oneof![0u64..5000, Just(1 << 20)], 0u8..3, any::<u8>()), 1..40),
        repeats in 1usize..6,
        skip in 0usize..20,
    ) {
        let trace = trace(&events, repeats, skip);
        match plan(&trace, &quick(), &mut |_, _| {}) {
            Ok((plan, _)) => {
                let verdict = plan.check().and(plan.check_against(&trace));
                prop_assert!(verdict.ok, "{:?}", verdict.problems);
            }
            Err(error) => prop_assert_eq!(error, Error::Empty(0)),
        }
    }

    #[test]
    fn a_moved_slot_is_caught(seed in 0usize..1000, to in 0u64..40) {
        let events: Vec<(u64, u8, u8)> = (0..30).map(|i| (512 * (1 + i * 7 % 31), 0, (i * 37 % 256) as u8)).collect();
        let trace = steps(&events, 4);
        let (plan, _) = plan(&trace, &quick(), &mut |_, _| {}).expect("a plan");
        let mut mutant = plan.clone();
        let slot = seed % plan.slots.len();
        mutant.slots[slot].offset = to * 512;
        // By hand: does the moved slot meet another of its section in time and address, or leave the arena?
        let moved = mutant.slots[slot];
        let meets = mutant.slots.iter().enumerate().any(|(i, other)| {
            i != slot
                && moved.lower < other.upper && other.lower < moved.upper
                && moved.offset < other.offset + other.size && other.offset < moved.offset + moved.size
        });
        let outside = moved.offset + moved.size > plan.arena;
        prop_assert_eq!(mutant.check().ok, !meets && !outside);
    }
}
