//! What really happened: the recorded allocator's own addresses and segments, as a replay like any other.

use std::collections::BTreeMap;

use stalloc_simulator::{PlacedBy, Placement, Replay, SegmentSpan};
use stalloc_trace::{Event, MemoryState, RequestId, SegmentAction, Time, Trace};

/// Name of the replay of what really happened.
pub const ACTUAL: &str = "actual";

/// The recorded run as a replay; `None` where the trace does not say what its allocator held. O(events log segments).
/// `failed` is not counted: it never was there.
pub fn actual(trace: &Trace, failed: Option<RequestId>) -> Option<Replay> {
    trace.peak_reserved()?;
    let has_segments = trace.events.iter().any(|event| matches!(event, Event::Segment(_)));
    let start = trace.initial.as_ref().or(if has_segments { None } else { trace.last.as_ref() });
    if start.is_none() && !has_segments {
        return None;
    }
    let mut held = HeldRanges::default();
    if let Some(state) = start {
        held.start(state);
    }
    let mut oom = None;
    for (time, event) in trace.events.iter().enumerate() {
        let time = time as Time;
        match event {
            Event::Segment(segment) => {
                let range = segment.address..segment.address.saturating_add(segment.size);
                match segment.action {
                    SegmentAction::Alloc | SegmentAction::Map => held.insert(range, time),
                    SegmentAction::Free | SegmentAction::Unmap => held.remove(range, time),
                }
                held.curve.push((time, held.bytes));
            }
            Event::OutOfMemory { .. } if oom.is_none() => oom = Some(time),
            _ => {}
        }
    }
    let segments = held.finish(trace.end().max(1));
    let placements = trace
        .requests
        .iter()
        .enumerate()
        .filter_map(|(i, request)| {
            let address = request.address?;
            Some(Placement { request: RequestId(i as u32), address, source: PlacedBy::Online })
        })
        .collect();
    Some(Replay {
        allocator: ACTUAL,
        peak_reserved: held.curve.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0),
        peak_allocated: peak_of(trace, false, |id| Some(id) != failed),
        oom,
        ns_per_op: 0.0,
        remaps: None,
        remapped_bytes: None,
        remaps_by_step: Vec::new(),
        driver_ms_by_step: Vec::new(),
        planned: None,
        driver_calls: 0,
        driver_ms: 0.0,
        waited_ms: 0.0,
        step_ms: None,
        reserved: held.curve,
        placements,
        segments,
    })
}

/// Most bytes at once of some requests, each until it is asked to be given back, or until it has been. O(events).
pub fn peak_of(trace: &Trace, until_completed: bool, counts: impl Fn(RequestId) -> bool) -> u64 {
    let size = |id: RequestId| if counts(id) { trace.request(id).rounded() } else { 0 };
    let before = (0..trace.requests.len()).filter(|&i| trace.requests[i].alloc.is_none());
    let mut live = before.fold(0u64, |sum, i| sum.saturating_add(size(RequestId(i as u32))));
    let mut peak = live;
    for event in &trace.events {
        match event {
            Event::Alloc(id) => live = live.saturating_add(size(*id)),
            Event::FreeRequested(id) if !until_completed => live = live.saturating_sub(size(*id)),
            Event::FreeCompleted(id) if until_completed => live = live.saturating_sub(size(*id)),
            _ => {}
        }
        peak = peak.max(live);
    }
    peak
}

/// Ranges of device memory held now, when each was taken, and what was held before.
#[derive(Default)]
struct HeldRanges {
    /// Start of a range: (end, taken at).
    open: BTreeMap<u64, (u64, Time)>,
    closed: Vec<SegmentSpan>,
    curve: Vec<(Time, u64)>,
    bytes: u64,
}

impl HeldRanges {
    fn start(&mut self, state: &MemoryState) {
        for segment in &state.segments {
            self.insert(segment.address..segment.address.saturating_add(segment.size), 0);
        }
        self.curve.push((0, self.bytes));
    }

    fn insert(&mut self, range: std::ops::Range<u64>, time: Time) {
        if range.is_empty() {
            return;
        }
        // A range that is held already counts once: a damaged file may take it twice.
        self.remove(range.clone(), time);
        self.bytes = self.bytes.saturating_add(range.end - range.start);
        self.open.insert(range.start, (range.end, time));
    }

    // Pages are unmapped in other portions than they were mapped in: split what is held where needed.
    fn remove(&mut self, range: std::ops::Range<u64>, time: Time) {
        let first =
            self.open.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start).map(|(&s, _)| s);
        let mut hit: Vec<u64> = first.into_iter().collect();
        hit.extend(self.open.range(range.start..range.end).map(|(&start, _)| start));
        for start in hit {
            let Some((end, since)) = self.open.remove(&start) else { continue };
            let (low, high) = (start.max(range.start), end.min(range.end));
            self.bytes = self.bytes.saturating_sub(high - low);
            self.close(low, high, since, time);
            if start < low {
                self.open.insert(start, (low, since));
            }
            if high < end {
                self.open.insert(high, (end, since));
            }
        }
    }

    fn close(&mut self, low: u64, high: u64, begin: Time, end: Time) {
        if end > begin {
            self.closed.push(SegmentSpan { address: low, size: high - low, begin, end });
        }
    }

    fn finish(&mut self, end: Time) -> Vec<SegmentSpan> {
        for (start, (top, since)) in std::mem::take(&mut self.open) {
            self.close(start, top, since, end);
        }
        std::mem::take(&mut self.closed)
    }
}
