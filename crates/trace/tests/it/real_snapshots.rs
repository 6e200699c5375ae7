//! Real snapshots: what was worked out backwards, played forwards again, must end where the snapshot ends.

use std::collections::BTreeMap;

use stalloc_trace::{BlockState, Event, MemoryState, SegmentAction, Trace};

/// Address to size of what is reserved, expandable ranges joined.
fn reserved(state: &MemoryState) -> BTreeMap<u64, u64> {
    let mut ranges = BTreeMap::new();
    for segment in &state.segments {
        add(&mut ranges, segment.address, segment.size, segment.expandable);
    }
    ranges
}

fn add(ranges: &mut BTreeMap<u64, u64>, start: u64, size: u64, join: bool) {
    let previous = ranges.range(..start).next_back().map(|(&at, &size)| (at, size));
    let (mut start, mut end) = (start, start + size);
    if let Some((at, before)) = previous.filter(|&(at, before)| join && at + before == start) {
        ranges.remove(&at);
        start = at;
        assert!(before > 0);
    }
    if join && let Some(after) = ranges.remove(&end) {
        end += after;
    }
    assert!(ranges.insert(start, end - start).is_none());
}

fn remove(ranges: &mut BTreeMap<u64, u64>, start: u64, size: u64) {
    let (&at, &whole) = ranges.range(..=start).next_back().expect("a range that is reserved");
    let (end, range_end) = (start + size, at + whole);
    assert!(end <= range_end);
    ranges.remove(&at);
    for (from, to) in [(at, start), (end, range_end)] {
        if from < to {
            ranges.insert(from, to - from);
        }
    }
}

fn plays_forward(trace: &Trace, name: &str) {
    let (Some(initial), Some(last)) = (&trace.initial, &trace.last) else { return };
    let mut ranges = reserved(initial);
    let mut live = BTreeMap::new();
    for segment in &initial.segments {
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "{name}: blocks cover a segment without gaps");
            assert!(block.size > 0);
            at += block.size;
            if let Some(request) = block.request {
                assert!(trace.request(request).alloc.is_none());
                assert!(block.size >= block.requested);
                live.insert(block.address, request);
            } else {
                assert_eq!(block.state, BlockState::Inactive);
            }
        }
        assert_eq!(at, segment.address + segment.size);
    }
    assert_eq!(live.len(), trace.requests.iter().filter(|r| r.alloc.is_none()).count(), "{name}");
    for event in &trace.events {
        match *event {
            Event::Alloc(id) => {
                let request = trace.request(id);
                let (start, end) = (request.address.unwrap(), request.address.unwrap() + request.size);
                let overlap = live.range(..end).next_back();
                assert!(overlap.is_none_or(|(&at, &other)| at + trace.request(other).size <= start), "{name}");
                assert!(live.insert(start, id).is_none(), "{name}");
                let (&at, &size) = ranges.range(..=start).next_back().unwrap();
                assert!(end <= at + size, "{name}: a request lies in reserved memory");
            }
            Event::FreeCompleted(id) => {
                assert_eq!(live.remove(&trace.request(id).address.unwrap()), Some(id));
            }
            Event::Segment(segment) => match segment.action {
                SegmentAction::Alloc => add(&mut ranges, segment.address, segment.size, false),
                SegmentAction::Map => add(&mut ranges, segment.address, segment.size, true),
                SegmentAction::Free | SegmentAction::Unmap => remove(&mut ranges, segment.address, segment.size),
            },
            _ => {}
        }
    }
    assert_eq!(ranges, reserved(last), "{name}: reserved at the end");
    let at_end: BTreeMap<_, _> = last
        .segments
        .iter()
        .flat_map(|s| &s.blocks)
        .filter(|b| b.state != BlockState::Inactive)
        .map(|b| (b.address, b.request.expect("a request in each used block")))
        .collect();
    assert_eq!(live, at_end, "{name}: live at the end");
    for block in last.segments.iter().flat_map(|s| &s.blocks) {
        if let Some(request) = block.request {
            assert_eq!(trace.request(request).size, block.requested, "{name}");
        }
    }
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn the_state_before_the_first_entry_leads_to_the_state_at_the_end() {
    for path in crate::common::snapshots() {
        let recording = crate::common::read(&path);
        for trace in &recording.traces {
            let name = format!("{} device {}", path.file_name().unwrap().to_string_lossy(), trace.device);
            let initial = trace.initial.as_ref().map_or(0, MemoryState::reserved);
            eprintln!(
                "{name}: {} events, {} requests, {} stacks, peak {}, initial {initial}, warnings {:?}",
                trace.events.len(),
                trace.requests.len(),
                trace.stacks.len(),
                trace.peak_allocated(),
                recording.warnings
            );
            plays_forward(trace, &name);
        }
    }
}
