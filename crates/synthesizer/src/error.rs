//! Why there is no plan.

use thiserror::Error;

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The trace has no request.
    #[error("the trace of device {0} holds no request: there is nothing to plan")]
    Empty(u32),
    /// The planner refused.
    #[error("the requests cannot be planned: {0}")]
    Planner(#[from] stalloc_planner::Error),
    /// What lives and stays leaves no room for the steps.
    #[error("what lives already leaves no room for the steps")]
    NoRoom,
    /// The plan did not pass the independent check.
    #[error("the plan did not pass its check, which is a fault of this program: {0}")]
    Unsound(String),
}
