//! How much more than its blocks need the arena may hold: between what nobody notices and what PyTorch's allocators would hold, decided
//! by the time that remaps and waits take.

use std::time::Duration;

use crate::tuning::{MAPPED_AT_ONCE, least_slack, remap_time, slack_handles, tight_slack, unnoticed_share};

/// Remaps may take as much at once as they may in this time after the budget changed. With 2 s in place of 0.1 s, a PPO loop of 3 s ends
/// before it is granted anything: remaps take 0.84 % of its time, not 0.
const AHEAD: Duration = Duration::from_millis(100);

/// Remaps may take as much at once as they may in this time where there were few for as long; then what was granted is halved. Where
/// nothing more may be granted, they may take as much again before a plan is given up.
const SAVED: Duration = Duration::from_secs(20);

/// What remaps and waits took of the time since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expense {
    /// Little.
    Cheap,
    /// Much, and more memory may be held from now on.
    Granted,
    /// Much, and no more memory may be held.
    Dear,
}

/// The bytes beyond a peak that may be held, and the account of time that decides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlackBudget {
    tight: bool,
    /// Bytes that are too few of the device for its user to notice.
    unnoticed: u64,
    /// Bytes beyond the least slack that were granted since remapping was dear.
    granted: u64,
    /// Time that remaps and waits may still take, and what they took since that was looked at.
    credit: Duration,
    spent: Duration,
    /// Bytes that were remapped since then.
    remapped: u64,
    /// What they took beyond that.
    debt: Duration,
    looked: Duration,
    /// What the last step took, and the most that the time since the last look earns.
    step: Duration,
    most_earned: Duration,
    /// Time since remapping was dear or the budget shrank, and how long it takes to shrink. Each grant doubles that: it was needed.
    quiet: Duration,
    patience: Duration,
}

impl SlackBudget {
    pub fn new() -> Self {
        SlackBudget {
            tight: false,
            unnoticed: 0,
            granted: 0,
            credit: AHEAD / remap_time(),
            spent: Duration::ZERO,
            remapped: 0,
            debt: Duration::ZERO,
            looked: Duration::ZERO,
            step: Duration::ZERO,
            most_earned: Duration::MAX,
            quiet: Duration::ZERO,
            patience: SAVED,
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

    /// Bytes of handles that blocks may use a part of without the device's user noticing it.
    pub fn largest_unnoticed(&self) -> u64 {
        if self.tight { 0 } else { self.unnoticed / slack_handles() }
    }

    /// Bytes to map at once where nobody has used anything, if the program may hold so many.
    pub fn at_once(&self, allowed: u64) -> u64 {
        MAPPED_AT_ONCE.min(self.largest_unnoticed()).min(allowed / unnoticed_share() / slack_handles())
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

    /// So many bytes beyond a peak would spare a stream a wait for another: they are granted, as far as PyTorch's allocators would hold them.
    pub fn raise(&mut self, beyond: u64, peak: u64, rivals: u64) {
        let granted = beyond.min(self.most(peak, rivals)).saturating_sub(self.least(peak));
        if granted > self.granted {
            (self.granted, self.quiet) = (granted, Duration::ZERO);
        }
    }

    /// Remaps or waits took so long, and so many bytes were remapped.
    pub fn spend(&mut self, time: Duration, bytes: u64) {
        self.spent += time;
        self.remapped += bytes;
    }

    /// Whether remaps took time since the last look.
    pub fn owes(&self) -> bool {
        !self.spent.is_zero()
    }

    /// A step begins. One that took longer than the one before, as where libraries load, earns what that did: what a start lasts would
    /// else pay for the remaps of many short steps. What was earned before the first step is not for the steps.
    pub fn begin_step(&mut self, now: Duration) {
        let lasted = now.saturating_sub(self.looked);
        if self.most_earned == Duration::MAX {
            self.credit = self.credit.min(AHEAD / remap_time());
            self.most_earned = Duration::ZERO;
        } else {
            self.most_earned = lasted.min(std::mem::replace(&mut self.step, lasted));
        }
    }

    /// Whether remapping was dear until now. If so the budget grows, as far as it may.
    pub fn review(&mut self, now: Duration, peak: u64, rivals: u64) -> Expense {
        let passed = now.saturating_sub(self.looked);
        let credit = (self.credit + passed.min(self.most_earned) / remap_time()).min(SAVED / remap_time());
        let (spent, remapped) = (std::mem::take(&mut self.spent), std::mem::take(&mut self.remapped));
        (self.credit, self.looked) = (credit.saturating_sub(spent), now);
        if spent > credit {
            self.quiet = Duration::ZERO;
            self.debt += spent - credit;
            return self.grant(remapped, peak, rivals);
        }
        self.quiet = self.quiet.saturating_add(passed);
        if self.quiet >= self.patience {
            self.granted = if self.granted > self.least(peak) { self.granted / 2 } else { 0 };
            (self.quiet, self.debt) = (Duration::ZERO, Duration::ZERO);
        }
        Expense::Cheap
    }

    /// Grants what nobody notices, twice as much as before, or as much as was remapped for want of it, as far as it may be. Where there is
    /// no more, time is borrowed for a while.
    fn grant(&mut self, remapped: u64, peak: u64, rivals: u64) -> Expense {
        let room = self.most(peak, rivals) - self.least(peak);
        let granted = (self.granted + self.granted.max(remapped)).max(self.unnoticed).max(self.least(peak)).min(room);
        let has_grown = granted > self.granted;
        if !has_grown && self.debt <= SAVED / remap_time() {
            return Expense::Cheap;
        }
        (self.credit, self.debt) = (AHEAD / remap_time(), Duration::ZERO);
        if !has_grown {
            return Expense::Dear;
        }
        self.granted = granted;
        self.patience = self.patience.saturating_mul(2);
        Expense::Granted
    }
}

#[cfg(test)]
mod tests;
