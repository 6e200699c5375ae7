//! Error numbers, which the runtime and the driver share, their names, and the last error of each thread.

use std::{
    cell::Cell,
    ffi::{CStr, c_char},
};

/// A `cudaError_t` or a `CUresult`.
pub type Status = i32;

/// Done.
pub const SUCCESS: Status = 0;
/// An argument is invalid.
pub const INVALID_VALUE: Status = 1;
/// The device has no such memory left.
pub const OUT_OF_MEMORY: Status = 2;
/// A launch asks for more blocks or threads than there can be.
pub const INVALID_CONFIGURATION: Status = 9;
/// There is no such device.
pub const INVALID_DEVICE: Status = 101;
/// There is no context, or not this one.
pub const INVALID_CONTEXT: Status = 201;
/// The device has no such limit.
pub const UNSUPPORTED_LIMIT: Status = 215;
/// The operating system refused.
pub const OPERATING_SYSTEM: Status = 304;
/// The handle is of nothing that exists.
pub const INVALID_HANDLE: Status = 400;
/// The call does not fit the state.
pub const ILLEGAL_STATE: Status = 401;
/// There is no such name.
pub const NOT_FOUND: Status = 500;
/// Not done yet.
pub const NOT_READY: Status = 600;
/// The page-locked range is registered already.
pub const ALREADY_REGISTERED: Status = 712;
/// The range is not registered.
pub const NOT_REGISTERED: Status = 713;
/// This library does not do that.
pub const NOT_SUPPORTED: Status = 801;
/// The event was recorded in a capture that still runs.
pub const CAPTURED_EVENT: Status = 907;
/// Not while a stream is capturing.
pub const CAPTURE_UNSUPPORTED: Status = 900;
/// The capture was broken by an earlier call.
pub const CAPTURE_INVALIDATED: Status = 901;
/// The capture was begun on another stream.
pub const CAPTURE_UNMATCHED: Status = 903;

/// number, runtime's name, driver's name, sentence
type ErrorRow = (Status, &'static CStr, &'static CStr, &'static CStr);

const TABLE: &[ErrorRow] = &[
    (SUCCESS, c"cudaSuccess", c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"cudaErrorInvalidValue", c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"cudaErrorMemoryAllocation", c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (
        INVALID_CONFIGURATION,
        c"cudaErrorInvalidConfiguration",
        c"", // the driver has no such error
        c"invalid configuration argument",
    ),
    (100, c"cudaErrorNoDevice", c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"cudaErrorInvalidDevice", c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"cudaErrorDeviceUninitialized", c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (
        UNSUPPORTED_LIMIT,
        c"cudaErrorUnsupportedLimit",
        c"CUDA_ERROR_UNSUPPORTED_LIMIT",
        c"limit is not supported on this architecture",
    ),
    (
        OPERATING_SYSTEM,
        c"cudaErrorOperatingSystem",
        c"CUDA_ERROR_OPERATING_SYSTEM",
        c"OS call failed or operation not supported on this OS",
    ),
    (INVALID_HANDLE, c"cudaErrorInvalidResourceHandle", c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (
        ILLEGAL_STATE,
        c"cudaErrorIllegalState",
        c"CUDA_ERROR_ILLEGAL_STATE",
        c"the operation cannot be performed in the present state",
    ),
    (NOT_FOUND, c"cudaErrorSymbolNotFound", c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"cudaErrorNotReady", c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (
        ALREADY_REGISTERED,
        c"cudaErrorHostMemoryAlreadyRegistered",
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        NOT_REGISTERED,
        c"cudaErrorHostMemoryNotRegistered",
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (
        NOT_SUPPORTED,
        c"cudaErrorNotSupported",
        c"CUDA_ERROR_NOT_SUPPORTED",
        c"operation not supported (stalloc dry run: this function is not imitated)",
    ),
    (
        CAPTURE_UNSUPPORTED,
        c"cudaErrorStreamCaptureUnsupported",
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        CAPTURE_INVALIDATED,
        c"cudaErrorStreamCaptureInvalidated",
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
    (
        CAPTURE_UNMATCHED,
        c"cudaErrorStreamCaptureUnmatched",
        c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"stream capture was not initiated in this stream",
    ),
    (
        CAPTURED_EVENT,
        c"cudaErrorCapturedEvent",
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream",
    ),
];

const UNKNOWN: ErrorRow = (-1, c"unrecognized error code", c"unrecognized error code", c"unrecognized error code");

fn row(status: Status) -> &'static ErrorRow {
    TABLE.iter().find(|row| row.0 == status).unwrap_or(&UNKNOWN)
}

/// The runtime's name of an error.
pub fn runtime_name(status: Status) -> *const c_char {
    row(status).1.as_ptr()
}

/// The driver's name of an error; null when there is no such error.
pub fn driver_name(status: Status) -> Option<*const c_char> {
    Some(row(status)).filter(|row| row.0 == status && !row.2.is_empty()).map(|row| row.2.as_ptr())
}

/// The sentence that explains an error.
pub fn sentence(status: Status) -> *const c_char {
    row(status).3.as_ptr()
}

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(SUCCESS) };
}

/// Remembers a failure as the thread's last error, as every function of the runtime does, and returns it.
pub fn remember(result: Result<(), Status>) -> Status {
    match result {
        Ok(()) => SUCCESS,
        Err(status) => {
            LAST.set(status);
            status
        }
    }
}

/// A driver function's result: these do not touch the runtime's last error.
pub fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// The thread's last error.
pub fn last() -> Status {
    LAST.get()
}

/// The thread's last error, which is then forgotten.
pub fn take_last() -> Status {
    LAST.replace(SUCCESS)
}
