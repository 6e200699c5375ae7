//! The allocator for `CUDAPluggableAllocator`: its functions' addresses, and what PyTorch's statistics ask of it.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use stalloc_caching::BlockState;
use stalloc_runtime::Counter;
use stalloc_runtime::pluggable::{self, Action, Level, Segment, Stack, Stats};

use crate::settings;

/// Addresses of the functions that PyTorch is given: `malloc`, `free`, and hooks by the names of their setters.
/// `settings`: a snapshot's `allocator_settings`, which the fallback follows.
#[pyfunction]
pub fn pluggable_install<'py>(py: Python<'py>, settings: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let read = settings::read(settings);
    pluggable::install(&stalloc_caching::Settings {
        expandable_segments: read.expandable_segments,
        max_split_size: read.max_split_size,
        garbage_collection_threshold: read.garbage_collection_threshold,
        roundup_power2_divisions: read.roundup_power2_divisions,
        ..Default::default()
    });
    let addresses = PyDict::new(py);
    for (name, address) in pluggable::hooks() {
        addresses.set_item(name, address)?;
    }
    Ok(addresses)
}

/// Whether PyTorch's exceptions can be raised in this process.
#[pyfunction]
pub fn pluggable_can_raise() -> bool {
    pluggable::exceptions_available()
}

fn stat<'py>(py: Python<'py>, stat: &Counter) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("current", stat.current)?;
    out.set_item("peak", stat.peak)?;
    out.set_item("allocated", stat.allocated)?;
    out.set_item("freed", stat.freed)?;
    Ok(out)
}

fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (pool, part) in [("all", &stats.all), ("small_pool", &stats.small), ("large_pool", &stats.large)] {
        out.set_item(pool, stat(py, part)?)?;
    }
    Ok(out)
}

/// A device's statistics, as `torch.cuda.memory_stats_as_nested_dict` has them.
#[pyfunction]
pub fn pluggable_stats(py: Python<'_>, device: i32) -> PyResult<Bound<'_, PyDict>> {
    let Some(books) = pluggable::books(device) else {
        return Err(PyValueError::new_err(format!("there is no device {device}")));
    };
    let (figures, counts) = (&books.figures, books.counts);
    let out = PyDict::new(py);
    out.set_item("num_alloc_retries", counts.retries)?;
    out.set_item("num_ooms", figures.out_of_memory)?;
    out.set_item("max_split_size", books.max_split_size.map_or(-1, |bytes| bytes as i64))?;
    out.set_item("num_sync_all_streams", figures.waits)?;
    out.set_item("num_device_alloc", counts.device_allocs)?;
    out.set_item("num_device_free", counts.device_frees)?;
    out.set_item("num_oom_rejections", 0)?;
    for (name, part) in [
        ("allocation", &figures.allocation()),
        ("segment", &figures.segment),
        ("active", &figures.active),
        ("inactive_split", &figures.inactive_split),
        ("allocated_bytes", &figures.allocated_bytes()),
        ("reserved_bytes", &figures.reserved_bytes),
        ("active_bytes", &figures.active_bytes),
        ("inactive_split_bytes", &figures.inactive_split_bytes),
        ("requested_bytes", &figures.requested_bytes()),
    ] {
        out.set_item(name, stats(py, part)?)?;
    }
    out.set_item("reserved_bytes_by_private_pools", PyDict::new(py))?;
    for name in ["oversize_allocations", "oversize_segments"] {
        out.set_item(name, stat(py, &Counter::ZERO)?)?;
    }
    Ok(out)
}

/// A device's peaks start again from what is now.
#[pyfunction]
pub fn pluggable_reset_peaks(device: i32) {
    pluggable::reset_peaks(device);
}

/// What a device's statistics add up is counted from 0 again.
#[pyfunction]
pub fn pluggable_reset_accumulated(device: i32) {
    pluggable::reset_accumulated(device);
}

/// The share of a device that may be reserved.
#[pyfunction]
pub fn pluggable_memory_fraction(device: i32) -> f64 {
    pluggable::memory_fraction(device)
}

/// Takes a call stack: what ``torch._C._profiler.gather_traceback`` is called with, and what it returns is kept as it is.
static GATHER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Keeps a history of up to `most` events per device, but none of those whose actions are skipped; 0 ends it. `level`: of what
/// stacks are kept, 0 of nothing, 1 of live blocks, 2 of allocations too, 3 of all events; ``gather()`` takes one.
#[pyfunction]
pub fn pluggable_keep_history(most: usize, level: u8, clear: bool, skipped: Vec<String>, gather: Option<Py<PyAny>>) {
    let level = [Level::Never, Level::State, Level::Alloc, Level::All][usize::from(level.min(3))];
    *GATHER.lock().unwrap_or_else(PoisonError::into_inner) = gather;
    pluggable::take_stacks_by(take_stack);
    pluggable::keep_history(most, level, clear, &skipped);
}

// PyTorch's own allocator waits for the interpreter here too.
fn take_stack() -> Option<Stack> {
    // SAFETY: reads a flag; may be asked at any time, from any thread.
    if unsafe { pyo3::ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    Python::attach(|py| {
        // What the thread was about to raise stays to be raised.
        let raised = PyErr::take(py);
        let gather = GATHER.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|gather| gather.clone_ref(py));
        let stack = gather.and_then(|gather| gather.call0(py).ok());
        if let Some(raised) = raised {
            raised.restore(py);
        }
        stack.map(|stack| Stack(Arc::new(stack)))
    })
}

/// A stack as it was taken, or None.
fn taken<'py>(py: Python<'py>, stack: Option<Stack>) -> Option<Bound<'py, PyAny>> {
    Some(stack?.0.downcast_ref::<Py<PyAny>>()?.bind(py).clone())
}

/// The stack of the live block at an address as it was taken, or None.
#[pyfunction]
pub fn pluggable_stack_of(py: Python<'_>, address: u64) -> Option<Bound<'_, PyAny>> {
    taken(py, pluggable::stack_of(address))
}

/// What this thread says of itself, for the history.
#[pyfunction]
pub fn pluggable_set_metadata(text: &str) {
    pluggable::set_metadata(text);
}

/// See [`pluggable_set_metadata`].
#[pyfunction]
pub fn pluggable_metadata() -> String {
    pluggable::metadata().to_string()
}

/// The program says something of the block at an address, for the history.
#[pyfunction]
pub fn pluggable_annotate(address: u64, text: &str) {
    pluggable::annotate(address, text);
}

/// Whether memory is cached, or each request is the device's own.
#[pyfunction]
pub fn pluggable_set_caching(caching: bool) {
    pluggable::set_caching(caching);
}

static ON_OUT_OF_MEMORY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Has ``callback(device, size, allowed, free)`` called when a request cannot be served, in the thread that asked.
#[pyfunction]
pub fn pluggable_on_out_of_memory(py: Python<'_>, callback: Py<PyAny>) {
    if ON_OUT_OF_MEMORY.set(py, callback).is_ok() {
        pluggable::on_out_of_memory(tell_out_of_memory);
    }
}

// PyTorch's own allocator waits for the interpreter here too.
fn tell_out_of_memory(device: i32, size: u64, allowed: u64, free: u64) {
    // SAFETY: reads a flag; may be asked at any time, from any thread.
    if unsafe { pyo3::ffi::Py_IsInitialized() } == 0 {
        return;
    }
    Python::attach(|py| {
        if let Some(callback) = ON_OUT_OF_MEMORY.get(py)
            && let Err(error) = callback.call1(py, (device, size, allowed, free))
        {
            error.write_unraisable(py, None);
        }
    });
}

fn state(state: BlockState) -> &'static str {
    match state {
        BlockState::Live => "active_allocated",
        BlockState::Pending => "active_pending_free",
        BlockState::Free => "inactive",
    }
}

fn segment<'py>(py: Python<'py>, device: i32, segment: &Segment) -> PyResult<Bound<'py, PyDict>> {
    let blocks = PyList::empty(py);
    for block in &segment.blocks {
        let out = PyDict::new(py);
        out.set_item("address", block.address)?;
        out.set_item("size", block.size)?;
        out.set_item("requested_size", block.requested)?;
        out.set_item("state", state(block.state))?;
        let stack = if block.state == BlockState::Free { None } else { pluggable::stack_of(block.address) };
        out.set_item("frames", taken(py, stack))?;
        blocks.append(out)?;
    }
    let out = PyDict::new(py);
    out.set_item("device", device)?;
    out.set_item("address", segment.address)?;
    out.set_item("total_size", segment.size)?;
    out.set_item("allocated_size", segment.bytes(&[BlockState::Live]))?;
    out.set_item("active_size", segment.bytes(&[BlockState::Live, BlockState::Pending]))?;
    out.set_item("requested_size", segment.requested())?;
    out.set_item("stream", segment.stream)?;
    out.set_item("segment_type", if segment.small { "small" } else { "large" })?;
    out.set_item("segment_pool_id", segment.pool)?;
    out.set_item("is_expandable", segment.expandable)?;
    out.set_item("frames", PyList::empty(py))?;
    out.set_item("blocks", blocks)?;
    Ok(out)
}

/// What lies where on a device: a snapshot's `segments`; the blocks' frames are stacks as they were taken, or None.
#[pyfunction]
pub fn pluggable_segments(py: Python<'_>, device: i32) -> PyResult<Bound<'_, PyList>> {
    let out = PyList::empty(py);
    for found in pluggable::snapshot(device) {
        out.append(segment(py, device, &found)?)?;
    }
    Ok(out)
}

/// What happened on a device: an element of a snapshot's `device_traces`; frames are stacks as they were taken, or None.
#[pyfunction]
pub fn pluggable_history(py: Python<'_>, device: i32) -> PyResult<Bound<'_, PyList>> {
    let out = PyList::empty(py);
    for entry in pluggable::history(device) {
        let subject = entry.subject;
        let address = if entry.action == Action::OutOfMemory { "device_free" } else { "addr" };
        let event = PyDict::new(py);
        event.set_item("action", entry.action.name())?;
        event.set_item(address, subject.address)?;
        event.set_item("size", subject.size)?;
        event.set_item("stream", subject.stream)?;
        event.set_item("time_us", entry.time)?;
        event.set_item("compile_context", "N/A")?;
        event.set_item("user_metadata", &*entry.metadata)?;
        event.set_item("frames", taken(py, entry.stack))?;
        out.append(event)?;
    }
    Ok(out)
}
