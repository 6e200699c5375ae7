//! What a recording needs of a card.

use stalloc_trace::{Mark, RawEvent, StackId, TraceBuilder};

use super::*;

/// Steps of a loop in which PyTorch's allocator takes 24 MiB more in the fourth: a block that goes at once, one that goes when the next
/// step ends, and one that goes amid the next step.
fn steps(count: u64) -> Trace {
    steps_and_more(count, None)
}

/// The same, and a block of so many MiB that is made as the program ends.
fn steps_and_more(count: u64, more: Option<u64>) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let address = |step: u64, block: u64| (1 + 3 * step + block) << 32;
    for step in 0..count {
        let mut say = |event| builder.push(event, None);
        let alloc = |block, mib: u64| RawEvent::Alloc {
            address: address(step, block),
            size: mib << 20,
            stream: 0,
            stack: StackId::NONE,
        };
        let free = |step, block| RawEvent::FreeCompleted { address: address(step, block), size: 0, stream: 0 };
        say(RawEvent::Mark(Mark::StepBegin));
        say(alloc(0, 24));
        say(free(step, 0));
        if step > 0 {
            say(free(step - 1, 2));
        }
        say(alloc(1, 17));
        say(alloc(2, 22));
        if step > 0 {
            say(free(step - 1, 1));
        }
        say(RawEvent::Mark(Mark::StepEnd));
    }
    if let Some(mib) = more {
        builder.push(RawEvent::Alloc { address: 1 << 50, size: mib << 20, stream: 0, stack: StackId::NONE }, None);
    }
    builder.finish()
}

#[test]
fn what_a_later_step_adds_is_foreseen_of_a_program_that_goes_on() {
    let gpu = stalloc_dryrun_setup::find("h100-80gb").unwrap();
    let reserved = |count, is_cut| {
        let recorded = Recorded { rank: 0, steps: count, content: 0, is_cut, priced_on: None };
        let device = evaluate(&steps(count), recorded, (&gpu, &[]), 1, None).unwrap();
        device.needs.iter().map(|need| need.peak_reserved >> 20).collect::<Vec<_>>()
    };
    assert_eq!(reserved(3, false)[0], 70);
    assert_eq!(reserved(6, false)[0], 94);
    assert_eq!(reserved(3, true), reserved(6, false));
}

#[test]
fn what_is_made_as_the_program_ends_counts_too() {
    let gpu = stalloc_dryrun_setup::find("h100-80gb").unwrap();
    let recorded = Recorded { rank: 0, steps: 3, content: 0, is_cut: true, priced_on: None };
    let device = evaluate(&steps_and_more(3, Some(500)), recorded, (&gpu, &[]), 1, None).unwrap();
    assert!(device.needs.iter().all(|need| need.peak_reserved >= 500 << 20), "{:?}", device.needs);
}

#[test]
fn a_step_takes_longer_on_a_card_that_has_to_wait_for_memory() {
    let gpu = stalloc_dryrun_setup::find("h100-80gb").unwrap();
    let (mut builder, size) = (TraceBuilder::new(0), 100 << 20);
    for step in 0..3 {
        let at = |ms: u64| Some((1_000 * step + ms) * 1_000);
        let alloc = |address| RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
        builder.push(RawEvent::Mark(Mark::StepBegin), at(0));
        builder.push(alloc(1 << 40), at(1));
        // Another stream uses it for 50 ms more.
        builder.push(RawEvent::FreeRequested { address: 1 << 40, size, stream: 0 }, at(100));
        builder.push(alloc(2 << 40), at(110));
        builder.push(RawEvent::FreeCompleted { address: 1 << 40, size, stream: 0 }, at(150));
        builder.push(RawEvent::FreeCompleted { address: 2 << 40, size, stream: 0 }, at(160));
        builder.push(RawEvent::Mark(Mark::StepEnd), at(900));
    }
    let trace = builder.finish();
    let on = |card| {
        let recorded = Recorded { rank: 0, steps: 3, content: 0, is_cut: false, priced_on: card };
        evaluate(&trace, recorded, (&gpu, &[]), 1, None).unwrap()
    };
    let (device, size) = (on(None), |bytes| Some(bytes + on(None).outside.high));
    let need = &device.needs[2];
    assert_eq!((need.smallest, need.peak_reserved), (Some(100 << 20), 200 << 20));
    assert_eq!((need.step_us, need.step_us_asked), (Some(1_000_000), None));
    for (bytes, ms) in [(200 << 20, None), (199 << 20, Some(1_040)), (100 << 20, Some(1_040)), (1, Some(1_040))] {
        let need = &on(size(bytes)).needs[2];
        assert_eq!(need.step_us_asked.map(|step| step / 1_000), ms, "{bytes} bytes are left");
    }
}
