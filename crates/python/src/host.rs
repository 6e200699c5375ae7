//! PyTorch's CPU tensors, recorded: what `tests/python/programs/host_memory.cpp` calls at each request.

use std::ffi::c_void;

use pyo3::prelude::*;
use stalloc_runtime::contained;
use stalloc_trace::{RawEvent, StackId};

use crate::record;

/// Host memory is the only device of its trace.
const DEVICE: u32 = 0;
/// The CPU works in program order: one stream.
const STREAM: u64 = 0;

/// `StallocHostLog` in Rust. Change both together.
#[repr(C)]
struct HostLog {
    allocated: extern "C" fn(*const c_void, usize),
    freed: extern "C" fn(*const c_void),
}

static LOG: HostLog = HostLog { allocated, freed };

/// Address of the table of functions that the shim of the host reports to.
#[pyfunction]
pub fn host_log() -> usize {
    std::ptr::from_ref(&LOG).expose_provenance()
}

extern "C" fn allocated(address: *const c_void, bytes: usize) {
    let (address, size) = (address.addr() as u64, bytes as u64);
    let alloc = RawEvent::Alloc { address, size, stream: STREAM, stack: StackId::NONE };
    contained("allocated", || record::event(DEVICE, alloc), || ());
}

/// The shim is told addresses alone: the sizes are those of the allocations.
extern "C" fn freed(address: *const c_void) {
    let address = address.addr() as u64;
    let note = || {
        record::event(DEVICE, RawEvent::FreeRequested { address, size: 0, stream: STREAM });
        record::event(DEVICE, RawEvent::FreeCompleted { address, size: 0, stream: STREAM });
    };
    contained("freed", note, || ());
}
