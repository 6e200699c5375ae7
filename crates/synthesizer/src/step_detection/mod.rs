//! Where one step ends and the next begins.
//!
//! Boundaries come from the best witness there is: step marks, then annotations that frameworks leave at every step, then
//! repetition itself ([`repetition`]).

mod marks;
pub(crate) mod repetition;

use std::ops::Range;

use stalloc_trace::Trace;

/// Never freed within the sequence.
pub(crate) const NEVER: u32 = u32::MAX;

/// Requests in order, as numbers that can be compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    /// How many requests were live before the first event; they are the first ones.
    pub initial: u32,
    /// For each request, the first request that finds it gone, or [`NEVER`].
    pub dies: Vec<u32>,
    /// Equal numbers for equal sizes and streams.
    pub key: Vec<u32>,
    /// Rounded size, bytes.
    pub size: Vec<u64>,
}

/// Who said where steps begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Marks of the recorder.
    Marks,
    /// Named ranges, such as `Optimizer.step#AdamW.step`.
    Annotations,
    /// The requests repeat.
    Repetition,
    /// Nobody: no step is known.
    Nobody,
}

/// The steps of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Who said where they begin.
    pub witness: Witness,
    /// For each step, its requests, ascending. What comes before the first is the prologue; something may lie between two
    /// (an evaluation) or after the last.
    pub requests: Vec<Range<u32>>,
    /// What a user should know, in sentences.
    pub notes: Vec<String>,
    /// The first request of each stretch: of steps and of what lies between and after them.
    pub(crate) starts: Vec<u32>,
}

impl Steps {
    /// Steps that begin with the requests `starts`, except for those of `other`, which are none.
    fn new(witness: Witness, mut starts: Vec<u32>, other: &[u32], end: u32) -> Steps {
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|&start| start < end);
        let ends = starts.iter().copied().skip(1).chain([end]);
        let all = starts.iter().copied().zip(ends).map(|(start, end)| start..end);
        let requests = all.filter(|range| !other.contains(&range.start)).collect();
        Steps { witness, requests, notes: Vec::new(), starts }
    }
}

/// Finds the steps of a trace. O(n log n).
pub(crate) fn find(trace: &Trace, sequence: &Sequence) -> Steps {
    let end = trace.requests.len() as u32;
    if let Some((starts, between)) = marks::steps(trace) {
        return Steps::new(Witness::Marks, starts, &between, end);
    }
    let annotated = marks::annotations(trace);
    let witness = if annotated.is_some() { Witness::Annotations } else { Witness::Repetition };
    match repetition::find(sequence, annotated) {
        Some(starts) => Steps::new(witness, starts, &[], end),
        None => Steps::new(Witness::Nobody, Vec::new(), &[], end),
    }
}
