//! How much more than its blocks need the arena may hold: a slack that driver time decides.

use std::time::Duration;

use crate::tuning::{least_slack, most_slack, remap_time, tight_slack};

/// Remaps may take as much at once as they may in so much time after the slack changed,
const AHEAD: Duration = Duration::from_secs(10);

/// and in so much time where there were few.
const SAVED: Duration = Duration::from_secs(100);

/// Where no clock runs, a step takes so long,
const STEP: Duration = Duration::from_millis(100);

/// and so long a request where no step is marked.
const REQUEST: Duration = Duration::from_micros(10);

/// The slack, and the account of driver time that decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slack {
    tight: bool,
    /// The most instead of the least.
    grown: bool,
    /// Driver time that remaps may still take, and what they took since that was looked at.
    credit: Duration,
    spent: Duration,
    looked: Duration,
    /// Times that the credit was full, and how many it takes to shrink. Each growth doubles that: it was needed.
    full: u32,
    patience: u32,
}

impl Slack {
    pub fn new() -> Self {
        Slack {
            tight: false,
            grown: false,
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

    /// Bytes that may be held beyond a peak of live bytes.
    pub fn of(&self, peak: u64) -> u64 {
        if self.tight {
            return peak / tight_slack();
        }
        peak / if self.grown { most_slack() } else { least_slack() }
    }

    /// A remap took the driver so long.
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

    /// Whether remapping was dear until now. If so the slack grows, unless that `can_be_saved` otherwise.
    pub fn review(&mut self, now: Duration, can_be_saved: bool) -> bool {
        let earned = now.saturating_sub(self.looked) / remap_time();
        let credit = (self.credit + earned).min(SAVED / remap_time());
        let left = credit.checked_sub(std::mem::take(&mut self.spent));
        (self.credit, self.looked) = (left.unwrap_or(AHEAD / remap_time()), now);
        if left.is_none() {
            self.full = 0;
            if !can_be_saved && !self.grown {
                self.grown = true;
                self.patience = self.patience.saturating_mul(2);
            }
            return true;
        }
        if self.credit == SAVED / remap_time() {
            self.full += 1;
            self.credit = AHEAD / remap_time();
        }
        if self.full >= self.patience && self.grown {
            (self.grown, self.full) = (false, 0);
        }
        false
    }
}

#[cfg(test)]
mod tests;
