//! Whether two traces ask for the same memory: a dry run against a run on a device, one rank against another.
//!
//! Requests are aligned by size and stream in the order of allocation; where they part, the comparison looks for the
//! nearest place from which they agree again, so that one request too many is one difference and not a million.
//! Of aligned requests the lifetimes are compared: after how many aligned requests each is given back. Addresses,
//! clocks and marks do not count.

use crate::fingerprint::StreamOrder;
use crate::ids::RequestId;
use crate::model::{Event, Trace};

/// Requests that must agree in a row for two traces to have found together again.
const AGREE: usize = 4;
/// How far ahead to look for that.
const LOOK_AHEAD: usize = 2000;

/// A difference between two traces, A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A request of A that B does not have.
    OnlyInA(RequestId),
    /// A request of B that A does not have.
    OnlyInB(RequestId),
    /// The same place of the program asks for another size, or on another stream.
    Changed(RequestId, RequestId),
    /// The same request is given back at another time.
    FreedElsewhere(RequestId, RequestId),
}

/// What two traces have in common and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Requests that are the same in both, lifetimes aside.
    pub aligned: u64,
    /// Events (requests served and given back) that are the same in both: of aligned requests that are given back at the
    /// same place of the order, two.
    pub same_events: u64,
    /// How many differences there are.
    pub differences: u64,
    /// The first of them, in the order of the traces; those of lifetimes come after the others.
    pub first: Vec<Difference>,
}

impl Comparison {
    fn add(&mut self, difference: Difference, most: usize) {
        self.differences += 1;
        if self.first.len() < most {
            self.first.push(difference);
        }
    }
}

/// Compares two traces request by request and names the first `most` differences. O(events) for traces that agree;
/// at most a few million steps for each place where they part.
pub fn compare(a: &Trace, b: &Trace, most: usize) -> Comparison {
    let mut result = Comparison::default();
    let (side_a, side_b) = (Side::new(a), Side::new(b));
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < side_a.requests.len() || j < side_b.requests.len() {
        if i < side_a.requests.len() && j < side_b.requests.len() && side_a.keys[i] == side_b.keys[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let (skip_a, skip_b) = find_together(&side_a.keys[i..], &side_b.keys[j..]);
        for n in 0..skip_a.max(skip_b) {
            let difference = match (n < skip_a, n < skip_b) {
                (true, true) => Difference::Changed(side_a.requests[i + n], side_b.requests[j + n]),
                (true, false) => Difference::OnlyInA(side_a.requests[i + n]),
                _ => Difference::OnlyInB(side_b.requests[j + n]),
            };
            result.add(difference, most);
        }
        (i, j) = (i + skip_a, j + skip_b);
    }
    result.aligned = pairs.len() as u64;
    let freed_a = side_a.freed(pairs.iter().map(|pair| pair.0));
    let freed_b = side_b.freed(pairs.iter().map(|pair| pair.1));
    for (&(i, j), (a, b)) in pairs.iter().zip(freed_a.iter().zip(&freed_b)) {
        let is_served_here = side_a.trace.request(side_a.requests[i]).alloc.is_some();
        result.same_events += u64::from(is_served_here) + u64::from(a == b && a.is_some());
        if a != b {
            result.add(Difference::FreedElsewhere(side_a.requests[i], side_b.requests[j]), most);
        }
    }
    result
}

/// One trace's requests in the order of allocation; those from before the first event by size, for their order says nothing.
struct Side<'a> {
    trace: &'a Trace,
    requests: Vec<RequestId>,
    /// Whether it was there before the first event, size and stream of each.
    keys: Vec<(bool, u64, u32)>,
}

impl<'a> Side<'a> {
    fn new(trace: &'a Trace) -> Self {
        let mut requests: Vec<RequestId> = (0..trace.requests.len() as u32).map(RequestId).collect();
        requests.sort_by_key(|&id| {
            let request = trace.request(id);
            match request.alloc {
                None => (0, request.size, request.free_requested),
                Some(time) => (1, time.into(), None),
            }
        });
        let mut streams = StreamOrder::default();
        let keys = requests.iter().map(|&id| {
            let request = trace.request(id);
            (request.alloc.is_none(), request.size, streams.number(request))
        });
        let keys = keys.collect();
        Side { trace, requests, keys }
    }

    /// For each aligned request, how many aligned requests were allocated before it was given back.
    fn freed(&self, aligned: impl Iterator<Item = usize>) -> Vec<Option<u32>> {
        let aligned: Vec<RequestId> = aligned.map(|index| self.requests[index]).collect();
        let mut counts = vec![false; self.trace.requests.len()];
        for id in &aligned {
            counts[id.index()] = true;
        }
        let mut freed = vec![None; self.trace.requests.len()];
        let mut allocated = 0;
        for event in &self.trace.events {
            match *event {
                Event::Alloc(id) => allocated += u32::from(counts[id.index()]),
                Event::FreeRequested(id) => freed[id.index()] = Some(allocated),
                _ => {}
            }
        }
        aligned.iter().map(|id| freed[id.index()]).collect()
    }
}

/// How many to skip on either side, as few as possible, until the two agree for a while; everything if they never do.
fn find_together<K: PartialEq>(a: &[K], b: &[K]) -> (usize, usize) {
    let agree = |i: usize, j: usize| {
        let (a, b) = (&a[i..], &b[j..]);
        let length = AGREE.min(a.len()).min(b.len());
        // At the very end there is nothing left to disagree on, if both end.
        (length == AGREE || a.len() == b.len()) && a[..length] == b[..length]
    };
    for skipped in 1..=(2 * LOOK_AHEAD).min(a.len() + b.len()) {
        // One replaced by another first, then more on one side than on the other.
        for lean in 0..=skipped.div_ceil(2) {
            for i in [(skipped / 2).checked_sub(lean), Some(skipped / 2 + lean)].into_iter().flatten() {
                let Some(j) = skipped.checked_sub(i) else { continue };
                if i <= a.len() && j <= b.len() && agree(i, j) {
                    return (i, j);
                }
            }
        }
    }
    (a.len(), b.len())
}
