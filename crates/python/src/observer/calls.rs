//! The observer's calls of Python: no profiler of the program's sees them, and what the handler of a signal raises meanwhile, Ctrl-C as a
//! rule, is not lost.
//!
//! Python runs handlers in the midst of any code of its main thread, also of ours, which PyTorch calls through C++: an exception cannot
//! go that way to the program. It is kept, what was interrupted is done again, and the program gets the exception as soon as Python
//! goes on with it. What escapes from our Python code is such an exception: its own errors it handles (`_dry_run/handlers.py`).

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::Library;
use pyo3::ffi::PyThreadState;
use pyo3::prelude::*;

use super::unobserved;

/// Times that a call is made again; a handler that raises each time has to be heard before.
const MOST_REPEATS: usize = 8;

static KEPT: Mutex<Vec<PyErr>> = Mutex::new(Vec::new());

/// Calls Python, unobserved; none if it was interrupted over and over, or if there is no interpreter any more.
pub fn call<T>(what: impl Fn(Python<'_>) -> PyResult<T>) -> Option<T> {
    unobserved(|| {
        // SAFETY: asked before the lock is taken, and given back as it was. In a call from Python pyo3 takes it for held, but the C++ in
        // between may have let go of it.
        let taken = unsafe {
            if pyo3::ffi::Py_IsInitialized() == 0 {
                return None;
            }
            pyo3::ffi::PyGILState_Ensure()
        };
        let result = Python::try_attach(|python| repeated(python, || what(python)));
        // SAFETY: as above.
        unsafe { pyo3::ffi::PyGILState_Release(taken) };
        result?
    })
}

fn repeated<T>(python: Python<'_>, what: impl Fn() -> PyResult<T>) -> Option<T> {
    let (suspend, resume) = tracing();
    // `torch.compile` would compile our functions where the program's compiled code is what called us.
    let compile = python.import("torch._C._dynamo.eval_frame").and_then(|module| module.getattr("set_eval_frame")).ok();
    let compiler = compile.as_ref().and_then(|set| set.call1((python.None(),)).ok());
    let mut interruptions = 0;
    let result = loop {
        suspend();
        let done = what();
        resume();
        match done {
            Ok(result) => break Some(result),
            Err(raised) => KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(left_behind(python, raised)),
        }
        interruptions += 1;
        if interruptions > MOST_REPEATS {
            break None;
        }
    };
    if let (Some(set), Some(compiler)) = (compile, compiler) {
        _ = set.call1((compiler,));
    }
    for _ in 0..interruptions {
        // SAFETY: the function is there as long as the process; the interpreter calls it with its lock, on the main thread.
        if unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), std::ptr::null_mut()) } != 0
            && let Some(raised) = oldest()
        {
            raised.write_unraisable(python, None);
        }
    }
    result
}

/// What was raised, without the frames of ours that it came through: as long as one of them is there, what it entered is not left, and
/// the program would go on without gradients.
fn left_behind(python: Python<'_>, raised: PyErr) -> PyErr {
    let value = raised.into_value(python).into_bound(python);
    // One that takes no other traceback keeps its own.
    _ = value.setattr("__traceback__", python.None());
    PyErr::from_value(value.into_any())
}

/// Functions that suspend and resume what traces and profiles this thread's Python code; they do nothing before Python 3.11.
fn tracing() -> (impl Fn(), impl Fn()) {
    type OfThread = unsafe extern "C" fn(*mut PyThreadState);
    static FUNCTIONS: OnceLock<Option<(OfThread, OfThread)>> = OnceLock::new();
    let functions = *FUNCTIONS.get_or_init(|| {
        let process = Library::this();
        let find = |name: &[u8]| {
            // SAFETY: Python declares these functions so.
            unsafe { process.get::<OfThread>(name) }.ok().map(|function| *function)
        };
        Some((find(b"PyThreadState_EnterTracing")?, find(b"PyThreadState_LeaveTracing")?))
    });
    let with = move |function: Option<OfThread>| {
        move || {
            if let Some(function) = function {
                // SAFETY: this thread has the interpreter's lock, as `call` was given it.
                unsafe { function(pyo3::ffi::PyThreadState_Get()) };
            }
        }
    };
    (with(functions.map(|both| both.0)), with(functions.map(|both| both.1)))
}

fn oldest() -> Option<PyErr> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    (!kept.is_empty()).then(|| kept.remove(0))
}

extern "C" fn raise(_: *mut c_void) -> c_int {
    let Some(raised) = oldest() else { return 0 };
    Python::attach(|python| raised.restore(python));
    -1
}
