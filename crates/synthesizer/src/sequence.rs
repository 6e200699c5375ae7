//! A trace as the synthesizer sees it: requests in order, each with the place in that order at which it dies.
//!
//! Only an allocation can make two lifetimes collide, so the order of allocations is the only clock that matters:
//! instant `i` is just before request `i`.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use stalloc_trace::{StackId, Time, Trace};

/// Never freed within the trace.
pub const NEVER: u32 = u32::MAX;

/// Requests in order, as numbers that can be compared.
pub struct Sequence {
    /// How many requests were live before the first event; they are the first ones.
    pub initial: u32,
    /// For each request, the first request that finds it gone, or [`NEVER`].
    pub dies: Vec<u32>,
    /// What asks: call stack and stream; without call stacks, size and stream.
    pub site: Vec<u32>,
    /// What asks for how much: site and rounded size.
    pub exact: Vec<u32>,
    /// Rounded size, bytes.
    pub size: Vec<u64>,
    /// Stream.
    pub stream: Vec<u32>,
}

impl Sequence {
    /// The requests of a trace. O(n log n).
    pub fn new(trace: &Trace) -> Self {
        let requests = &trace.requests;
        let initial = requests.partition_point(|r| r.alloc.is_none()) as u32;
        let stacks = requests.iter().any(|r| r.stack != StackId::NONE);
        let mut sites = Classes::default();
        let mut exacts = Classes::default();
        let clock = Clock { trace, initial };
        let mut sequence = Sequence {
            initial,
            dies: Vec::with_capacity(requests.len()),
            site: Vec::with_capacity(requests.len()),
            exact: Vec::with_capacity(requests.len()),
            size: Vec::with_capacity(requests.len()),
            stream: Vec::with_capacity(requests.len()),
        };
        for request in requests {
            let size = request.rounded();
            let site = sites.of(&(request.stack, request.stream, if stacks { 0 } else { size }));
            sequence.dies.push(request.free_completed.map_or(NEVER, |time| clock.at(time)));
            sequence.site.push(site);
            sequence.exact.push(exacts.of(&(site, size)));
            sequence.size.push(size);
            sequence.stream.push(request.stream.0);
        }
        sequence
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.dies.len()
    }
}

/// Turns event times into places in the order of requests.
pub struct Clock<'a> {
    trace: &'a Trace,
    initial: u32,
}

impl<'a> Clock<'a> {
    /// The clock of a trace.
    pub fn new(trace: &'a Trace) -> Self {
        Clock { trace, initial: trace.requests.partition_point(|r| r.alloc.is_none()) as u32 }
    }

    /// The first request at or after an event.
    pub fn at(&self, time: Time) -> u32 {
        let allocated = &self.trace.requests[self.initial as usize..];
        self.initial + allocated.partition_point(|r| r.alloc.is_some_and(|alloc| alloc < time)) as u32
    }
}

/// Numbers values so that equal ones have equal numbers, counted in the order of appearance.
#[derive(Default)]
struct Classes(FxHashMap<u64, u32>);

impl Classes {
    fn of<T: Hash>(&mut self, value: &T) -> u32 {
        let mut hasher = FxHasher::default();
        value.hash(&mut hasher);
        let next = self.0.len() as u32;
        *self.0.entry(hasher.finish()).or_insert(next)
    }
}
