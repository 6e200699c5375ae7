//! Random programs through every allocator.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stalloc_plan::Plan;
use stalloc_trace::{Event, RawEvent, RequestId, StackId, Time, Trace, TraceBuilder};

use crate::{Kind, Options, Replay, gmlake, replay};

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Malloc { size: u64, stream: u64 },
    Free { place: usize, used_elsewhere: bool },
    Complete(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        3 => 0..4096u64,
        3 => 0..2 * MIB,
        3 => MIB..60 * MIB,
        1 => 500 * MIB..2000 * MIB,
    ];
    let step = prop_oneof![
        10 => (size, 1u64..3).prop_map(|(size, stream)| Step::Malloc { size, stream }),
        8 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(place, used_elsewhere)| Step::Free { place, used_elsewhere }),
        2 => any::<usize>().prop_map(Step::Complete),
    ];
    prop::collection::vec(step, 0..150)
}

/// A trace in which the first `initial` requests live before the first event.
fn trace(steps: &[Step], initial: usize) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let mut live = Vec::new();
    let mut pending = Vec::new();
    let mut address = 0;
    for step in steps {
        match *step {
            Step::Malloc { size, stream } => {
                address += 1 << 40;
                if live.len() < initial && address >> 40 <= initial as u64 {
                    builder.push_initial(address, size, stream, StackId::NONE, false);
                } else {
                    builder.push(RawEvent::Alloc { address, size, stream, stack: StackId::NONE }, None);
                }
                live.push(address);
            }
            Step::Free { place, used_elsewhere } if live.len() > initial => {
                let address = live.swap_remove(initial + place % (live.len() - initial));
                builder.push(RawEvent::FreeRequested { address, size: 0, stream: 0 }, None);
                match used_elsewhere {
                    true => pending.push(address),
                    false => {
                        builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
                    }
                }
            }
            Step::Complete(place) if !pending.is_empty() => {
                let address = pending.swap_remove(place % pending.len());
                builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
            }
            _ => {}
        }
    }
    let mut trace = builder.finish();
    trace.times_us = (0..trace.events.len() as u64).map(|place| 1_000 * place).collect();
    trace
}

/// Checks that what a replay says can be: no two live requests overlap, each lies in memory that is held, and the
/// figures follow from the placements. An allocator that waited did so for streams that the recording has busy longer.
fn check(trace: &Trace, replay: &Replay) {
    let (name, short) = (replay.allocator, replay.waited_ms > 0.0);
    let end = replay.oom.unwrap_or(trace.end());
    let addresses: BTreeMap<RequestId, u64> = replay.placements.iter().map(|p| (p.request, p.address)).collect();
    assert_eq!(addresses.len(), replay.placements.len(), "{name}: a request is placed once");
    let reserved = |time: Time| {
        let known = replay.reserved.partition_point(|&(at, _)| at <= time);
        known.checked_sub(1).map_or(0, |place| replay.reserved[place].1)
    };
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let place = |id: RequestId, time: Time, held: &mut BTreeMap<u64, u64>| {
        let Some(&start) = addresses.get(&id) else { panic!("{name}: a request was left out") };
        let stop = start + trace.request(id).rounded();
        assert!(held.range(..stop).next_back().is_none_or(|(_, &end)| end <= start), "{name}: two requests overlap");
        held.insert(start, stop);
        // GMLake's stitched blocks lie in address space of their own.
        if replay.allocator != Kind::Gmlake.name() {
            let mut at = start;
            while at < stop {
                let spans = replay.segments.iter().filter(|s| s.begin <= time && time <= s.end);
                let span = spans.into_iter().find(|s| s.address <= at && at < s.address + s.size);
                at = span.map(|s| s.address + s.size).unwrap_or_else(|| panic!("{name}: {at:#x} is not held"));
            }
        }
    };
    let initial: Vec<RequestId> = crate::program::initial(trace).collect();
    if replay.oom == Some(0) && replay.placements.len() < initial.len() {
        return;
    }
    let mut allocated: u64 = 0;
    for &id in &initial {
        place(id, 0, &mut held);
        allocated += trace.request(id).rounded();
    }
    let mut peak = allocated;
    for (time, event) in trace.events.iter().enumerate().take(end as usize) {
        let time = time as Time;
        match *event {
            Event::Alloc(id) => {
                place(id, time, &mut held);
                allocated += trace.request(id).rounded();
            }
            Event::FreeRequested(id) => {
                allocated -= trace.request(id).rounded();
                if short {
                    held.remove(&addresses[&id]);
                }
            }
            Event::FreeCompleted(id) if !short => {
                held.remove(&addresses[&id]);
            }
            _ => {}
        }
        peak = peak.max(allocated);
        assert!(reserved(time) >= allocated, "{name}");
    }
    assert_eq!(replay.peak_allocated, peak, "{name}");
    assert!(replay.reserved.iter().all(|&(_, bytes)| bytes <= replay.peak_reserved), "{name}");
    assert!(replay.efficiency() <= 1.0 && replay.peak_reserved - replay.fragmentation_bytes() == peak, "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn live_requests_never_overlap_and_lie_in_memory_that_is_held(
        steps in steps(),
        initial in 0usize..10,
        capacity in prop::option::of(prop::sample::select(vec![200 * MIB, 3000 * MIB])),
        fragment_limit in prop::sample::select(vec![2 * MIB, 20 * MIB, 512 * MIB]),
    ) {
        let trace = trace(&steps, initial);
        let plan = Plan { alignment: 512, ..Plan::default() };
        let gmlake = gmlake::GmlakeSettings { fragment_limit, ..Default::default() };
        let options = Options { capacity, plan: Some(&plan), gmlake, ..Options::default() };
        for kind in Kind::ALL {
            let replay = replay(&trace, kind, &options, &mut |_, _| {}).unwrap();
            prop_assert!(capacity.is_none_or(|capacity| replay.peak_reserved <= capacity));
            check(&trace, &replay);
        }
    }
}
