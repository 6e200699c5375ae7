//! How much more than its blocks need the arena may hold: between what nobody notices and what PyTorch's allocators would hold, decided
//! by the time that remaps and waits take.

use std::time::Duration;

use crate::tuning::{least_slack, remap_time, tight_slack, unnoticed_share};

/// Remaps may take as much at once as they may in so much time after the slack changed,
const AHEAD: Duration = Duration::from_millis(100);

/// and in so much time where there were few.
const SAVED: Duration = Duration::from_secs(20);

/// Where no clock runs, a step takes so long,
const STEP: Duration = Duration::from_millis(100);

/// and so long a request where no step is marked.
const REQUEST: Duration = Duration::from_micros(10);

/// What remaps and waits took of the time since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// Little.
    Cheap,
    /// Much, and more memory may be held from now on.
    Granted,
    /// Much, and no more memory may be held.
    Dear,
}

/// The bytes beyond a peak that may be held, and the account of time that decides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    tight: bool,
    /// Bytes that are too few of the device for its user to notice.
    unnoticed: u64,
    /// Bytes beyond the least slack that were granted since remapping was dear.
    granted: u64,
    /// Time that remaps and waits may still take, and what they took since that was looked at.
    credit: Duration,
    spent: Duration,
    looked: Duration,
    /// Times that the credit was full, and how many it takes to shrink. Each growth doubles that: it was needed.
    full: u32,
    patience: u32,
}

impl Budget {
    pub fn new() -> Self {
        Budget {
            tight: false,
            unnoticed: 0,
            granted: 0,
            credit: AHEAD / remap_time(),
            spent: Duration::ZERO,
            looked: Duration::ZERO,
            full: 0,
            patience: 1,
        }
    }

    pub fn set_tight(&mut self, tight: bool) {
        self.tight = tight;
    }

    pub fn is_tight(&self) -> bool {
        self.tight
    }

    /// The device has so many bytes in all.
    pub fn set_device(&mut self, total: u64) {
        self.unnoticed = total / unnoticed_share();
    }

    /// Bytes that may be held beyond a peak of live bytes, however little time remaps take.
    pub fn least(&self, peak: u64) -> u64 {
        peak / if self.tight { tight_slack() } else { least_slack() }
    }

    /// Bytes that may be held beyond a peak of live bytes where PyTorch's allocators would hold `rivals` in all.
    pub fn of(&self, peak: u64, rivals: u64) -> u64 {
        let least = self.least(peak);
        if self.tight { least } else { (least + self.granted).min(self.most(peak, rivals)) }
    }

    fn most(&self, peak: u64, rivals: u64) -> u64 {
        self.least(peak).max(self.unnoticed).max(rivals.saturating_sub(peak))
    }

    /// Remaps or waits took so long.
    pub fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Whether remaps took time since the last look.
    pub fn owes(&self) -> bool {
        !self.spent.is_zero()
    }

    /// Time where no clock runs.
    pub fn modelled(steps: u64, unmarked: u64) -> Duration {
        let times = |one: Duration, times: u64| Duration::from_nanos((one.as_nanos() as u64).saturating_mul(times));
        times(STEP, steps).saturating_add(times(REQUEST, unmarked))
    }

    /// Whether remapping was dear until now. If so the budget grows, as far as it may.
    pub fn review(&mut self, now: Duration, peak: u64, rivals: u64) -> Time {
        let earned = now.saturating_sub(self.looked) / remap_time();
        let credit = (self.credit + earned).min(SAVED / remap_time());
        let left = credit.checked_sub(std::mem::take(&mut self.spent));
        (self.credit, self.looked) = (left.unwrap_or(AHEAD / remap_time()), now);
        if left.is_none() {
            self.full = 0;
            let room = self.most(peak, rivals) - self.least(peak);
            let granted = (2 * self.granted).max(self.unnoticed).max(self.least(peak)).min(room);
            if granted <= self.granted {
                return Time::Dear;
            }
            self.granted = granted;
            self.patience = self.patience.saturating_mul(2);
            return Time::Granted;
        }
        if self.credit == SAVED / remap_time() {
            self.full += 1;
            self.credit = AHEAD / remap_time();
        }
        if self.full >= self.patience && self.granted > 0 {
            (self.granted, self.full) = (if self.granted > self.least(peak) { self.granted / 2 } else { 0 }, 0);
        }
        Time::Cheap
    }
}

#[cfg(test)]
mod tests;
