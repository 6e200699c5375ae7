//! What a learned plan is worth: remaps that it saves, and that it costs.

use crate::tuning::saved_within;

/// Bytes remapped without a plan and under it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worth {
    /// Until this step began, and in each of the two before it.
    before: u64,
    lately: [u64; 2],
    /// In each step before the plan was adopted; `None` if none was.
    without: Option<u64>,
    /// Since then, and what would have been without.
    paid: u64,
    saved: u64,
}

impl Worth {
    /// In every step, by the last two.
    fn each(&self) -> u64 {
        self.lately[0].min(self.lately[1])
    }

    /// A step begins, until which so much was remapped; `is_settled`: the plan was adopted before the last one.
    pub fn step_begin(&mut self, remapped: u64, is_settled: bool) {
        let before = std::mem::replace(&mut self.before, remapped);
        self.lately = [remapped - before, self.lately[0]];
        if let Some(without) = self.without.filter(|_| is_settled) {
            (self.paid, self.saved) = (self.paid + self.lately[0], self.saved + without);
        }
    }

    /// A plan is followed from now on.
    pub fn adopt(&mut self) {
        (self.without, self.paid, self.saved) = (Some(self.each()), 0, 0);
    }

    /// How much more was remapped under a learned plan than would have been without.
    pub fn loss(&self) -> u64 {
        self.paid.saturating_sub(self.saved)
    }

    /// Whether a plan saves what is remapped for it once. One that was withdrawn saved nothing: the next must save more.
    pub fn pays(&self, once: u64, withdrawn: u64) -> bool {
        let saved = self.each().saturating_mul(saved_within() >> withdrawn.min(63));
        once <= saved && (withdrawn == 0 || saved > 0)
    }
}

#[cfg(test)]
mod tests;
