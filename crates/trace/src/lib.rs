//! What a training run asked of its memory, and how to read it from every format it comes in.
//!
//! A [`Trace`] is the events of one device in order: allocations, frees, what the recorded allocator did with
//! its segments, and marks (steps, phases, modules, annotations). A *request* is one allocation; its *lifetime*
//! is the half-open range of event times `[alloc, free)`. A [`Recording`] is what one file holds: a trace per
//! device.
//!
//! Readers share one assembler: each turns its file into [`RawEvent`]s, and [`TraceBuilder`] pairs allocations
//! with frees by address. Files are hostile until proven good.

mod builder;
mod model;
mod raw;
mod state;

pub use builder::TraceBuilder;
pub use model::*;
pub use raw::RawEvent;
pub use state::*;
