//! Live bytes that climb from step to step: the one judgement for a recording ([`climb`]) and for a job that still runs
//! ([`GrowthWatch`]).

use std::collections::VecDeque;
use std::fmt::Display;

use rustc_hash::FxHashMap;
use stalloc_common::figures::bytes;

use crate::{Mark, ROUNDING, Request, StackId, Time, Trace, Whose};

/// Steps in a row over which live bytes must climb.
const CLIMBING: usize = 3;

/// What the first steps add are optimizer states and buffers that are made once.
const WARM_UP: usize = 2;

/// Of the steps that climb, at least this share adds something: a cache may have what it is asked for.
const ADDING: f64 = 0.5;

/// Or each so many steps add something, as a metric of every fourth step does, for as many times at least; or evenly, each so many or
/// twice as many, as what is kept at the end of an epoch.
const STAIR: usize = 4;
const STAIRS: usize = 5;

/// A step that adds less than this share of the peak is not worth a word: it would take ten thousand steps to double it.
const NOTHING: u64 = 10_000;

/// A job that runs must climb for so many steps before anything is said. Unlike a recording it has no end to judge by, and
/// what is filled once (a cache, a buffer of samples) climbs too: most are full by then.
const CLIMBING_LIVE: usize = 20;

/// A stretch of steps over which live bytes climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Climb {
    /// The first boundary of it, as an index.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// What it adds in all.
    pub bytes: u64,
}

impl Climb {
    /// How many steps climb.
    pub fn steps(&self) -> usize {
        self.last - self.first
    }

    /// What each of them adds, on average.
    pub fn bytes_per_step(&self) -> u64 {
        self.bytes / self.steps().max(1) as u64
    }
}

/// Whether the last steps climb. `kept`: at each boundary between steps, the first one included, the bytes that have lived
/// for a whole step or longer; `peak`: the most live bytes. O(boundaries).
pub fn climb(kept: &[u64], peak: u64) -> Option<Climb> {
    let last = kept.len().checked_sub(1)?;
    let mut first = last;
    while first > WARM_UP && kept[first - 1] <= kept[first] {
        first -= 1;
    }
    let rises: Vec<usize> = (first..last).filter(|&at| kept[at] < kept[at + 1]).collect();
    let gaps = || rises.iter().zip(rises.iter().skip(1).chain([&last])).map(|(rise, next)| next - rise);
    let least = gaps().take(rises.len().saturating_sub(1)).min().unwrap_or(0);
    let is_even = gaps().all(|gap| gap <= STAIR.max(2 * least));
    let is_stairs = rises.len() >= STAIRS && is_even && 2 * gaps().sum::<usize>() >= last - first;
    let found = Climb { first, last, bytes: kept[last] - kept[first] };
    // What has risen as far and fallen back twice before is let go each time, as an epoch's predictions are.
    let (mut is_high, mut falls) = (false, 0);
    for &bytes in &kept[..=first] {
        falls += usize::from(is_high && bytes <= kept[first]);
        is_high = bytes >= kept[last] || is_high && bytes > kept[first];
    }
    let steps = found.steps();
    let counts = steps >= CLIMBING && (is_stairs || rises.len() as f64 >= steps as f64 * ADDING);
    (counts && falls < 2 && found.bytes_per_step() >= (peak / NOTHING).max(1)).then_some(found)
}

/// At each boundary the bytes that have lived for a whole step or longer: what the last step has just left behind is not
/// among them, and may be of any size.
pub fn kept(trace: &Trace, begins: &[Time]) -> Vec<u64> {
    // Changes from one boundary to the next.
    let mut more = vec![0u64; begins.len() + 1];
    let mut less = more.clone();
    for request in &trace.requests {
        let (begin, end) = lifetime(request);
        let from = begins.partition_point(|&boundary| boundary <= begin) + 1;
        let until = begins.partition_point(|&boundary| boundary < end);
        if from < until {
            more[from] = more[from].saturating_add(request.rounded());
            less[until] = less[until].saturating_add(request.rounded());
        }
    }
    let mut now = 0u64;
    (0..begins.len())
        .map(|at| {
            now = now.saturating_add(more[at]).saturating_sub(less[at]);
            now
        })
        .collect()
}

/// When a request was made, and when the program gave it back.
pub fn lifetime(request: &Request) -> (Time, Time) {
    (request.alloc.unwrap_or(0), request.free_requested.unwrap_or(Time::MAX))
}

/// What each of the last steps of a recording adds to what stays, if they climb and the last one does. O(events).
pub fn rise(trace: &Trace) -> Option<u64> {
    let mut boundaries = trace.step_begins();
    // Later the program's end frees what stays.
    let end = trace.marks().filter(|(_, mark)| **mark == Mark::StepEnd).last().map(|(time, _)| time);
    boundaries.extend(end.filter(|end| boundaries.last() < Some(end)));
    let kept = kept(trace, &boundaries);
    let [.., before, last] = *kept.as_slice() else { return None };
    // What is full by now has risen and does no more.
    (before < last).then(|| climb(&kept, trace.peak_allocated())).flatten().map(|climb| climb.bytes_per_step())
}

/// A block that lives.
#[derive(Clone, Copy, Debug)]
struct WatchedBlock {
    bytes: u64,
    /// The step that it was made in.
    step: u64,
    /// Which allocation it was.
    number: u64,
    stack: StackId,
}

/// Watches one device of a running job for [`climb`], and finds it once.
///
/// Constant time per event; memory in proportion to the live blocks and one step's allocations, none after it has found.
#[derive(Debug, Default)]
pub struct GrowthWatch {
    live: FxHashMap<u64, WatchedBlock>,
    live_bytes: u64,
    /// Of these, what this step has made.
    new_bytes: u64,
    peak: u64,
    step: u64,
    /// The last boundaries, after the warm-up.
    kept: VecDeque<u64>,
    recent: RecentAddresses,
    has_found: bool,
}

/// The addresses of the allocations of this step and of the one before: some call stacks are told by an allocation's number.
#[derive(Debug, Default)]
struct RecentAddresses {
    addresses: VecDeque<u64>,
    /// How many allocations were before these.
    before: u64,
    /// How many there were when this step began.
    at_step: u64,
}

impl RecentAddresses {
    /// At most so many are kept (8 MB); the oldest are forgotten.
    const MOST: usize = 1 << 20;

    /// The number of the next one.
    fn next(&self) -> u64 {
        self.before + self.addresses.len() as u64
    }

    fn push(&mut self, address: u64) {
        self.addresses.push_back(address);
        if self.addresses.len() > RecentAddresses::MOST {
            self.addresses.pop_front();
            self.before += 1;
        }
    }

    fn address(&self, number: u64) -> Option<u64> {
        let index = usize::try_from(number.checked_sub(self.before)?).ok()?;
        self.addresses.get(index).copied()
    }

    fn forget_all_but_the_last_step(&mut self) {
        let old = self.at_step.saturating_sub(self.before).min(self.addresses.len() as u64);
        self.addresses.drain(..old as usize);
        self.before += old;
        self.at_step = self.next();
    }
}

/// What a [`GrowthWatch`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growing {
    /// What a step adds.
    pub bytes_per_step: u64,
    /// For how many steps.
    pub steps: usize,
    /// The call stack that most of it was allocated under; the empty one if none is known.
    pub stack: StackId,
}

impl Growing {
    /// The line that says so, of a device by its number. `site`: where what stays is allocated, if that is known; `next`: a
    /// sentence on what to do.
    pub fn line(&self, device: impl Display, site: Option<&str>, next: &str) -> String {
        let site = site.map_or(String::new(), |site| format!(", most of it allocated at {site}"));
        format!(
            "memory of device {device} grows by {} a step, for {} steps now{site}. Unless that is a cache that will be full, the job \
             will run out of memory. {next}",
            bytes(self.bytes_per_step),
            self.steps,
        )
    }
}

impl GrowthWatch {
    /// One that has seen nothing yet.
    pub fn new() -> Self {
        GrowthWatch::default()
    }

    /// A block was made.
    pub fn alloc(&mut self, address: u64, size: u64, stack: StackId) {
        if self.has_found {
            return;
        }
        self.free(address);
        let bytes = size.max(1).checked_next_multiple_of(ROUNDING).unwrap_or(size);
        self.live.insert(address, WatchedBlock { bytes, step: self.step, number: self.recent.next(), stack });
        self.recent.push(address);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.new_bytes = self.new_bytes.saturating_add(bytes);
        self.peak = self.peak.max(self.live_bytes);
    }

    /// The block at an address was given back.
    pub fn free(&mut self, address: u64) {
        if let Some(block) = self.live.remove(&address) {
            self.live_bytes = self.live_bytes.saturating_sub(block.bytes);
            if block.step == self.step {
                self.new_bytes = self.new_bytes.saturating_sub(block.bytes);
            }
        }
    }

    /// A call stack is known only now.
    pub fn stack(&mut self, whose: Whose, stack: StackId) {
        let (address, number) = match whose {
            Whose::LivesAt(address) => (Some(address), None),
            Whose::Nth(number) => (self.recent.address(number), Some(number)),
            Whose::Failed => (None, None),
        };
        let block = address.and_then(|address| self.live.get_mut(&address));
        if let Some(block) = block.filter(|block| number.is_none_or(|number| number == block.number)) {
            block.stack = stack;
        }
    }

    /// A step begins: what there is to say, if it is time for it. O(1), and once O(live blocks).
    pub fn step_begin(&mut self) -> Option<Growing> {
        if self.has_found {
            return None;
        }
        self.kept.push_back(self.live_bytes.saturating_sub(self.new_bytes));
        if self.kept.len() > WARM_UP + CLIMBING_LIVE + 1 {
            self.kept.pop_front();
        }
        self.step += 1;
        self.new_bytes = 0;
        self.recent.forget_all_but_the_last_step();
        let found = climb(self.kept.make_contiguous(), self.peak).filter(|climb| self.goes_on(climb))?;
        let growing = Growing {
            bytes_per_step: found.bytes_per_step(),
            steps: found.steps(),
            stack: self.most_of(self.step - 1 - found.steps() as u64..self.step - 1),
        };
        *self = GrowthWatch { has_found: true, ..GrowthWatch::default() };
        Some(growing)
    }

    /// Whether it has climbed for long, and not ever more slowly, as what is filled once does: its last quarter adds at least
    /// half of what a quarter adds on average.
    fn goes_on(&self, climb: &Climb) -> bool {
        let lately = self.kept[climb.last] - self.kept[climb.last - climb.steps() / 4];
        climb.steps() >= CLIMBING_LIVE && lately >= climb.bytes / 8
    }

    /// The stack that most of what these steps have left was allocated under.
    fn most_of(&self, steps: std::ops::Range<u64>) -> StackId {
        let mut by_stack: FxHashMap<StackId, u64> = FxHashMap::default();
        for block in self.live.values().filter(|block| steps.contains(&block.step) && block.stack != StackId::NONE) {
            *by_stack.entry(block.stack).or_default() += block.bytes;
        }
        let most = by_stack.into_iter().max_by_key(|&(stack, bytes)| (bytes, stack.0));
        most.map_or(StackId::NONE, |(stack, _)| stack)
    }
}

#[cfg(test)]
mod tests;
