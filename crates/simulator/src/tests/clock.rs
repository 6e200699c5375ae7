//! Time passes in a replay as it did in the recording.

use stalloc_trace::{Mark, Trace};

use super::*;
use crate::{Return, returning};

const MIB: u64 = 1 << 20;

/// Three steps of 1,200 ms. In each a block is given back that another stream uses for 50 ms more, and 10 ms after it is given back there is a request of
/// its size. That is given back for 40 ms more, and there is another when all is done.
fn steps() -> Trace {
    let mut builder = TraceBuilder::new(0);
    let size = 100 * MIB;
    for step in 0..3 {
        let at = |ms: u64| Some((1_000 * step + 200 * step + ms) * 1_000);
        let alloc = |address| RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
        builder.push(RawEvent::Mark(Mark::StepBegin), at(0));
        builder.push(alloc(1 << 40), at(1));
        builder.push(RawEvent::FreeRequested { address: 1 << 40, size, stream: 0 }, at(100));
        builder.push(alloc(2 << 40), at(110));
        builder.push(RawEvent::FreeRequested { address: 2 << 40, size, stream: 0 }, at(120));
        builder.push(RawEvent::FreeCompleted { address: 1 << 40, size, stream: 0 }, at(150));
        builder.push(RawEvent::FreeCompleted { address: 2 << 40, size, stream: 0 }, at(160));
        builder.push(alloc(3 << 40), at(170));
        builder.push(RawEvent::FreeCompleted { address: 3 << 40, size, stream: 0 }, at(180));
        builder.push(RawEvent::Mark(Mark::StepEnd), at(1_200));
    }
    builder.finish()
}

#[test]
fn a_full_device_waits_for_what_is_late_and_the_step_takes_longer() {
    let trace = steps();
    let of = |kind, capacity| {
        let options = Options { capacity, ..Options::default() };
        replay(&trace, kind, &options, &mut |_, _| {}).unwrap()
    };
    for kind in [Kind::Pytorch, Kind::StallocOpen] {
        let ample = of(kind, None);
        assert_eq!((ample.peak_reserved, ample.waited_ms), (200 * MIB, 0.0), "{}", kind.name());
        assert!((1_200.0..1_210.0).contains(&ample.step_ms.unwrap()), "{:?}", ample.step_ms);
    }
    for kind in [Kind::Pytorch, Kind::StallocOpen] {
        let full = of(kind, Some(150 * MIB));
        assert_eq!(
            (full.oom, full.waited_ms),
            (None, 3.0 * 40.0),
            "from 110 to 150 ms in each step of {}",
            kind.name()
        );
        assert!((1_240.0..1_250.0).contains(&full.step_ms.unwrap()), "{:?}", full.step_ms);
    }
}

#[test]
fn what_other_streams_use_comes_back_at_once_as_recorded_or_when_the_step_ends() {
    let held = |trace: &Trace| replay(trace, Kind::Pytorch, &Options::default(), &mut |_, _| {}).unwrap().peak_reserved;
    let of = |when| returning(&steps(), when).map(|trace| held(&trace) / MIB);
    assert_eq!((of(Return::AtOnce), held(&steps()) / MIB, of(Return::AtStepEnd)), (Some(100), 200, Some(300)));
    let at_once = returning(&steps(), Return::AtOnce).unwrap();
    assert_eq!(returning(&at_once, Return::AtStepEnd), None, "nothing waits");
}

#[test]
fn where_nothing_says_when_there_is_no_step_time() {
    let mut trace = steps();
    trace.metadata.insert("dry_run".into(), "h100-80gb".into());
    let replay = replay(&trace, Kind::StallocOpen, &Options::default(), &mut |_, _| {}).unwrap();
    assert_eq!((replay.step_ms, replay.waited_ms), (None, 0.0));
}
