//! Tells Python where the program first left its plan, without ever waiting for the interpreter.
//!
//! A request may come from any thread, and PyTorch gives the interpreter's lock away before it allocates: to wait for it
//! inside an allocation could be to wait for ever. So a note is left, which the main thread reads when it is back in
//! Python, right after the operation that allocated.

use std::ffi::{c_int, c_ulong, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stalloc_runtime as runtime;

static CALLBACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

unsafe extern "C" {
    /// Python's number of the calling thread; part of the stable ABI.
    fn PyThread_get_thread_ident() -> c_ulong;
}

/// What is known where the plan is left.
struct DepartureNote {
    device: i32,
    thread: c_ulong,
}

/// Has ``callback(device, thread)`` called in the main thread, once per device, soon after the program left its plan.
#[pyfunction]
pub fn serve_on_departure(py: Python<'_>, callback: Py<PyAny>) {
    if CALLBACK.set(py, callback).is_ok() {
        runtime::on_departure(leave_note);
    }
}

fn leave_note(device: i32) {
    // Tensors that outlive the interpreter are freed, and others made, with nobody left to tell.
    // SAFETY: reads a flag; may be asked at any time, from any thread.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return;
    }
    // SAFETY: asks the C library which thread this is; needs no interpreter.
    let thread = unsafe { PyThread_get_thread_ident() };
    let note = Box::into_raw(Box::new(DepartureNote { device, thread })).cast();
    // SAFETY: any thread may call it, with or without the interpreter's lock; `read_note` takes what the pointer owns.
    if unsafe { ffi::Py_AddPendingCall(Some(read_note), note) } != 0 {
        // SAFETY: the queue was full, so the pointer is still ours.
        drop(unsafe { Box::from_raw(note.cast::<DepartureNote>()) });
    }
}

extern "C" fn read_note(note: *mut c_void) -> c_int {
    // SAFETY: `leave_note` made it, and each note is read once.
    let note = unsafe { Box::from_raw(note.cast::<DepartureNote>()) };
    let tell = || {
        Python::attach(|py| {
            if let Some(callback) = CALLBACK.get(py)
                && let Err(error) = callback.call1(py, (note.device, note.thread))
            {
                error.write_unraisable(py, None);
            }
        });
    };
    runtime::contained("read_note", tell, || ());
    0
}
