//! Snapshots as Python writes them: every protocol, old and new fields. The files in `data` are one small snapshot
//! each; its figures are in the tests.

use std::path::Path;

use stalloc_trace::{BlockState, Event, Mark, Pool, Recording, Trace};

const START: u64 = 0x7F00_0000_0000;

fn read(name: &str) -> Recording {
    let recording = crate::common::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name));
    assert!(recording.warnings.is_empty(), "{name}: {:?}", recording.warnings);
    recording
}

fn kinds(trace: &Trace) -> String {
    let kind = |event: &Event| match event {
        Event::Alloc(_) => 'a',
        Event::FreeRequested(_) => 'r',
        Event::FreeCompleted(_) => 'c',
        Event::OutOfMemory { .. } => 'o',
        Event::Snapshot => 's',
        Event::Mark(Mark::AnnotationBegin(_)) => '(',
        Event::Mark(Mark::AnnotationEnd(_)) => ')',
        _ => '?',
    };
    trace.events.iter().map(kind).collect()
}

#[test]
fn every_protocol_gives_the_same_traces() {
    let recordings = [2, 3, 4, 5].map(|protocol| read(&format!("protocol{protocol}.pickle")));
    for recording in &recordings {
        assert!(recording.traces == recordings[2].traces);
    }
    let [first, second] = recordings[2].traces.as_slice() else { panic!("two devices hold something") };

    // At equal times a range begins before an entry and ends after it.
    assert_eq!(kinds(first), "r(ca)os");
    assert_eq!(first.requests.len(), 2);
    let (before, made) = (&first.requests[0], &first.requests[1]);
    assert_eq!((before.alloc, before.size, before.address), (None, 3 << 20, Some(START + (4 << 20))));
    assert_eq!((before.free_requested, before.free_completed), (Some(0), Some(2)));
    assert_eq!((made.alloc, made.size, made.free_requested), (Some(3), (2 << 20) - 100, None));
    let stack = first.stacks.get(made.stack);
    assert_eq!((first.string(stack[1].function), stack[0].line), ("main", 7));
    assert!(matches!(first.events[5], Event::OutOfMemory { size: 0x4000_0000_0000_0000, device_free: 9, .. }));
    assert_eq!(first.times_us[0], 1_750_000_000_000_001);
    assert_eq!(first.streams, [1 << 33]);
    let settings = first.settings.as_ref().unwrap();
    assert_eq!((settings.max_split_size, settings.garbage_collection_threshold), (Some(256 << 20), 0.5));
    assert_eq!(settings.roundup_power2_divisions, [(1, 4), (2, 0)]);
    assert_eq!(first.metadata["PYTORCH_CUDA_ALLOC_CONF"], "max_split_size_mb:256");
    // 3 MiB were live 4 MiB into the segment, with free memory on both sides.
    let segment = &first.initial.as_ref().unwrap().segments[0];
    let blocks: Vec<(u64, u64, bool)> =
        segment.blocks.iter().map(|b| (b.address - START, b.size >> 20, b.request.is_some())).collect();
    assert_eq!(blocks, [(0, 4, false), (4 << 20, 3, true), (7 << 20, 13, false)]);

    // Given back at the end, but other streams still use it.
    assert_eq!((second.device, kinds(second)), (1, "r".to_owned()));
    let segment = &second.last.as_ref().unwrap().segments[0];
    assert_eq!((segment.pool, segment.private_pool, segment.expandable), (Pool::Small, (0, 3), true));
    assert_eq!(segment.blocks[0].state, BlockState::PendingFree);
    assert_eq!((second.requests[0].free_requested, second.requests[0].free_completed), (Some(0), None));
    assert_eq!(second.initial.as_ref().unwrap().segments[0].blocks[0].state, BlockState::Active);
}

#[test]
fn snapshots_of_versions_before_2_1_are_read() {
    let trace = read("before_2_1.pickle").traces.remove(0);
    assert_eq!(kinds(&trace), "arc");
    assert!(trace.times_us.is_empty());
    let last = &trace.last.as_ref().unwrap().segments[0];
    assert_eq!((last.blocks[0].requested, last.blocks[1].requested), (100, 200));
    assert_eq!(last.blocks[1].address, START + 512);
    let initial = trace.initial.as_ref().unwrap();
    let blocks: Vec<(u64, u64, BlockState)> =
        initial.segments[0].blocks.iter().map(|b| (b.address - START, b.size, b.state)).collect();
    assert_eq!(
        blocks,
        [
            (0, 512, BlockState::Inactive),
            (512, 512, BlockState::PendingFree),
            (1024, 1024, BlockState::PendingFree),
            (2048, (2 << 20) - 2048, BlockState::Inactive),
        ]
    );
    // What waits for other streams from the start is known by the state alone.
    assert!(trace.requests.iter().take(2).all(|request| request.alloc.is_none()));
}

#[test]
fn a_list_of_segments_alone_is_a_state() {
    let trace = read("segments_only.pickle").traces.remove(0);
    assert!(trace.events.is_empty());
    assert_eq!(trace.requests.len(), 2);
    assert_eq!(trace.initial.as_ref().unwrap().reserved(), 2 << 20);
    assert_eq!(trace.initial, trace.last);
}

#[test]
fn blocks_that_only_the_past_had_get_the_length_that_pytorch_gave_them() {
    let trace = read("unsplit.pickle").traces.remove(0);
    let segments = &trace.initial.as_ref().unwrap().segments;
    const MIB: u64 = 1 << 20;
    let used = |segment: usize| -> Vec<(u64, u64)> {
        let blocks = segments[segment].blocks.iter().filter(|b| b.request.is_some());
        blocks.map(|b| (b.address - segments[segment].address, b.size)).collect()
    };
    // What would be left of a large block is too little to be split off.
    assert_eq!(used(0), [(0, 20 * MIB)]);
    // In an expandable segment nothing is too little.
    assert_eq!(used(1), [(0, 19 * MIB + 512)]);
    assert_eq!(used(2), [(0, 1024), (2048, 1024)]);
    // The half MiB between two live blocks belongs to the first of them; 31 MiB behind the last are free.
    assert_eq!(used(3), [(0, 5 * MIB), (5 * MIB, 2 * MIB), (7 * MIB, 2 * MIB)]);
    // Nothing is split off a block above max_split_size.
    assert_eq!(used(4), [(0, 600 * MIB)]);
    // A segment that was given back was there, and free.
    assert_eq!((segments[5].size, segments[5].blocks.len()), (30 * MIB, 1));
    assert_eq!(trace.peak_reserved(), Some((20 + 20 + 2 + 40 + 600 + 30) * MIB));
}
