//! The ledger: what was asked for and done, in numbers and in order, and what that says of plans and of PyTorch's allocators.

use std::time::Duration;

use stalloc_device::Stream;

use crate::journal::{Journal, JournalEvent};
use crate::script::{Expect, GRANULE, Key};
use crate::statistics::{Departure, ServedBy, Statistics};

mod worth;

use worth::Worth;

/// Where no clock runs, a step takes so long,
const STEP: Duration = Duration::from_millis(100);

/// and so long a request where no step is marked.
const REQUEST: Duration = Duration::from_micros(10);

/// Counts what the other organs do.
#[derive(Debug)]
pub(super) struct Ledger {
    statistics: Statistics,
    journal: Journal,
    worth: Worth,
    /// What the better of PyTorch's allocators holds, bytes, as it was told since what is cached was given back last, and how often that was.
    rivals: u64,
    given_back: u64,
    /// Requests before the first step that was marked.
    unmarked: u64,
    /// Remaps until this step are what a plan's adoption costs once: what its first step puts elsewhere lives into the second.
    counts_from: u64,
    /// Most live bytes since they were asked for last.
    most_lately: u64,
}

impl Ledger {
    /// Nothing was done yet with so many bytes of planned addresses and of memory.
    pub fn new(planned: u64, reserved: u64) -> Self {
        Ledger {
            statistics: Statistics { arena: planned, reserved, peak_reserved: reserved, ..Statistics::default() },
            journal: Journal::default(),
            worth: Worth::default(),
            rivals: 0,
            given_back: 0,
            unmarked: 0,
            // The first step of a job that starts with a plan is of a kind of its own; then it counts as for one that is adopted.
            counts_from: if planned > 0 { 2 + 2 } else { 0 },
            most_lately: 0,
        }
    }

    /// All counters.
    #[inline]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// So many more of what a counter counts.
    #[inline]
    pub fn count(&mut self, more: u64, counter: impl FnOnce(&mut Statistics) -> &mut u64) {
        *counter(&mut self.statistics) += more;
    }

    /// A request was served so, or left to the fallback.
    #[inline]
    pub fn request(&mut self, source: Option<ServedBy>) {
        self.statistics.requests += 1;
        self.count(1, |counted| match source {
            Some(ServedBy::Planned) => &mut counted.planned,
            Some(_) => &mut counted.best_fit,
            None => &mut counted.fallback,
        });
    }

    /// The program left a plan that expected another request, if it had not before.
    pub fn departed(&mut self, expected: Option<&Expect>, seen: Key, stream: Stream) {
        if self.statistics.departure.is_none() {
            let bytes = |key: Key| u64::from(key.granules()) * GRANULE;
            self.statistics.departure = Some(Departure {
                request: self.statistics.requests,
                expected: expected.map(|entry| (bytes(entry.key), entry.key.stream().into())),
                seen: (bytes(seen), stream),
            });
        }
    }

    /// A block lives.
    #[inline]
    pub fn alloc(&mut self, start: u32, key: Key) {
        self.journal.push(JournalEvent::Alloc { start, granules: key.granules(), stream: key.stream() });
        self.statistics.allocated += u64::from(key.granules()) * GRANULE;
        self.note_peak();
        self.most_lately = self.most_lately.max(self.statistics.allocated);
    }

    /// The program gave so many bytes back.
    #[inline]
    pub fn given_back(&mut self, bytes: u64) {
        self.statistics.allocated -= bytes;
    }

    /// A block is free: no stream uses it any more.
    #[inline]
    pub fn free(&mut self, start: u32) {
        self.journal.push(JournalEvent::Free { start });
    }

    #[inline]
    fn note_peak(&mut self) {
        let statistics = &mut self.statistics;
        statistics.peak_allocated = statistics.peak_allocated.max(statistics.allocated + statistics.pools);
    }

    /// So many bytes of memory are behind the pools.
    pub fn note_pools(&mut self, bytes: u64) {
        self.statistics.pools = bytes;
        self.note_peak();
    }

    /// So many bytes of memory are behind the blocks.
    pub fn note_reserved(&mut self, bytes: u64) {
        self.statistics.reserved = bytes;
        self.statistics.peak_reserved = self.statistics.peak_reserved.max(bytes);
    }

    /// A step begins, says the program.
    pub fn step_begin(&mut self) {
        if self.statistics.steps == 0 {
            self.unmarked = self.statistics.requests;
        }
        self.statistics.steps += 1;
        self.worth.step_begin(self.statistics.remapped, self.statistics.steps > self.counts_from);
    }

    /// What is cached is given back.
    pub fn give_back(&mut self) {
        self.journal.push(JournalEvent::GivenBack);
        (self.rivals, self.given_back) = (0, self.given_back + 1);
    }

    /// A plan of so many granules is followed from now on.
    pub fn adopt(&mut self, planned: u32) {
        self.statistics.arena = u64::from(planned) * GRANULE;
        self.statistics.plans += 1;
        self.counts_from = self.statistics.steps + 2;
        self.worth.adopt();
    }

    /// Bytes that were remapped under a plan beyond what would have been without.
    pub fn loss(&self) -> u64 {
        self.worth.loss()
    }

    /// Whether a plan saves so many bytes that are remapped for it once.
    pub fn pays(&self, once: u64) -> bool {
        self.worth.pays(once, self.statistics.withdrawn)
    }

    /// Whether the time of remaps counts, and is not what a plan's adoption costs once.
    pub fn is_settled(&self) -> bool {
        let Statistics { steps, plans, .. } = self.statistics;
        steps >= self.counts_from || steps == 0 && plans == 0
    }

    /// See [`Arena::rivals_hold`](super::Arena::rivals_hold). Who has not heard yet that what is cached was given back says nothing.
    pub fn rivals_hold(&mut self, bytes: u64, given_back: u64) {
        if given_back == self.given_back {
            self.rivals = bytes;
        }
    }

    /// Bytes that the better of PyTorch's allocators holds; 0 where nobody said.
    #[inline]
    pub fn rivals(&self) -> u64 {
        self.rivals
    }

    /// Most live bytes since this was asked last.
    pub fn most_lately(&mut self) -> u64 {
        std::mem::replace(&mut self.most_lately, self.statistics.allocated)
    }

    /// Time that the program has run where no clock runs.
    pub fn modelled(&self) -> Duration {
        let before = if self.statistics.steps == 0 { self.statistics.requests } else { self.unmarked };
        let times = |one: Duration, times: u64| Duration::from_nanos((one.as_nanos() as u64).saturating_mul(times));
        times(STEP, self.statistics.steps).saturating_add(times(REQUEST, before))
    }

    /// The journal, for its reader.
    pub fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }
}

#[cfg(test)]
mod tests;
