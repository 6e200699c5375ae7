//! Snapshots of a few segments and entries: what was there before the first entry, and what each block says of itself.

use crate::common::pickled::{dict, entry, int, pickle, recording, snapshot, text};
use stalloc_trace::site::BACKWARD_PASS;
use stalloc_trace::{BlockState, MemoryState, StackId, Trace};

const MIB: i64 = 1 << 20;

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](".to_vec(), items.concat(), b"e".to_vec()].concat()
}

/// An entry of so many MiB at so many.
fn pages(action: &str, address: i64, size: i64) -> Vec<u8> {
    entry(action, &int(address * MIB), &int(size * MIB))
}

/// A segment of so many MiB at so many.
fn segment(address: i64, size: i64, expandable: bool, blocks: &[Vec<u8>]) -> Vec<u8> {
    let expandable: &[u8] = if expandable { b"\x88" } else { b"\x89" };
    dict(&[
        ("address", &int(address * MIB)),
        ("total_size", &int(size * MIB)),
        ("is_expandable", expandable),
        ("blocks", &list(blocks)),
    ])
}

/// A block of 512 bytes, with further fields.
fn block(state: &str, requested: i64, more: &[(&str, &[u8])]) -> Vec<u8> {
    let (state, requested, size) = (text(state), int(requested), int(512));
    dict(&[&[("state", &state[..]), ("requested_size", &requested), ("size", &size)], more].concat())
}

fn trace(entries: &[Vec<u8>], segments: &[Vec<u8>]) -> Trace {
    let mut read = recording(&snapshot(entries, segments));
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    read.traces.remove(0)
}

/// Address and size of each segment, in MiB.
fn reserved(state: &Option<MemoryState>) -> Vec<(u64, u64)> {
    state.as_ref().unwrap().segments.iter().map(|segment| (segment.address >> 20, segment.size >> 20)).collect()
}

#[test]
fn a_segment_that_was_made_is_not_there_before_and_must_have_the_length_it_was_made_with() {
    let made = trace(&[pages("segment_alloc", 32, 20)], &[segment(32, 20, false, &[])]);
    assert_eq!((reserved(&made.initial), reserved(&made.last)), (vec![], vec![(32, 20)]));
    let odd = recording(&snapshot(&[pages("segment_alloc", 32, 22)], &[segment(32, 20, false, &[])]));
    assert!(odd.warnings[0].contains("1 entries of the trace do not fit"), "{:?}", odd.warnings);
}

#[test]
fn pages_that_were_unmapped_before_or_behind_an_expandable_segment_were_part_of_it() {
    let now = [segment(32, 20, true, &[])];
    let before = |entries: &[Vec<u8>]| reserved(&trace(entries, &now).initial);
    let (behind, in_front) = (pages("segment_unmap", 52, 4), pages("segment_unmap", 26, 6));
    assert_eq!(before(std::slice::from_ref(&behind)), [(32, 24)]);
    assert_eq!(before(std::slice::from_ref(&in_front)), [(26, 26)]);
    assert_eq!(before(&[behind, in_front]), [(26, 30)]);
    // Between two: all three are one.
    let two = [segment(32, 20, true, &[]), segment(60, 2, true, &[])];
    assert_eq!(reserved(&trace(&[pages("segment_unmap", 52, 8)], &two).initial), [(32, 30)]);
}

#[test]
fn a_block_where_one_segment_ends_and_the_next_begins_is_in_the_next() {
    let first = block("active_allocated", 500, &[]);
    let trace = trace(&[], &[segment(32, 20, false, &[]), segment(52, 20, false, &[first])]);
    let segments = &trace.initial.as_ref().unwrap().segments;
    let used = |segment: usize| segments[segment].blocks.iter().filter(|block| block.request.is_some()).count();
    assert_eq!((used(0), used(1)), (0, 1));
    assert_eq!(trace.initial, trace.last);
}

#[test]
fn a_free_block_holds_nothing_whatever_was_last_requested_of_it() {
    let blocks =
        [block("inactive", 500, &[]), block("active_allocated", 500, &[]), block("active_awaiting_free", 600, &[])];
    let trace = trace(&[], &[segment(32, 20, false, &blocks)]);
    let blocks = &trace.last.as_ref().unwrap().segments[0].blocks;
    let found: Vec<_> = blocks[..3].iter().map(|block| (block.state, block.requested)).collect();
    // None holds more than its own length.
    assert_eq!(found, [(BlockState::Inactive, 0), (BlockState::Active, 500), (BlockState::PendingFree, 512)]);
}

#[test]
fn a_block_of_the_backward_pass_is_told_by_the_forward_pass_alone() {
    let forward =
        list(&[text("  File \"/job/net.py\", line 7, in forward\n"), text("  File \"/job/a.py\", line 3, in main\n")]);
    let own = dict(&[("filename", &text("/job/a.py")), ("name", &text("main")), ("line", b"K\x05")]);
    let own = list(&[own]);
    let blocks = [
        block("active_allocated", 1, &[("forward_frames", &forward)]),
        block("active_allocated", 2, &[("frames", &own), ("forward_frames", &list(&[]))]),
        block("active_allocated", 3, &[("frames", &own)]),
        block("active_allocated", 4, &[]),
    ];
    let trace = trace(&[], &[segment(32, 20, false, &blocks)]);
    let stack = |request: usize| -> Vec<(&str, u32)> {
        let frames = trace.stacks.get(trace.requests[request].stack).iter();
        frames.map(|frame| (trace.string(frame.function), frame.line)).collect()
    };
    assert_eq!(stack(0), [(BACKWARD_PASS, 0), ("main", 3), ("forward", 7)]);
    assert_eq!(stack(1), [("main", 5)], "no forward pass is known");
    assert_eq!(stack(2), [("main", 5)]);
    assert_eq!(trace.requests[3].stack, StackId::NONE);
}

#[test]
fn a_trace_has_no_stacks_until_one_is_recorded() {
    let own = list(&[dict(&[("filename", &text("/job/a.py")), ("name", &text("main")), ("line", b"K\x05")])]);
    let with = |more: &[(&str, &[u8])]| trace(&[], &[segment(32, 20, false, &[block("active_allocated", 1, more)])]);
    assert!(with(&[]).stacks.is_empty());
    assert!(!with(&[("frames", &own)]).stacks.is_empty());
}

#[test]
fn a_pickle_may_push_its_last_value_once_more() {
    let (one, again) = (entry("snapshot", b"K\x00", b"K\x00"), b"2".to_vec());
    assert_eq!(trace(&[one, again], &[]).events.len(), 2);
    assert!(stalloc_trace::read_bytes(&pickle(&[b"2."])[..], 1 << 20).is_err(), "nothing to push");
}
