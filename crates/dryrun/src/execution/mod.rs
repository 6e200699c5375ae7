//! Streams, events and graphs, and the count of work that stands in for time.
//!
//! Work is done the moment it is started: events are always complete, unless late ones are asked for. What does not follow from
//! that, capture above all, is kept.

mod capture;
mod events;
mod graphs;
mod order;
mod streams;
#[cfg(test)]
pub mod tests;

use crate::{checks, config::config};
use capture::Capture;
pub use capture::{CaptureInfo, Mode, exchange_thread_mode};
use graphs::Graph;
pub use order::{accessed, tally, unmapped};
use stalloc_order::Order;
pub use streams::Stream;

use events::Event;
use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// A handle given to the program: an address that is no memory.
pub type Handle = u64;

const FIRST_HANDLE: Handle = 0x0f00_0000_0000;

static WORK: AtomicU64 = AtomicU64::new(0);
/// Work that may have written to any device memory.
static UNKNOWN_WRITES: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);
/// Captures in progress, to keep launches fast when there are none.
static CAPTURING: AtomicUsize = AtomicUsize::new(0);

/// A piece of work was started that may write to any device memory.
pub fn work() {
    UNKNOWN_WRITES.fetch_add(1, Relaxed);
    WORK.fetch_add(1, Relaxed);
    checks::launched(0);
    if CAPTURING.load(Relaxed) > 0 {
        execution().count_nodes(None);
    }
}

/// A kernel was launched on `stream`.
pub fn launch(stream: Handle) {
    UNKNOWN_WRITES.fetch_add(1, Relaxed);
    checks::launched(0);
    collective(stream);
}

/// Work was started on `stream` whose effect on memory is told apart.
pub fn collective(stream: Handle) {
    WORK.fetch_add(1, Relaxed);
    if CAPTURING.load(Relaxed) > 0 {
        execution().count_nodes(Some(stream));
    }
}

/// Pieces of work started so far.
pub fn work_done() -> u64 {
    WORK.load(Relaxed)
}

/// Pieces of work started so far that may have written to any device memory.
pub fn unknown_writes() -> u64 {
    UNKNOWN_WRITES.load(Relaxed)
}

/// A new handle; the same calls get the same handles.
pub fn new_handle() -> Handle {
    FIRST_HANDLE + 64 * (HANDLES.fetch_add(1, Relaxed) + 1)
}

/// Streams, events and graphs of the process.
#[derive(Default)]
pub struct Execution {
    streams: HashMap<Handle, Stream>,
    events: HashMap<Handle, Event>,
    graphs: HashMap<Handle, Graph>,
    executables: HashMap<Handle, u64>,
    captures: HashMap<u64, Capture>,
    captures_begun: u64,
    /// What comes before what, if that is checked.
    order: Option<Order>,
}

static EXECUTION: LazyLock<Mutex<Execution>> = LazyLock::new(|| {
    let order = config().late_events.map(|seed| Order::new(Some(seed)));
    Mutex::new(Execution { order, ..Execution::default() })
});

/// The streams, events and graphs of this process.
pub fn execution() -> MutexGuard<'static, Execution> {
    EXECUTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The major version of the CUDA runtime that the program was built for.
///
/// Structures and signatures differ between them under the same name. The library that the program is linked to tells: it is loaded,
/// though nothing of it is used.
pub fn cuda_major() -> u32 {
    static MAJOR: OnceLock<u32> = OnceLock::new();
    // What is not loaded yet may come: only a definite answer is kept.
    match MAJOR.get() {
        Some(major) => *major,
        None => match crate::loaded::runtime_version() {
            Some((major, _)) => *MAJOR.get_or_init(|| major),
            None => 13,
        },
    }
}
