//! Where one step ends and the next begins.
//!
//! A *round* is a stretch of the trace between two boundaries. Boundaries come from the best witness there is: step
//! marks, then annotations that frameworks leave at every step, then repetition itself ([`repetition`]).

mod marks;
mod repetition;

use stalloc_trace::Trace;

use crate::sequence::Sequence;

/// Who said where steps begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Marks of the recorder.
    Marks,
    /// Named ranges, such as `Optimizer.step#AdamW.step`.
    Annotations,
    /// The requests repeat.
    Repetition,
    /// Nobody: the trace is taken as it stands.
    Nobody,
}

/// The rounds of a trace.
pub struct Rounds {
    /// Who said so.
    pub witness: Witness,
    /// Index of the first request of each round, ascending. What comes before the first is the prologue.
    pub starts: Vec<u32>,
}

/// Finds the rounds of a trace. O(n log n).
pub fn find(trace: &Trace, sequence: &Sequence) -> Rounds {
    if let Some(starts) = marks::steps(trace) {
        return Rounds { witness: Witness::Marks, starts };
    }
    let repeated = repetition::find(sequence);
    if let Some(starts) = marks::annotations(trace) {
        // An annotation may lie anywhere in a step; where repetition sees as many steps (or one more, if the last was
        // cut off), its boundary is the better one.
        let as_many = |repeated: &Vec<u32>| repeated.len() == starts.len() || repeated.len() == starts.len() + 1;
        let starts = repeated.filter(as_many).unwrap_or(starts);
        return Rounds { witness: Witness::Annotations, starts };
    }
    match repeated {
        Some(starts) => Rounds { witness: Witness::Repetition, starts },
        None => Rounds { witness: Witness::Nobody, starts: Vec::new() },
    }
}
