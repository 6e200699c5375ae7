//! The empty parts of what an allocator holds at one moment, and the blocks that keep them from being given back.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde::Serialize;
use stalloc_simulator::Replay;
use stalloc_trace::{RequestId, Time, Trace};

use crate::categories::Category;
use crate::curve::peak_within;
use crate::layout::Layout;
use crate::sites::{Sites, size_class};

/// How many holes, pins and segments are described one by one.
const DESCRIBED: usize = 50;

/// A block next to a hole or in a segment.
#[derive(Clone, Debug, Serialize)]
pub struct Neighbour {
    /// Its call site, or its size class where no call stack was recorded.
    pub site: Rc<str>,
    /// Its size as PyTorch counts it, bytes.
    pub size: u64,
    /// What it seems to hold.
    pub category: &'static str,
    /// Start of its lifetime.
    pub begin: Time,
    /// End of its lifetime.
    pub end: Time,
}

/// A range that is held and empty.
#[derive(Clone, Debug, Serialize)]
pub struct Hole {
    /// Place on the map's address axis, bytes.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Since when it has been empty.
    pub begin: Time,
    /// Until when it stays empty.
    pub end: Time,
    /// The segment that it lies in, counted by address.
    pub segment: usize,
    /// The block at its lower end; `None` at the start of the segment.
    pub below: Option<Neighbour>,
    /// The block at its upper end; `None` at the end of the segment.
    pub above: Option<Neighbour>,
}

/// A segment with empty memory in it.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentWaste {
    /// The segment, counted by address.
    pub segment: usize,
    /// Place on the map's address axis, bytes.
    pub offset: u64,
    /// Its size, bytes.
    pub bytes: u64,
    /// Live bytes in it.
    pub live: u64,
    /// Empty bytes in it.
    pub wasted: u64,
    /// Live blocks in it.
    pub blocks: usize,
    /// Those of its blocks that live longest.
    pub pins: Vec<Neighbour>,
}

/// Empty memory next to the blocks of one call site and size class.
#[derive(Clone, Debug, Serialize)]
pub struct Pin {
    /// The call site, or the size class where no call stack was recorded.
    pub site: Rc<str>,
    /// The size class.
    pub size_class: String,
    /// Empty bytes next to such blocks; a hole between two blocks counts half for each.
    pub bytes: u64,
    /// How many such blocks there are.
    pub blocks: usize,
}

/// What an allocator holds and does not use at the moment of most reserved memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Holes {
    /// The moment, event time.
    pub peak_time: Time,
    /// Reserved bytes then.
    pub reserved_at_peak: u64,
    /// Live bytes then.
    pub allocated_at_peak: u64,
    /// The largest holes.
    pub holes: Vec<Hole>,
    /// How many there are.
    pub holes_total: usize,
    /// Their sum, bytes.
    pub holes_bytes: u64,
    /// Who borders them, most bytes first.
    pub pins: Vec<Pin>,
    /// Segments with nothing in them: cached, and given back when the device is out of memory.
    pub free_segments: usize,
    /// Their sum, bytes.
    pub free_segments_bytes: u64,
    /// The emptiest of the segments that live blocks keep.
    pub segments: Vec<SegmentWaste>,
}

/// A maximal range of held memory, with the live blocks in it by address.
struct Region {
    offset: u64,
    end: u64,
    begin: Time,
    until: Time,
    /// (offset, end, request)
    blocks: Vec<(u64, u64, RequestId)>,
}

struct FreeGap {
    region: usize,
    offset: u64,
    end: u64,
    below: Option<RequestId>,
    above: Option<RequestId>,
}

/// Finds the holes of a replay. O(requests + segments log segments), and the requests once for each hole described.
pub fn holes(
    trace: &Trace,
    replay: &Replay,
    layout: &Layout,
    live: &[(Time, u64)],
    categories: &[Category],
    sites: &mut Sites<'_>,
) -> Holes {
    let time = peak_moment(trace, replay, live);
    let regions = regions_at(trace, replay, layout, time);
    let mut gaps = find_gaps(&regions);
    gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.end - gap.offset), gap.offset));
    let mut neighbour = |id: RequestId| {
        let request = trace.request(id);
        let lifetime = trace.lifetime(request);
        Neighbour {
            site: sites.of(request),
            size: request.rounded(),
            category: categories[id.index()].name(),
            begin: lifetime.start,
            end: lifetime.end,
        }
    };
    let described = gaps.iter().take(DESCRIBED).map(|gap| {
        let (begin, end) = empty_during(trace, layout, &regions[gap.region], gap, time);
        Hole {
            offset: gap.offset,
            bytes: gap.end - gap.offset,
            begin,
            end,
            segment: gap.region,
            below: gap.below.map(&mut neighbour),
            above: gap.above.map(&mut neighbour),
        }
    });
    let holes: Vec<Hole> = described.collect();
    let segments = emptiest(trace, &regions, &mut neighbour);
    let free = || regions.iter().filter(|region| region.blocks.is_empty());
    Holes {
        peak_time: time,
        reserved_at_peak: regions.iter().map(|region| region.end - region.offset).sum(),
        allocated_at_peak: regions.iter().flat_map(|r| &r.blocks).map(|(low, high, _)| high - low).sum(),
        holes_total: gaps.len(),
        holes_bytes: gaps.iter().map(|gap| gap.end - gap.offset).sum(),
        pins: pins(trace, &gaps, &mut neighbour),
        holes,
        free_segments: free().count(),
        free_segments_bytes: free().map(|region| region.end - region.offset).sum(),
        segments,
    }
}

/// The moment to look at: just after reserved memory grew to (99 % of) its peak, when an empty place would have helped;
/// if it was there from the start, the moment of most live bytes while it stays there.
fn peak_moment(trace: &Trace, replay: &Replay, live: &[(Time, u64)]) -> Time {
    let enough = replay.peak_reserved - replay.peak_reserved / 100;
    let Some(at) = replay.reserved.iter().position(|&(_, bytes)| bytes >= enough) else { return 0 };
    let first = replay.reserved[at].0;
    let after = replay.reserved[at..].iter().find(|&&(_, bytes)| bytes < enough).map_or(trace.end(), |&(t, _)| t);
    if first == 0 {
        return peak_within(live, 0..after.max(1)).0;
    }
    // A segment is taken just before the block that it is for.
    let alloc = |t: &Time| matches!(trace.events.get(*t as usize), Some(stalloc_trace::Event::Alloc(_)));
    (first..after).take(64).find(alloc).unwrap_or(first)
}

fn regions_at(trace: &Trace, replay: &Replay, layout: &Layout, time: Time) -> Vec<Region> {
    let mut held: Vec<_> = layout.held.iter().filter(|h| h.begin <= time && time < h.end && h.size > 0).collect();
    held.sort_by_key(|h| h.offset);
    let mut regions: Vec<Region> = Vec::new();
    let mut island = None;
    for part in held {
        match regions.last_mut() {
            Some(last) if last.end == part.offset && island == Some(part.island) => {
                last.end = part.offset + part.size;
                last.begin = last.begin.max(part.begin);
                last.until = last.until.min(part.end);
            }
            _ => regions.push(Region {
                offset: part.offset,
                end: part.offset + part.size,
                begin: part.begin,
                until: part.end,
                blocks: Vec::new(),
            }),
        }
        island = Some(part.island);
    }
    for placement in &replay.placements {
        let request = trace.request(placement.request);
        let Some(offset) = layout.places.get(placement.request.index()).copied().flatten() else { continue };
        if !trace.lifetime(request).contains(&time) {
            continue;
        }
        let at = regions.partition_point(|region| region.end <= offset);
        if let Some(region) = regions.get_mut(at).filter(|region| region.offset <= offset) {
            let end = offset.saturating_add(request.rounded()).min(region.end);
            region.blocks.push((offset, end, placement.request));
        }
    }
    for region in &mut regions {
        region.blocks.sort_unstable_by_key(|&(offset, _, _)| offset);
    }
    regions
}

fn find_gaps(regions: &[Region]) -> Vec<FreeGap> {
    let mut gaps = Vec::new();
    for (index, region) in regions.iter().enumerate() {
        let mut at = region.offset;
        let mut below = None;
        for &(offset, end, id) in &region.blocks {
            if offset > at {
                gaps.push(FreeGap { region: index, offset: at, end: offset, below, above: Some(id) });
            }
            if end > at {
                at = end;
                below = Some(id);
            }
        }
        if region.end > at {
            gaps.push(FreeGap { region: index, offset: at, end: region.end, below, above: None });
        }
    }
    gaps
}

/// Around `time`, for how long nothing lived in any part of a gap.
fn empty_during(trace: &Trace, layout: &Layout, region: &Region, gap: &FreeGap, time: Time) -> (Time, Time) {
    let (mut begin, mut end) = (region.begin, region.until);
    for (request, place) in trace.requests.iter().zip(&layout.places) {
        let Some(place) = *place else { continue };
        if place >= gap.end || place.saturating_add(request.rounded()) <= gap.offset {
            continue;
        }
        let lifetime = trace.lifetime(request);
        if lifetime.end <= time {
            begin = begin.max(lifetime.end);
        } else if lifetime.start > time {
            end = end.min(lifetime.start);
        }
    }
    (begin.min(time), end.max(time.saturating_add(1)))
}

fn pins(trace: &Trace, gaps: &[FreeGap], neighbour: &mut impl FnMut(RequestId) -> Neighbour) -> Vec<Pin> {
    let mut sums: BTreeMap<(Rc<str>, String), (u64, BTreeSet<RequestId>)> = BTreeMap::new();
    for gap in gaps {
        let sides: Vec<RequestId> = gap.below.into_iter().chain(gap.above).collect();
        for &id in &sides {
            let key = (neighbour(id).site, size_class(trace.request(id).rounded()));
            let sum = sums.entry(key).or_default();
            sum.0 += (gap.end - gap.offset) / sides.len() as u64;
            sum.1.insert(id);
        }
    }
    let mut pins: Vec<Pin> = sums
        .into_iter()
        .map(|((site, size_class), (bytes, blocks))| Pin { site, size_class, bytes, blocks: blocks.len() })
        .collect();
    pins.sort_by_key(|pin| std::cmp::Reverse(pin.bytes));
    pins.truncate(DESCRIBED);
    pins
}

fn emptiest(
    trace: &Trace,
    regions: &[Region],
    neighbour: &mut impl FnMut(RequestId) -> Neighbour,
) -> Vec<SegmentWaste> {
    let live = |region: &Region| region.blocks.iter().map(|(low, high, _)| high - low).sum::<u64>();
    let mut order: Vec<(u64, usize)> = regions
        .iter()
        .enumerate()
        .filter(|(_, region)| !region.blocks.is_empty())
        .map(|(i, region)| ((region.end - region.offset).saturating_sub(live(region)), i))
        .filter(|&(wasted, _)| wasted > 0)
        .collect();
    order.sort_by_key(|&(wasted, i)| (std::cmp::Reverse(wasted), i));
    order.truncate(DESCRIBED);
    order
        .into_iter()
        .map(|(wasted, index)| {
            let region = &regions[index];
            let mut longest: Vec<RequestId> = region.blocks.iter().map(|&(_, _, id)| id).collect();
            longest.sort_by_key(|&id| {
                let request = trace.request(id);
                (std::cmp::Reverse(trace.lifetime(request).end), std::cmp::Reverse(request.rounded()), id)
            });
            SegmentWaste {
                segment: index,
                offset: region.offset,
                bytes: region.end - region.offset,
                live: live(region),
                wasted,
                blocks: region.blocks.len(),
                pins: longest.into_iter().take(3).map(&mut *neighbour).collect(),
            }
        })
        .collect()
}
