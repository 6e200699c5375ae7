//! Recording: the recorder of this process, for Python and for PyTorch's allocator.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libloading::os::unix::Library;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stalloc_recorder::{Process, Recorder, StackOf, Timed};
use stalloc_runtime as runtime;
use stalloc_trace::site::BACKWARD_PASS;
use stalloc_trace::{Frame, Mark, RawEvent, StackId, StringId, Whose};

use crate::entries::Entries;
use crate::{settings, tracker};

/// A killed program loses at most twice this time.
const FLUSH_EVERY: Duration = Duration::from_millis(400);

static RECORDER: OnceLock<Recorder> = OnceLock::new();
/// Between `start` and `finish`, in the process that started.
static RECORDS: AtomicBool = AtomicBool::new(false);
/// That process.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Whether the tracker's events count.
static TRACKS: AtomicBool = AtomicBool::new(false);
/// What to call on the main thread before a flush.
static ON_FLUSH: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
/// Whether to print how far the recording is, and of how many steps.
static PROGRESS: Mutex<Option<Option<u64>>> = Mutex::new(None);

fn recorder() -> PyResult<&'static Recorder> {
    current().ok_or_else(|| PyRuntimeError::new_err("nothing is being recorded"))
}

fn current() -> Option<&'static Recorder> {
    if RECORDS.load(Ordering::Acquire) { RECORDER.get() } else { None }
}

fn mark(mark: &Mark) {
    if let Some(recorder) = current() {
        recorder.mark(mark);
    }
}

fn named(name: &str, make: impl FnOnce(StringId) -> Mark) {
    if let Some(recorder) = current() {
        recorder.mark(&make(recorder.string(name)));
    }
}

/// Starts recording this process into `directory`.
#[pyfunction]
pub fn start(
    directory: PathBuf,
    rank: u32,
    metadata: BTreeMap<String, String>,
    settings: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let process = Process { rank, settings: settings::read(settings), metadata };
    let recorder = Recorder::new(directory, process);
    // SAFETY: the stand-in declares the function so.
    let clock =
        unsafe { Library::this().get::<stalloc_recorder::ModelledClock>(b"stalloc_dryrun_clock").map(|clock| *clock) };
    let recorder = if let Ok(clock) = clock { recorder.with_clock(clock) } else { recorder };
    if RECORDER.set(recorder).is_err() {
        return Err(PyRuntimeError::new_err("this process is recorded already"));
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    RECORDS.store(true, Ordering::Release);
    std::thread::Builder::new().name("stalloc-flush".into()).spawn(flush_forever)?;
    Ok(())
}

fn flush_forever() {
    loop {
        std::thread::sleep(FLUSH_EVERY);
        let Some(recorder) = current() else { return };
        let callable = ON_FLUSH.lock().unwrap_or_else(PoisonError::into_inner);
        if callable.is_some() {
            // SAFETY: may be called from any thread, without the GIL, while there is an interpreter: the callable is
            // taken away, under this lock, before it ends. A full queue is no harm: the next flush asks again.
            unsafe { pyo3::ffi::Py_AddPendingCall(Some(pending_call), std::ptr::null_mut()) };
        }
        drop(callable);
        if let Err(error) = recorder.flush() {
            runtime::say(&format!("{error}: the recording ends here"));
        }
        say_growing(recorder);
        let wanted = *PROGRESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(steps), Some(progress)) = (wanted, recorder.progress()) {
            runtime::say(&progress.line(steps));
        }
    }
}

/// Says of each device once that its memory grows.
fn say_growing(recorder: &Recorder) {
    for line in recorder.growing() {
        runtime::say(&line);
    }
}

/// Prints on standard error how far the recording is, now and then; `steps`: how many there will be, if that is known.
#[pyfunction]
pub fn show_progress(steps: Option<u64>) {
    *PROGRESS.lock().unwrap_or_else(PoisonError::into_inner) = Some(steps);
}

/// Runs on Python's main thread between two bytecodes, with the GIL.
extern "C" fn pending_call(_nothing: *mut c_void) -> c_int {
    runtime::contained("pending_call", call_on_flush, || 0)
}

fn call_on_flush() -> c_int {
    // Asked for before a fork and made in the child, before it was told: whoever held a lock may not be there.
    if current().is_none() || OWNER.load(Ordering::Relaxed) != std::process::id() {
        return 0;
    }
    Python::attach(|py| {
        let callable = {
            let slot = ON_FLUSH.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_ref().map(|callable| callable.clone_ref(py))
        };
        match callable.map(|callable| callable.call0(py)) {
            // What the handler of a signal has raised meanwhile is the program's; errors of its own it handles.
            Some(Err(error)) => {
                error.restore(py);
                -1
            }
            _ => 0,
        }
    })
}

/// Sets what is called on the main thread about twice a second; `None`: nothing.
#[pyfunction]
pub fn on_flush(callable: Option<Py<PyAny>>) {
    *ON_FLUSH.lock().unwrap_or_else(PoisonError::into_inner) = callable;
}

/// Attaches the tracker to PyTorch's native allocator; `libraries`: PyTorch's folder of shared libraries.
#[pyfunction]
pub fn attach(libraries: PathBuf) -> PyResult<()> {
    TRACKS.store(true, Ordering::Release);
    // SAFETY: the caller has made sure that CUDA is initialised and the allocator is the native one.
    unsafe { tracker::attach(&libraries, on_event) }.map_err(|reason| {
        TRACKS.store(false, Ordering::Release);
        PyRuntimeError::new_err(reason)
    })
}

/// Ignores the tracker from now on: it cannot be detached.
#[pyfunction]
pub fn detach() {
    TRACKS.store(false, Ordering::Release);
}

fn on_event(device: u32, event: RawEvent) {
    if TRACKS.load(Ordering::Acquire) {
        self::event(device, event);
    }
}

/// Records an event, if this process is recorded.
pub fn event(device: u32, event: RawEvent) {
    if let Some(recorder) = current() {
        recorder.event(device, event);
    }
}

/// Whether this process is being recorded.
#[pyfunction]
pub fn is_recording() -> bool {
    current().is_some()
}

/// Stops recording as things are, after an error.
#[pyfunction]
pub fn abandon() {
    RECORDS.store(false, Ordering::Release);
    on_flush(None);
}

/// Stops recording in a forked child, which is not the recorded process. No lock is taken: the flushing thread may have held it, and is not in the child.
#[pyfunction]
pub fn leave_to_parent() {
    RECORDS.store(false, Ordering::Release);
}

/// Writes everything and ends the files; ``ended_by``: the exception that ended the program.
#[pyfunction]
#[pyo3(signature = (rank, ended_by=None))]
pub fn finish(py: Python<'_>, rank: u32, ended_by: Option<&str>) -> PyResult<()> {
    let recorder = recorder()?;
    abandon();
    let finished = py.detach(|| recorder.finish(rank, ended_by));
    say_growing(recorder);
    let lost = recorder.lost();
    if lost > 0 {
        runtime::say(&format!("{lost} events of this process were not recorded"));
    }
    finished.map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Whether allocations wait for their call stacks before they are written.
#[pyfunction]
pub fn wait_for_stacks(wait: bool) {
    if let Some(recorder) = current() {
        recorder.wait_for_stacks(wait);
    }
}

/// Whether the tracker's events of a device are those of PyTorch's history.
#[pyfunction]
pub fn agrees(device: u32, entries: Bound<'_, PyList>) -> PyResult<bool> {
    let recorder = recorder()?;
    let mut events = Vec::new();
    Entries::new(entries).for_each(recorder, |event, _| events.push(event))?;
    Ok(recorder.agrees(device, &events))
}

/// The stacks of a history's allocations; each was asked for its own, so that one without Python frames is autograd's thread's.
fn known_stacks(recorder: &Recorder, entries: Bound<'_, PyList>) -> PyResult<Vec<StackOf>> {
    let mut known = Vec::new();
    let autograd = Frame { file: recorder.string(""), function: recorder.string(BACKWARD_PASS), line: 0 };
    let backward = recorder.stack(vec![autograd]);
    Entries::new(entries).for_each(recorder, |event, _| {
        if let RawEvent::Alloc { address, size, stack, .. } = event {
            known.push(StackOf { address, size, stack: if stack == StackId::NONE { backward } else { stack } });
        }
    })?;
    Ok(known)
}

/// Gives the tracker's allocations the stacks that the history knows; false if they are not the same allocations.
#[pyfunction]
pub fn stacks(device: u32, entries: Bound<'_, PyList>) -> PyResult<bool> {
    let recorder = recorder()?;
    let known = known_stacks(recorder, entries)?;
    Ok(recorder.stacks(device, &known).is_ok())
}

/// From here on allocations wait for no stacks, which may be told later: the history has just been cleared.
#[pyfunction]
pub fn forget_recent() {
    if let Some(recorder) = current() {
        recorder.forget_recent();
    }
}

/// Whether live bytes have been higher than when this was last true.
#[pyfunction]
pub fn has_new_peak() -> bool {
    current().is_some_and(Recorder::has_new_peak)
}

/// Most live bytes since this was last asked, of the device that has most; none where nothing is recorded.
#[pyfunction]
pub fn peak_since() -> Option<u64> {
    current().map(Recorder::peak_since)
}

/// A step is over: whether it asked for something else than the one before, or took live bytes higher.
#[pyfunction]
pub fn step_differs() -> bool {
    current().is_some_and(Recorder::step_differs)
}

/// Tells the stacks of allocations that are recorded already; false if they are not the same allocations. `shared`: the history
/// may hold some of before.
#[pyfunction]
pub fn late_stacks(device: u32, entries: Bound<'_, PyList>, shared: bool) -> PyResult<bool> {
    let recorder = recorder()?;
    let known = known_stacks(recorder, entries)?;
    let before = if shared { known.len().saturating_sub(recorder.recent(device)) } else { 0 };
    Ok(recorder.late_stacks(device, &known[before..]).is_ok())
}

/// Tells where the block that lives at an address was asked for; `frames` as in a snapshot.
#[pyfunction]
pub fn stack_at(device: u32, address: u64, frames: Vec<(String, String, u32)>) {
    if let Some(recorder) = current() {
        let stack = stack(recorder, &frames);
        recorder.late_stack(device, Whose::LivesAt(address), stack);
    }
}

/// Tells where the last request that failed was made.
#[pyfunction]
pub fn stack_of_failed(device: u32, frames: Vec<(String, String, u32)>) {
    if let Some(recorder) = current() {
        let stack = stack(recorder, &frames);
        recorder.late_stack(device, Whose::Failed, stack);
    }
}

/// The stack of (file, function, line), innermost first.
fn stack(recorder: &Recorder, frames: &[(String, String, u32)]) -> StackId {
    let frame = |(file, function, line): &(String, String, u32)| Frame {
        file: recorder.string(file),
        function: recorder.string(function),
        line: *line,
    };
    recorder.stack(frames.iter().map(frame).collect())
}

/// Takes the history for what happened since the last flush.
#[pyfunction]
pub fn history(device: u32, entries: Bound<'_, PyList>) -> PyResult<()> {
    let recorder = recorder()?;
    let mut events = Vec::new();
    Entries::new(entries).for_each(recorder, |event, time_us| events.push(Timed { event, time_us }))?;
    recorder.history(device, events);
    Ok(())
}

/// A training step begins.
#[pyfunction]
pub fn mark_step_begin() {
    mark(&Mark::StepBegin);
}

/// A training step ends.
#[pyfunction]
pub fn mark_step_end() {
    mark(&Mark::StepEnd);
}

/// A phase begins.
#[pyfunction]
pub fn mark_phase(kind: &str, micro_batch: u32) {
    named(kind, |kind| Mark::Phase { kind, micro_batch });
}

/// A module is entered.
#[pyfunction]
pub fn mark_module_enter(name: &str) {
    named(name, Mark::ModuleEnter);
}

/// A module is left.
#[pyfunction]
pub fn mark_module_exit(name: &str) {
    named(name, Mark::ModuleExit);
}

/// The program read `bytes` back from the device; `frames`: (file, function, line), innermost first; `answer`: what
/// gave it an answer, if anything did.
#[pyfunction]
pub fn host_read(bytes: u64, frames: Vec<(String, String, u32)>, answer: Option<&str>) {
    if let Some(recorder) = current() {
        let stack = stack(recorder, &frames);
        let answer = answer.map(|answer| recorder.string(answer));
        recorder.mark(&Mark::HostRead { stack, bytes, answer });
    }
}

/// A line for whoever wonders what the recorder does: printed if `STALLOC_LOG_LEVEL` is 0 or 1.
#[pyfunction]
pub fn log(text: &str) {
    if stalloc_common::settings::LOG_LEVEL.number().is_some_and(|level: u32| level <= 1) {
        runtime::say(text);
    }
}
