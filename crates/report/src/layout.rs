//! Where blocks go on a map: device addresses are sparse, a map's axis must not be.
//!
//! Ranges of device memory that a block ever spans belong together (pages of an expandable segment); each such
//! *island* keeps its inner order and is moved down to a low place that is free while it lives, as segments
//! come and go. The height of a map is then about the most memory ever held.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use stalloc_simulator::{Replay, SegmentSpan};
use stalloc_trace::{Time, Trace};

use crate::free_ranges::FreeRanges;

/// Joins what was taken and given back together and lies together. An allocator that tries to map more pages than there
/// are, gives them back and tries again reports each of them, and one request of a few bytes of a file may ask for
/// more than any device has: without this, the work would grow with what is asked for and not with what is read.
/// O(segments log segments).
pub fn join_pages(segments: &mut Vec<SegmentSpan>) {
    segments.sort_unstable_by_key(|span| (span.begin, span.end, span.address));
    segments.dedup_by(|next, last| {
        let top = last.address.saturating_add(last.size);
        let joins = (last.begin, last.end) == (next.begin, next.end) && next.address <= top;
        if joins {
            last.size = next.address.saturating_add(next.size).max(top) - last.address;
        }
        joins
    });
}

/// A range of device memory on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// From when.
    pub begin: Time,
    /// Until when.
    pub end: Time,
    /// Place on the map's address axis, bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Ranges of one island keep their distances.
    pub island: u32,
}

/// A replay's blocks and segments on a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// For each request of the trace its place, if it was placed.
    pub places: Vec<Option<u64>>,
    /// Memory held, in the order of the replay's segments.
    pub held: Vec<Held>,
    /// Top of the map, bytes.
    pub height: u64,
}

impl Layout {
    /// Lays a replay out. O((requests + segments) log segments).
    pub fn new(trace: &Trace, replay: &Replay) -> Self {
        let mut spans: Vec<HeldSpan> = replay
            .segments
            .iter()
            .map(|s| HeldSpan {
                begin: s.begin,
                end: s.end.max(s.begin.saturating_add(1)),
                address: s.address,
                size: s.size,
            })
            .collect();
        let known = spans.len();
        let mut islands = Islands::new(known);
        let homes = find_homes(trace, replay, &mut spans, &mut islands);
        let offsets = pack(&spans, &mut islands);
        let mut layout = Layout { places: vec![None; trace.requests.len()], ..Layout::default() };
        for (placement, home) in replay.placements.iter().zip(homes) {
            let base = &offsets[&islands.root(home)];
            if let Some(place) = layout.places.get_mut(placement.request.index()) {
                *place = Some(base.offset + (placement.address - base.address));
            }
        }
        for (index, span) in spans.iter().enumerate() {
            let island = islands.root(index as u32);
            let base = &offsets[&island];
            let offset = base.offset + (span.address - base.address);
            layout.height = layout.height.max(offset.saturating_add(span.size));
            if index < known {
                layout.held.push(Held { begin: span.begin, end: span.end, offset, size: span.size, island });
            }
        }
        layout
    }
}

#[derive(Clone, Copy, Debug)]
struct HeldSpan {
    begin: Time,
    end: Time,
    address: u64,
    size: u64,
}

struct Base {
    address: u64,
    offset: u64,
}

/// Union-find over spans; the smallest index of an island is its name.
struct Islands {
    parent: Vec<u32>,
}

impl Islands {
    fn new(n: usize) -> Self {
        Islands { parent: (0..n as u32).collect() }
    }

    fn root(&mut self, mut at: u32) -> u32 {
        while self.parent[at as usize] != at {
            let up = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = up;
            at = up;
        }
        at
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}

/// The span that each placement starts in; spans that a placement crosses are joined. A placement in no span gets one
/// of its own.
fn find_homes(trace: &Trace, replay: &Replay, spans: &mut Vec<HeldSpan>, islands: &mut Islands) -> Vec<u32> {
    let mut begins: Vec<u32> = (0..spans.len() as u32).collect();
    begins.sort_by_key(|&i| spans[i as usize].begin);
    let mut ends = begins.clone();
    ends.sort_by_key(|&i| spans[i as usize].end);
    let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
    let mut open: BTreeMap<u64, u32> = BTreeMap::new();
    let mut homes = Vec::with_capacity(replay.placements.len());
    for placement in &replay.placements {
        let request = trace.request(placement.request);
        let lifetime = trace.lifetime(request);
        let now = lifetime.start;
        loop {
            // At one moment what ends makes room for what begins.
            let begin = begins.peek().map(|&i| spans[i as usize].begin).filter(|&t| t <= now);
            let end = ends.peek().map(|&i| spans[i as usize].end).filter(|&t| t <= now);
            match (begin, end) {
                (Some(b), Some(e)) if e <= b => close(&mut open, spans, ends.next()),
                (None, Some(_)) => close(&mut open, spans, ends.next()),
                (Some(_), _) => {
                    if let Some(i) = begins.next() {
                        open.insert(spans[i as usize].address, i);
                    }
                }
                (None, None) => break,
            }
        }
        let top = placement.address.saturating_add(request.rounded());
        let home = open.range(..=placement.address).next_back().map(|(_, &i)| i).filter(|&i| {
            let span = &spans[i as usize];
            placement.address < span.address.saturating_add(span.size)
        });
        let Some(home) = home else {
            homes.push(islands.parent.len() as u32);
            islands.parent.push(islands.parent.len() as u32);
            spans.push(HeldSpan {
                begin: now,
                end: lifetime.end.max(now.saturating_add(1)),
                address: placement.address,
                size: request.rounded(),
            });
            continue;
        };
        for (_, &next) in open.range(placement.address + 1..top.max(placement.address + 1)) {
            islands.join(home, next);
        }
        homes.push(home);
    }
    homes
}

fn close(open: &mut BTreeMap<u64, u32>, spans: &[HeldSpan], span: Option<u32>) {
    if let Some(i) = span {
        let address = spans[i as usize].address;
        if open.get(&address) == Some(&i) {
            open.remove(&address);
        }
    }
}

/// Moves each island to a low place that is free for as long as it lives. O(islands log islands).
fn pack(spans: &[HeldSpan], islands: &mut Islands) -> BTreeMap<u32, Base> {
    let mut whole: BTreeMap<u32, (Time, Time, u64, u64)> = BTreeMap::new();
    for (i, span) in spans.iter().enumerate() {
        let top = span.address.saturating_add(span.size);
        let island = whole.entry(islands.root(i as u32)).or_insert((span.begin, span.end, span.address, top));
        *island = (island.0.min(span.begin), island.1.max(span.end), island.2.min(span.address), island.3.max(top));
    }
    let mut order: Vec<(u32, (Time, Time, u64, u64))> = whole.into_iter().collect();
    order.sort_by_key(|&(_, (begin, _, low, _))| (begin, low));
    let mut free = FreeRanges::new();
    // Islands alive now, the first to end on top: (end, offset, top).
    let mut alive: BinaryHeap<Reverse<(Time, u64, u64)>> = BinaryHeap::new();
    let mut bases = BTreeMap::new();
    for (name, (begin, end, low, high)) in order {
        while let Some(&Reverse((_, offset, top))) = alive.peek().filter(|Reverse((until, ..))| *until <= begin) {
            alive.pop();
            free.give(offset, top);
        }
        let size = high - low;
        let offset = free.take(size);
        alive.push(Reverse((end, offset, offset.saturating_add(size))));
        bases.insert(name, Base { address: low, offset });
    }
    bases
}
