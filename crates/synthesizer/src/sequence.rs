//! A trace as the synthesizer sees it: requests in order, each with the place in that order at which it dies.
//!
//! Only an allocation can make two lifetimes collide, so the order of allocations is the only clock that matters:
//! instant `i` is just before request `i`.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHasher};
use stalloc_trace::{StackId, Time, Trace};

/// Never freed within the trace.
pub const NEVER: u32 = u32::MAX;

/// No call stack.
pub const NO_LINE: u64 = 0;

/// So many innermost frames say what a request is for.
const INNERMOST: usize = 6;

/// How modules are called: the first call of a module may take another way through it than later ones.
const MACHINERY: &str = "torch/nn/modules/module.py";

/// Requests in order, as numbers that can be compared.
pub struct Sequence {
    /// How many requests were live before the first event; they are the first ones.
    pub initial: u32,
    /// For each request, the first request that finds it gone, or [`NEVER`].
    pub dies: Vec<u32>,
    /// What asks: call stack and stream; without call stacks, size and stream.
    pub site: Vec<u32>,
    /// The innermost frames of what asks, which are the same for all layers and micro-batches; [`NO_LINE`] without a call
    /// stack.
    pub line: Vec<u64>,
    /// What asks for how much: site and rounded size.
    pub exact: Vec<u32>,
    /// Rounded size, bytes.
    pub size: Vec<u64>,
    /// Stream.
    pub stream: Vec<u32>,
}

impl Sequence {
    /// The requests of a trace with their call stacks. O(n log n).
    pub fn new(trace: &Trace) -> Self {
        let stacks: Vec<StackId> = trace.requests.iter().map(|r| r.stack).collect();
        Sequence::with_stacks(trace, &stacks)
    }

    /// The requests of a trace, each with the call stack that is given for it.
    pub fn with_stacks(trace: &Trace, stacks: &[StackId]) -> Self {
        let requests = &trace.requests;
        let initial = requests.partition_point(|r| r.alloc.is_none()) as u32;
        let known = stacks.iter().any(|&stack| stack != StackId::NONE);
        let mut sites = Classes::default();
        let mut exacts = Classes::default();
        let mut calls: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
        let clock = Clock { trace, initial };
        let mut sequence = Sequence {
            initial,
            dies: Vec::with_capacity(requests.len()),
            site: Vec::with_capacity(requests.len()),
            line: Vec::with_capacity(requests.len()),
            exact: Vec::with_capacity(requests.len()),
            size: Vec::with_capacity(requests.len()),
            stream: Vec::with_capacity(requests.len()),
        };
        for (request, &stack) in requests.iter().zip(stacks) {
            let size = request.rounded();
            let (whole, line) = *calls.entry(stack).or_insert_with(|| frames(trace, stack));
            let site = sites.of(&(whole, request.stream, if known { 0 } else { size }));
            sequence.dies.push(request.free_completed.map_or(NEVER, |time| clock.at(time)));
            sequence.site.push(site);
            sequence.line.push(line);
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

    /// Most bytes alive at once, from a window's first request to its last, of the requests that count: those of the window,
    /// and those that are alive where it begins. Each is alive until its memory can be used again. O(n log n).
    pub fn most_alive(&self, window: Range<u32>, counts: impl Fn(u32) -> bool) -> u64 {
        let before = (0..window.start).filter(|&request| self.dies[request as usize] > window.start);
        let mut live = before
            .clone()
            .filter(|&request| counts(request))
            .map(|r| self.size[r as usize])
            .fold(0, u64::saturating_add);
        let ends = before.chain(window.clone()).filter(|&request| counts(request));
        let mut gone: Vec<(u32, u64)> = ends.map(|r| (self.dies[r as usize], self.size[r as usize])).collect();
        gone.sort_unstable();
        let mut gone = gone.into_iter().peekable();
        let mut peak = live;
        for request in window.filter(|&request| counts(request)) {
            while let Some((_, size)) = gone.next_if(|&(dies, _)| dies <= request) {
                live = live.saturating_sub(size);
            }
            live = live.saturating_add(self.size[request as usize]);
            peak = peak.max(live);
        }
        peak
    }
}

/// A call stack as two numbers: all of it, and its innermost frames.
fn frames(trace: &Trace, stack: StackId) -> (u64, u64) {
    let (mut hasher, mut innermost) = (FxHasher::default(), NO_LINE);
    let frames = trace.stacks.get(stack).iter().filter(|frame| !trace.string(frame.file).ends_with(MACHINERY));
    for (depth, frame) in frames.enumerate() {
        (frame.file.0, frame.function.0, frame.line).hash(&mut hasher);
        if depth < INNERMOST {
            innermost = hasher.finish();
        }
    }
    (hasher.finish(), innermost)
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
