//! What a training run asked of its memory, and how to read it from every format it comes in.
//!
//! A [`Trace`] is the events of one device in order: allocations, frees, what the recorded allocator did with
//! its segments, and marks (steps, phases, modules, annotations). A *request* is one allocation; its *lifetime*
//! is the half-open range of event times `[alloc, free)`. A [`Recording`] is what one file holds: a trace per
//! device.
//!
//! - [`open`] reads a file of any known format, plain or compressed: our own, PyTorch snapshots, the paper's logs,
//!   and DSA instances.
//! - [`format::Writer`] writes our own format while a program runs; what it has flushed survives a killed process.
//!   [`format::write_recording`] converts what was read.
//!
//! Readers share one assembler: each turns its file into [`RawEvent`]s, and [`TraceBuilder`] pairs allocations
//! with frees by address. Files are hostile until proven good.

#![forbid(unsafe_code)]

mod builder;
mod compare;
mod curves;
mod error;
mod error_text;
mod fingerprint;
pub mod format;
pub mod growth;
mod ids;
mod input;
mod instance;
mod marks;
mod model;
mod open;
pub mod pace;
mod paper_log;
mod pickle;
mod raw;
pub mod site;
mod snapshot;
mod state;

pub use builder::TraceBuilder;
pub use compare::{Comparison, Difference, compare};
pub use error::{Fault, FilePosition, ReadError};
pub use ids::*;
pub use input::Progress;
pub use instance::{Gap, InstanceRow, InstanceTable};
pub use marks::HostReads;
pub use model::*;
pub use open::{Input, MEMORY_LIMIT, open, open_within, read_bytes};
pub use raw::{RawEvent, Whose};
pub use state::*;
