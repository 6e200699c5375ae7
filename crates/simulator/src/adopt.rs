//! Starting from the state that a snapshot's trace starts from.

use rustc_hash::FxHashMap;
use stalloc_caching::{Adopted, SegmentPiece};
use stalloc_trace::{BlockState, Event, MemoryState, Pool, Segment, SegmentAction, Trace};

/// Two mapped pieces of one expandable range lie no further apart than this.
const REACH: u64 = 1 << 40;
/// Pages of small and of large expandable ranges.
const PAGES: [u64; 2] = [2 << 20, 20 << 20];

/// The segments to adopt, in the order of addresses. Pieces of one expandable range are one of them, with as much
/// address space after them as the recording leaves. O(n log n).
pub(crate) fn segments(trace: &Trace, state: &MemoryState) -> Vec<Adopted> {
    let mut owners: FxHashMap<(u64, u64), u32> = FxHashMap::from_iter([((0, 0), 0)]);
    let mut adopted: Vec<(Adopted, u64)> = Vec::new();
    for segment in &state.segments {
        let next = owners.len() as u32;
        let owner = *owners.entry(segment.private_pool).or_insert(next);
        let stream = trace.streams.get(segment.stream.0 as usize).copied().unwrap_or(0);
        let small = segment.pool == Pool::Small;
        let segment_end = segment.address.saturating_add(segment.size);
        let belongs = |(range, end): &&mut (Adopted, u64)| {
            range.expandable
                && segment.expandable
                && (range.stream, range.small, range.owner) == (stream, small, owner)
                && segment.address.checked_sub(*end).is_some_and(|gap| gap < REACH && gap.is_multiple_of(page(small)))
        };
        // Ranges of other pools may lie between two pieces in the list, but not in the address space.
        if let Some((range, end)) = adopted.last_mut().filter(belongs) {
            if segment.address > *end {
                range.parts.push(SegmentPiece::Unmapped { size: segment.address - *end });
            }
            range.parts.extend(parts(segment));
            *end = segment_end;
        } else {
            let (address, expandable) = (segment.address, segment.expandable);
            let segment = Adopted { address, stream, small, expandable, owner, parts: parts(segment) };
            adopted.push((segment, segment_end));
        }
    }
    extend_ranges(trace, &mut adopted);
    adopted.into_iter().map(|(segment, _)| segment).collect()
}

fn page(small: bool) -> u64 {
    PAGES[usize::from(!small)]
}

fn parts(segment: &Segment) -> Vec<SegmentPiece> {
    let part = |block: &stalloc_trace::RecordedBlock| match block.state {
        BlockState::Inactive => SegmentPiece::Free { size: block.size },
        BlockState::Active | BlockState::PendingFree => SegmentPiece::Live {
            size: block.size,
            requested: if block.requested == 0 { block.size } else { block.requested },
        },
    };
    segment.blocks.iter().filter(|block| block.size > 0).map(part).collect()
}

/// Gives expandable ranges the address space before them that the recording maps later, and as much as there is (up to
/// [`REACH`]) after them. Comes with the end of each.
fn extend_ranges(trace: &Trace, adopted: &mut [(Adopted, u64)]) {
    let mut mapped: Vec<(u64, u64, bool)> = trace.events.iter().filter_map(maps(trace)).collect();
    mapped.sort_unstable();
    let between = |from: u64, to: u64| {
        let first = mapped.partition_point(|m| m.0 < from);
        mapped[first..].iter().take_while(move |m| m.0 < to)
    };
    for place in 0..adopted.len() {
        let floor = place.checked_sub(1).map_or(0, |below| adopted[below].1);
        let next = adopted.get(place + 1).map_or(u64::MAX, |(above, _)| above.address);
        let (range, end) = &mut adopted[place];
        if !range.expandable {
            continue;
        }
        let (unit, start) = (page(range.small), range.address);
        let (stream, small) = (range.stream, range.small);
        let own = |m: &&(u64, u64, bool)| (m.1, m.2) == (stream, small) && m.0.abs_diff(start).is_multiple_of(unit);
        if let Some(&(lowest, ..)) = between(floor.max(start.saturating_sub(REACH)), start).find(own) {
            range.parts.insert(0, SegmentPiece::Unmapped { size: start - lowest });
            range.address = lowest;
        }
        let ceiling = next.min(end.saturating_add(REACH));
        let ceiling = between(*end, ceiling).find(|m| !own(m)).map_or(ceiling, |m| m.0);
        let room = ceiling.saturating_sub(*end) / unit * unit;
        if room > 0 {
            range.parts.push(SegmentPiece::Unmapped { size: room });
            *end += room;
        }
    }
}

/// Where an event maps or takes memory: address, stream, and whether for the small pool.
fn maps(trace: &Trace) -> impl Fn(&Event) -> Option<(u64, u64, bool)> + '_ {
    |event| match event {
        Event::Segment(e) if matches!(e.action, SegmentAction::Map | SegmentAction::Alloc) => {
            let stream = trace.streams.get(e.stream.0 as usize).copied().unwrap_or(0);
            Some((e.address, stream, e.size == page(true)))
        }
        _ => None,
    }
}
