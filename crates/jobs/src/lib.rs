//! What the command line and Python both do with the crates below: no arguments, no tables, no terminal.
//!
//! - [`inputs`] opens what a user names, and chooses the trace that is meant;
//! - [`planning`] makes a plan and replays the trace under it; [`refresh`] plans the traces of a folder again where their
//!   plans are out of date;
//! - [`simulating`] replays a trace through the allocators; [`verifying`] checks plans and solved instances;
//! - [`fit`] tries what fits; [`levers`] what would make it fit;
//! - [`comparing`] says how two recordings differ; [`describing`] what a file holds; [`recorded`] what a launch recorded.
//!
//! What goes on meanwhile is told to a [`Watch`]: progress, and sentences that are neither result nor error.

#![forbid(unsafe_code)]

pub mod comparing;
pub mod describing;
mod error;
pub mod fit;
mod gpu_class;
pub mod inputs;
pub mod levers;
pub mod planning;
pub mod recorded;
pub mod refresh;
pub mod simulating;
pub mod verifying;
mod watch;

pub use crate::error::Error;
pub use crate::gpu_class::GpuClass;
pub use crate::watch::{KeptSentences, Silent, Watch};
