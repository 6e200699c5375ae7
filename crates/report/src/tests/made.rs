//! Traces made by hand.

use proptest::prelude::*;
use stalloc_simulator::{Kind, Options, replay};
use stalloc_trace::{SegmentAction, StackId, Time, Trace, rounded};

use super::{Maker, input};
use crate::Report;
use crate::actual::actual;
use crate::categories::{Category, categories};
use crate::layout::Layout;
use crate::sites::{Sites, size_class};
use crate::steps::StepSpan;
use crate::words::{bytes, percent};

const MIB: u64 = 1 << 20;

#[test]
fn a_hole_between_two_blocks_is_found_with_what_pins_it() {
    let mut maker = Maker::new();
    let (low, high) = (maker.stack("net/a.py", 7, "forward"), maker.stack("net/b.py", 9, "forward"));
    maker.segment(SegmentAction::Alloc, 100 * MIB, 40 * MIB);
    maker.alloc(100 * MIB, 10 * MIB, low);
    maker.alloc(110 * MIB, 20 * MIB, StackId::NONE);
    maker.alloc(130 * MIB, 10 * MIB, high);
    maker.free(110 * MIB);
    maker.segment(SegmentAction::Alloc, 200 * MIB, 30 * MIB);
    maker.alloc(200 * MIB, 30 * MIB, StackId::NONE);
    let inputs = [input("made", maker.trace())];
    let report = Report::new(&inputs);
    let device = &report.figures().inputs[0].devices[0];
    let happened = &device.allocators[0];
    assert_eq!(happened.allocator, "actual");
    assert_eq!((happened.peak_reserved, happened.peak_allocated), (70 * MIB, 50 * MIB));
    assert_eq!((happened.wasted, happened.holes.holes_bytes), (20 * MIB, 20 * MIB));
    let [hole] = &happened.holes.holes[..] else { panic!("one hole") };
    assert_eq!((hole.offset, hole.bytes), (10 * MIB, 20 * MIB));
    let site = |one: &Option<crate::Neighbour>| one.as_ref().map(|one| one.site.to_string());
    assert_eq!(site(&hole.below).as_deref(), Some("net/a.py:7 forward"));
    assert_eq!(site(&hole.above).as_deref(), Some("net/b.py:9 forward"));
    // Empty since the block in the middle was given back, and never filled again.
    assert_eq!((hole.begin, hole.end), (5, device.events as Time));
    assert_eq!(happened.holes.pins.iter().map(|pin| pin.bytes).collect::<Vec<_>>(), [10 * MIB, 10 * MIB]);
    assert_eq!(happened.holes.segments[0].wasted, 20 * MIB);
}

#[test]
fn pages_given_back_from_the_middle_leave_both_ends_held() {
    let mut maker = Maker::new();
    maker.segment(SegmentAction::Map, 0, 60 * MIB);
    maker.alloc(0, MIB, StackId::NONE);
    maker.segment(SegmentAction::Unmap, 20 * MIB, 20 * MIB);
    maker.free(0);
    let replay = actual(&maker.trace(), None).unwrap();
    assert_eq!(replay.reserved, [(0, 60 * MIB), (2, 40 * MIB)]);
    let mut spans: Vec<_> = replay.segments.iter().map(|s| (s.address / MIB, s.size / MIB, s.begin, s.end)).collect();
    spans.sort_unstable();
    assert_eq!(spans, [(0, 20, 0, 5), (20, 20, 0, 2), (40, 20, 0, 5)]);
}

#[test]
fn the_map_of_one_request_for_all_of_a_device_has_a_few_ranges_and_not_one_for_each_page() {
    let mut maker = Maker::new();
    maker.alloc(0x1e91_9e00, 1 << 44, StackId::NONE);
    let input = input("made", maker.trace());
    let analysis = crate::device::Analysis::new(&input.devices[0]);
    let pages = |replay: &stalloc_simulator::Replay| replay.peak_reserved / (20 * MIB);
    assert!(input.devices[0].replays.iter().any(|replay| pages(replay) > 500_000), "pages are mapped one by one");
    for mapped in &analysis.mapped {
        assert!(mapped.layout.held.len() < 10, "{}: {}", mapped.replay.allocator, mapped.layout.held.len());
    }
}

#[test]
fn a_program_that_is_not_recorded_from_the_start_has_no_known_outcome() {
    let mut maker = Maker::new();
    maker.alloc(0, MIB, StackId::NONE);
    assert!(actual(&maker.trace(), None).is_none());
}

#[test]
fn what_a_block_holds_is_told_by_its_lifetime_and_its_stack() {
    let mut maker = Maker::new();
    let forward = maker.stack("net.py", 1, "forward");
    let backward = maker.stack("torch/autograd/graph.py", 1, "backward");
    let optimizer = maker.stack("torch/optim/adamw.py", 1, "_init_group");
    let builds = maker.stack("/lib/torch/nn/modules/linear.py", 1, "__init__");
    maker.alloc(MIB, 4 * MIB, builds);
    maker.alloc(6 * MIB, 3 * MIB, forward);
    let mut steps = Vec::new();
    for step in 0..3u64 {
        let begin = 2 + step as Time * 1010;
        let base = 100 * MIB * (step + 1);
        maker.alloc(base, 2 * MIB, forward);
        for i in 0..333 {
            maker.alloc(base + 10 * MIB + i, 512, forward);
            maker.free(base + 10 * MIB + i);
        }
        maker.free(base);
        maker.alloc(base + 20 * MIB, 4 * MIB, backward);
        if step == 0 {
            maker.alloc(2 * MIB + 512, 4 * MIB, optimizer);
            maker.alloc(900 * MIB, 512, forward);
        }
        for i in 0..2 {
            maker.alloc(base + 30 * MIB + i, 512, forward);
        }
        maker.free(base + 20 * MIB);
        steps.push(StepSpan { begin, end: begin + 1010, kind: "step".into() });
    }
    let trace = maker.trace();
    let found = categories(&trace, &steps);
    let of = |size: u64, at: usize| {
        let mut same = trace.requests.iter().zip(&found).filter(|(request, _)| request.size == size);
        *same.nth(at).unwrap().1
    };
    assert_eq!(of(4 * MIB, 0), Category::Parameters);
    assert_eq!(of(3 * MIB, 0), Category::Persistent, "data that is kept is no parameter");
    assert_eq!(of(2 * MIB, 0), Category::Activations);
    assert_eq!(of(512, 0), Category::Temporaries);
    assert_eq!(of(4 * MIB, 1), Category::Gradients);
    let optimizer_states = trace.requests.iter().zip(&found).find(|(request, _)| request.stack == optimizer).unwrap();
    assert_eq!(*optimizer_states.1, Category::OptimizerStates);
}

#[test]
fn a_call_site_is_the_innermost_frame_of_the_users_own_code() {
    let mut builder = stalloc_trace::TraceBuilder::new(0);
    let mut frame = |file: &str, function: &str, line| stalloc_trace::Frame {
        file: builder.string(file),
        function: builder.string(function),
        line,
    };
    let frames = [
        frame("??", "torch::unwind::unwind()", 0),
        frame("/usr/lib/python3/site-packages/torch/nn/functional.py", "linear", 1),
        frame("/venv/lib/python3.11/site-packages/lightning/loop.py", "run", 7),
        frame("/home/me/torch/model/torch_block.py", "forward", 42),
        frame("/home/me/project/train.py", "<module>", 3),
    ];
    let autograd = [frame("??", "torch::unwind::unwind()", 0), frame("??", "MmBackward0::apply(std::vector<int>)", 0)];
    let (own, cpp) = (builder.stack(&frames), builder.stack(&autograd));
    for (address, stack) in [(0, own), (1, cpp), (2, StackId::NONE)] {
        let event = stalloc_trace::RawEvent::Alloc { address, size: 3 * MIB, stream: 0, stack };
        builder.push(event, None);
    }
    let trace = builder.finish();
    let mut sites = Sites::new(&trace);
    let names: Vec<String> = trace.requests.iter().map(|request| sites.of(request).to_string()).collect();
    assert_eq!(names, ["model/torch_block.py:42 forward", "MmBackward0::apply", "blocks of 2 to 4 MiB, no call stack"]);
}

#[test]
fn figures_in_words_never_claim_more_than_there_is() {
    assert_eq!(percent(0.99999), "99.99 %");
    assert_eq!(percent(1.0), "100 %");
    assert_eq!((percent(0.0001), percent(0.0)), ("under 0.1 %".into(), "0 %".into()));
    assert_eq!(percent(0.309_63), "30.9 %");
    assert_eq!(percent(0.1), "10 %");
    assert_eq!(bytes(0), "0 B");
    assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    assert_eq!(size_class(512), "up to 512 B");
    assert_eq!(size_class(MIB), "512 KiB to 1 MiB");
    assert_eq!(size_class(MIB + 1), "1 to 2 MiB");
    assert_eq!(size_class(u64::MAX), "8388608 to 16777216 TiB");
}

/// Whether no two blocks that live at one moment share a place on the map, and every block lies in memory that is held.
fn is_faithful(trace: &Trace, layout: &Layout) -> bool {
    let blocks: Vec<(u64, u64, std::ops::Range<Time>)> = trace
        .requests
        .iter()
        .zip(&layout.places)
        .filter_map(|(request, place)| Some(((*place)?, (*place)? + rounded(request.size), trace.lifetime(request))))
        .filter(|(_, _, lifetime)| !lifetime.is_empty())
        .collect();
    let apart = |a: &(u64, u64, std::ops::Range<Time>), b: &(u64, u64, std::ops::Range<Time>)| {
        a.1 <= b.0 || b.1 <= a.0 || a.2.end <= b.2.start || b.2.end <= a.2.start
    };
    let held = |block: &(u64, u64, std::ops::Range<Time>)| {
        let covers = |at: u64| {
            let inside = |part: &&crate::layout::Held| {
                part.begin <= block.2.start
                    && block.2.start < part.end
                    && part.offset <= at
                    && at < part.offset + part.size
            };
            layout.held.iter().any(|part| inside(&part))
        };
        covers(block.0) && covers(block.1 - 1)
    };
    blocks.iter().enumerate().all(|(i, a)| blocks[i + 1..].iter().all(|b| apart(a, b))) && blocks.iter().all(held)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_map_keeps_blocks_apart_and_inside_what_is_held(choices in prop::collection::vec((0u8..3, 1u64..40_000_000), 1..120)) {
        let mut maker = Maker::new();
        let mut live = Vec::new();
        for (i, (choice, size)) in choices.into_iter().enumerate() {
            if choice == 0 && !live.is_empty() {
                let at = size as usize % live.len();
                maker.free(live.swap_remove(at));
            } else {
                let address = (i as u64 + 1) << 40;
                maker.alloc(address, size, StackId::NONE);
                live.push(address);
            }
        }
        let trace = maker.trace();
        for kind in [Kind::Pytorch, Kind::PytorchExpandable] {
            let replay = replay(&trace, kind, &Options::default(), &mut |_, _| {}).unwrap();
            prop_assert!(is_faithful(&trace, &Layout::new(&trace, &replay)), "{}", kind.name());
        }
    }
}
