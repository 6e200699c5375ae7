//! The GPU given away between steps, and had back.

use std::ops::Range;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use stalloc_runtime::{self as runtime, ArenaError, Moved};

/// Ranges of memory: where each begins, and its bytes.
type Spans = Vec<(u64, u64)>;

fn ranges(named: Spans) -> Vec<Range<u64>> {
    named.into_iter().map(|(start, bytes)| start..start.saturating_add(bytes)).collect()
}

fn figures(py: Python<'_>, moved: Option<Result<Moved, ArenaError>>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Moved { bytes, copies, memory, host } = match moved {
        Some(Ok(moved)) => moved,
        Some(Err(error)) => return Err(raised(py, &error)),
        None => return Ok(None),
    };
    let out = PyDict::new(py);
    for (name, value) in [("bytes", bytes), ("copies", copies), ("memory", memory), ("host", host)] {
        out.set_item(name, value)?;
    }
    Ok(Some(out))
}

/// PyTorch's own type where the device has no memory left, Python's where the host has none.
fn raised(py: Python<'_>, error: &ArenaError) -> PyErr {
    use stalloc_device::Error as Refused;
    let text = error.to_string();
    match error {
        ArenaError::Device(Refused::HostMemory { .. }) => PyMemoryError::new_err(text),
        ArenaError::Device(Refused::OutOfMemory { .. }) => {
            let kind = py.import("torch.cuda").and_then(|torch| torch.getattr("OutOfMemoryError"));
            match kind.map(|kind| kind.cast_into::<PyType>()) {
                Ok(Ok(kind)) => PyErr::from_type(kind, text),
                _ => PyRuntimeError::new_err(text),
            }
        }
        _ => PyRuntimeError::new_err(text),
    }
}

/// RuntimeError if the arena of a device cannot sleep now.
#[pyfunction]
pub fn serve_can_sleep(py: Python<'_>, device: i32) -> PyResult<()> {
    runtime::can_sleep(device).unwrap_or(Ok(())).map_err(|error| raised(py, &error))
}

/// Has the arena of a device sleep; None if it has none.
#[pyfunction]
pub fn serve_sleep(py: Python<'_>, device: i32, keep: Spans, discard: Spans) -> PyResult<Option<Bound<'_, PyDict>>> {
    let (keep, discard) = (ranges(keep), ranges(discard));
    figures(py, py.detach(|| runtime::sleep(device, &keep, &discard)))
}

/// Has the arena of a device wake; None if it has none.
#[pyfunction]
pub fn serve_wake(py: Python<'_>, device: i32, first: Spans) -> PyResult<Option<Bound<'_, PyDict>>> {
    let first = ranges(first);
    figures(py, py.detach(|| runtime::wake(device, &first)))
}

/// Bytes of a device's arena that are on the host; None while it is awake.
#[pyfunction]
pub fn serve_asleep(device: i32) -> Option<u64> {
    runtime::asleep(device)
}

/// Whether what lies at an address is asleep.
#[pyfunction]
pub fn serve_sleeps_at(address: u64) -> bool {
    runtime::sleeps_at(address)
}
