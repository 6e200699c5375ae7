//! Streams, events and graphs, and the count of work that stands in for time.
//!
//! Work is done the moment it is started: events are always complete, unless late ones are asked for. What does not follow from
//! that, capture above all, is kept.

mod capture;
mod events;
mod graphs;
pub mod operations;
mod order;
mod streams;
#[cfg(test)]
pub mod tests;

use crate::{checks, config::config};
use capture::Capture;
pub use capture::{CaptureInfo, Mode, exchange_thread_mode};
use graphs::Graph;
pub use graphs::INSTANTIATED;
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
    if !operations::launched() {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
    WORK.fetch_add(1, Relaxed);
    checks::launched(0);
    if CAPTURING.load(Relaxed) > 0 {
        execution().count_nodes(None);
    }
}

/// A kernel of a program's own code was launched on `stream`: inside of an operation or not, it may write anywhere, unless
/// somebody tells what it writes.
pub fn launch(stream: Handle) {
    if !operations::is_launch_told() {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
    checks::launched(0);
    collective(stream);
}

/// A kernel was launched on `stream` that was compiled into a library, as PyTorch's are.
pub fn launch_compiled(stream: Handle) {
    if !operations::launched() {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
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

/// How many pieces of work CUDA lets the host start before the first of them has ended, about.
const AHEAD: u64 = 1024;

/// Pieces of work that had been started when the host last waited for a device.
static WAITED_FOR: AtomicU64 = AtomicU64::new(0);

/// The host has waited for what it had started.
fn waited() {
    WAITED_FOR.fetch_max(WORK.load(Relaxed), Relaxed);
}

/// Pieces of work that would have ended on a GPU for certain; those after them may be waiting still.
pub fn work_ended() -> u64 {
    WAITED_FOR.load(Relaxed).max(work_done().saturating_sub(AHEAD))
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
    /// The memory behind each block that an allocator told of, start and bytes of each piece.
    behind_blocks: HashMap<u64, Vec<(u64, u64)>>,
}

static EXECUTION: LazyLock<Mutex<Execution>> = LazyLock::new(|| {
    crate::forks::wait_for(|| crate::forks::taken(EXECUTION.try_lock()));
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
