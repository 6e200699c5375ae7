//! Streams, events and graphs, and the time that work takes: see [`timeline`] and [`durations`].

mod capture;
mod durations;
mod events;
mod graphs;
pub mod operations;
mod order;
mod seen;
mod streams;
#[cfg(test)]
pub mod tests;
mod timeline;

use crate::{checks, config::config};
use capture::Capture;
pub use capture::{CaptureInfo, Mode, exchange_thread_mode};
pub use durations::{CopyWay, NEW_CONVOLUTION, NEW_GRAPH, OperationClass, PIN, UNPIN};
use graphs::Graph;
pub use graphs::INSTANTIATED;
pub use order::{accessed, tally, unmapped};
use stalloc_order::WorkOrder;
pub use streams::StreamState;
use timeline::Timelines;

use events::EventState;
use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
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
static REDUCES_FRACTIONS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The stream that libraries were last told to use.
    static LIBRARY_STREAM: Cell<Handle> = const { Cell::new(0) };
}

/// A piece of work was started that may write to any device memory.
pub fn work() {
    // A library makes several calls for one kernel, which counts when the operation around it ends.
    if !operations::launched(LIBRARY_STREAM.get(), 0) {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
    WORK.fetch_add(1, Relaxed);
    checks::launched(0);
    if CAPTURING.load(Relaxed) > 0 {
        execution().count_nodes(None);
    }
}

/// A library's handle uses `stream` from now on, on this thread.
pub fn library_uses(stream: Handle) {
    LIBRARY_STREAM.set(stream);
}

/// A kernel of a program's own code was launched on `stream`: inside of an operation or not, it may write anywhere, unless
/// somebody tells what it writes.
pub fn launch(stream: Handle) {
    if !operations::is_launch_told() {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
    checks::launched(0);
    run(stream, durations::FLOOR);
}

/// A kernel was launched on `stream` that was compiled into a library, as PyTorch's are.
pub fn launch_compiled(stream: Handle) {
    if !operations::launched(stream, durations::FLOOR) {
        UNKNOWN_WRITES.fetch_add(1, Relaxed);
    }
    checks::launched(0);
    run(stream, durations::FLOOR);
}

/// Work was started on `stream` whose effect on memory is told apart, and that takes so long.
fn run(stream: Handle, nanoseconds: u64) {
    WORK.fetch_add(1, Relaxed);
    let mut execution = execution();
    if CAPTURING.load(Relaxed) > 0 {
        execution.count_nodes(Some(stream));
    }
    execution.launch(stream, nanoseconds);
}

/// A collective was started on `stream` in which so many bytes leave and reach each rank.
pub fn collective(stream: Handle, bytes: u64) {
    run(stream, durations::collective(&config().gpu, bytes));
}

/// The host does something that takes it so long.
pub fn spend(nanoseconds: u64) {
    execution().timeline.spend(nanoseconds);
}

/// An operation of PyTorch begins on this thread.
pub fn operation_begins() {
    spend(if operations::begin() { durations::OPERATION } else { durations::PART });
}

/// The operation that ended last on this thread, which has launched kernels itself or works on the host, did this; so that is what it took.
pub fn operation_took(class: OperationClass, kind: u16, operations: u64, bytes: u64) {
    if let Some(took) = durations::on_host(class, bytes) {
        return spend(took);
    }
    let Some((stream, charged)) = operations::take_ended() else { return };
    let is_reduced = REDUCES_FRACTIONS.load(Relaxed);
    let took = durations::operation(&config().gpu, class, kind, is_reduced, operations, bytes);
    if class == OperationClass::Matrix && seen::is_new(&(kind, operations, bytes)) {
        spend(durations::NEW_PRODUCT);
    }
    match charged {
        0 => execution().launch(stream, took),
        _ => execution().lengthen(stream, took.saturating_sub(charged)),
    }
}

/// Products of 32-bit fractions may be of fewer digits from now on, or no longer.
pub fn reduce_fractions(reduce: bool) {
    REDUCES_FRACTIONS.store(reduce, Relaxed);
}

/// A copy or fill was started on `stream`, over one way of a link to the host or none; `waits`: the host can go on when it is done, and
/// not at once.
pub fn copied(stream: Handle, way: CopyWay, bytes: u64, link: Option<u64>, waits: bool) {
    let mut execution = execution();
    let took = durations::copy(&config().gpu, way, bytes);
    match link {
        Some(link) => execution.copy(stream, link, took),
        None => execution.launch(stream, took),
    }
    if waits {
        let done = execution.done(stream);
        execution.timeline.wait(done);
    }
}

/// Nanoseconds: the host's time, how long it has waited for devices, and when they are done with all that they were given.
pub fn clock() -> [u64; 3] {
    let timeline = &mut execution().timeline;
    let now = timeline.now();
    [now, timeline.waited(), timeline.done(None).max(now)]
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
    streams: HashMap<Handle, StreamState>,
    events: HashMap<Handle, EventState>,
    graphs: HashMap<Handle, Graph>,
    executables: HashMap<Handle, Graph>,
    captures: HashMap<u64, Capture>,
    captures_begun: u64,
    timeline: Timelines,
    /// What comes before what, if that is checked.
    order: Option<WorkOrder>,
    /// The memory behind each block that an allocator told of, start and bytes of each piece.
    behind_blocks: HashMap<u64, Vec<(u64, u64)>>,
}

static EXECUTION: LazyLock<Mutex<Execution>> = LazyLock::new(|| {
    crate::forks::wait_for(|| crate::forks::taken(EXECUTION.try_lock()));
    let order = config().late_events.map(|seed| WorkOrder::new(Some(seed)));
    let timeline = if config().real_clock { Timelines::real() } else { Timelines::default() };
    Mutex::new(Execution { order, timeline, ..Execution::default() })
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
