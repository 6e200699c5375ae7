//! The independent check: nothing here knows how offsets were found.
//!
//! Three questions, each O(n log n): is a plan consistent in itself ([`Plan::check`]), does it serve a trace without
//! ever putting two live requests on the same address ([`Plan::check_against`]), and does a solved allocation instance
//! hold ([`check_rectangles`]).

mod carried;
mod ranges;
mod rectangles;
mod sections;
mod structure;
mod traced;

use serde::Serialize;

use crate::Plan;
use stalloc_trace::Trace;

pub use rectangles::{Rectangle, check_rectangles};

/// At most this many problems are put in words.
const MAX_PROBLEMS: usize = 20;

/// What a check found. All counts of faults are zero if and only if all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Whether all is well.
    pub ok: bool,
    /// Buffers put onto memory that another one holds at that time.
    pub overlaps: u64,
    /// Offsets that are no multiple of what they should be.
    pub misaligned: u64,
    /// Buffers that do not lie within the arena, or whose end no 64-bit address reaches.
    pub out_of_bounds: u64,
    /// Requests that differ from their slot in size or stream, slots and entries that do not belong together, and
    /// references to what does not exist.
    pub unmatched: u64,
    /// One past the highest address used, bytes.
    pub peak: u64,
    /// The first problems in words.
    #[serde(skip)]
    pub problems: Vec<String>,
}

impl Findings {
    fn problem(&mut self, text: impl FnOnce() -> String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text());
        }
    }

    fn overlap(&mut self, text: impl FnOnce() -> String) {
        self.overlaps += 1;
        self.problem(text);
    }

    fn unmatched(&mut self, text: impl FnOnce() -> String) {
        self.unmatched += 1;
        self.problem(text);
    }

    /// Checks where one buffer lies and raises the peak; `None` if its end is no address.
    fn place(&mut self, what: impl Fn() -> String, offset: u64, size: u64, alignment: u64, top: u64) -> Option<u64> {
        if alignment == 0 || !offset.is_multiple_of(alignment) {
            self.misaligned += 1;
            self.problem(|| format!("{} at {offset} is not aligned to {alignment} bytes", what()));
        }
        let end = offset.checked_add(size);
        if end.is_none_or(|end| end > top) {
            self.out_of_bounds += 1;
            self.problem(|| format!("{} of {size} bytes at {offset} ends beyond {top}", what()));
        }
        self.peak = self.peak.max(end.unwrap_or(u64::MAX));
        end
    }

    fn conclude(mut self) -> Self {
        self.ok = self.overlaps == 0 && self.misaligned == 0 && self.out_of_bounds == 0 && self.unmatched == 0;
        self
    }

    /// Both verdicts in one.
    pub fn and(mut self, other: Findings) -> Findings {
        self.overlaps += other.overlaps;
        self.misaligned += other.misaligned;
        self.out_of_bounds += other.out_of_bounds;
        self.unmatched += other.unmatched;
        self.peak = self.peak.max(other.peak);
        self.problems.extend(other.problems);
        self.problems.truncate(MAX_PROBLEMS);
        self.conclude()
    }
}

impl Plan {
    /// Whether every index in the plan points to something, and every slot is the entry that it says: the first thing
    /// that is wrong, if any.
    pub fn validate(&self) -> Result<(), String> {
        structure::first_fault(self)
    }

    /// Checks the plan in itself: in every order of sections that it allows, no two slots that live at the same time
    /// share an address; slots are aligned and within the arena. O(n log n).
    pub fn check(&self) -> Findings {
        sections::check(self)
    }

    /// Follows a trace through the plan: requests that live at the same time and are both served from it have
    /// disjoint addresses (so an address passes from one stream to another only after the free completed), and each is
    /// what its slot expects. O(n log n).
    pub fn check_against(&self, trace: &Trace) -> Findings {
        traced::check(self, trace)
    }
}
