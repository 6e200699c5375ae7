//! Why a replay cannot be made.

use stalloc_caching::AdoptError;
use thiserror::Error as ThisError;

/// Why a replay cannot be made.
#[derive(Clone, Debug, ThisError, PartialEq, Eq)]
pub enum Error {
    /// The planned allocator needs a plan.
    #[error("`stalloc` can only be replayed with a plan")]
    NoPlan,
    /// The state that the trace starts from is impossible.
    #[error("the state before the first event contradicts itself: {0}")]
    Initial(#[from] AdoptError),
    /// Two segments of the state that the trace starts from overlap.
    #[error("the state before the first event contradicts itself: two segments overlap at {0:#x}")]
    Overlap(u64),
    /// The allocator failed for another reason than memory.
    #[error("the replayed allocator failed: {0}")]
    Allocator(stalloc_allocator::Error),
}
