//! The stand-in CUDA's functions for an observer, found in the process: see docs/dry-run.md.

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::os::unix::Library;

use super::work::WorkClass;

/// How the bytes at an address are known, as the stand-in numbers it; what follows from several is known as the last of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByteOrigin {
    /// As they would be on a GPU.
    Computed,
    /// From a check, which is taken to hold.
    Check,
    /// From numbers that were drawn in place of others.
    Drawn,
}

struct StandInFunctions {
    begin: extern "C" fn(),
    end: extern "C" fn() -> c_int,
    took: extern "C" fn(c_int, c_int, u64, u64),
    known: extern "C" fn(usize, usize, *mut u8) -> c_int,
    write: extern "C" fn(usize, usize, *const u8, c_int),
    write_later: extern "C" fn(usize, usize, u64),
    later: extern "C" fn(usize, usize, *mut u64) -> u64,
    forget: extern "C" fn(usize, usize),
}

static FUNCTIONS: OnceLock<StandInFunctions> = OnceLock::new();

/// Finds them.
pub fn find() -> Result<(), String> {
    let process = Library::this();
    // SAFETY: the functions are declared as here, in C's terms.
    let functions = unsafe {
        let get = || -> Result<StandInFunctions, libloading::Error> {
            Ok(StandInFunctions {
                begin: *process.get(b"stalloc_dryrun_operation_begin")?,
                end: *process.get(b"stalloc_dryrun_operation_end")?,
                took: *process.get(b"stalloc_dryrun_operation_took")?,
                known: *process.get(b"stalloc_dryrun_known")?,
                write: *process.get(b"stalloc_dryrun_write")?,
                write_later: *process.get(b"stalloc_dryrun_write_later")?,
                later: *process.get(b"stalloc_dryrun_later")?,
                forget: *process.get(b"stalloc_dryrun_forget")?,
            })
        };
        get().map_err(|error| error.to_string())?
    };
    _ = FUNCTIONS.set(functions);
    Ok(())
}

/// Called at each copy from a device: user, target, bytes, source, device, stream, flags.
pub type Read = extern "C" fn(usize, usize, u64, u64, c_int, u64, c_int) -> c_int;

/// Has the stand-in call `read` from now on.
pub fn on_host_read(read: Read) -> Result<(), String> {
    // SAFETY: the function is declared as here, in C's terms.
    unsafe {
        let listen = Library::this().get::<extern "C" fn(Read, usize)>(b"stalloc_dryrun_on_host_read");
        listen.map(|listen| listen(read, 0)).map_err(|error| error.to_string())
    }
}

/// An operation begins on this thread.
pub fn operation_begins() {
    if let Some(functions) = FUNCTIONS.get() {
        (functions.begin)();
    }
}

/// The innermost operation of this thread ends: whether it launched kernels itself.
pub fn operation_ends() -> bool {
    FUNCTIONS.get().is_some_and(|functions| (functions.end)() != 0)
}

/// The operation that ended last on this thread did so many floating-point operations on numbers of a type, and moved so many bytes.
pub fn operation_took(class: WorkClass, kind: u16, operations: u64, bytes: u64) {
    if let Some(functions) = FUNCTIONS.get() {
        (functions.took)(class as c_int, kind.into(), operations, bytes);
    }
}

/// The bytes at an address of a device, if they are known, and how.
pub fn known(address: usize, bytes: usize) -> Option<(Vec<u8>, ByteOrigin)> {
    let known = FUNCTIONS.get()?.known;
    // Most places are unknown: no room is made for their bytes.
    if known(address, bytes, std::ptr::null_mut()) == 0 {
        return None;
    }
    let mut target = vec![0; bytes];
    match known(address, bytes, target.as_mut_ptr()) {
        1 => Some((target, ByteOrigin::Computed)),
        2 => Some((target, ByteOrigin::Drawn)),
        3 => Some((target, ByteOrigin::Check)),
        _ => None, // another thread wrote there in between
    }
}

/// These bytes are at an address of a device from now on.
pub fn write(address: usize, bytes: &[u8], source: ByteOrigin) {
    let how = match source {
        ByteOrigin::Computed => 1,
        ByteOrigin::Drawn => 2,
        ByteOrigin::Check => 3,
    };
    if let Some(functions) = FUNCTIONS.get() {
        (functions.write)(address, bytes.len(), bytes.as_ptr(), how);
    }
}

/// These bytes of a device can be computed from now on: `what` they are.
pub fn write_later(address: usize, bytes: usize, what: u64) {
    if let Some(functions) = FUNCTIONS.get() {
        (functions.write_later)(address, bytes, what);
    }
}

/// What the bytes at an address of a device are, and bytes of it before them, if they can be computed.
pub fn later(address: usize, bytes: usize) -> Option<(u64, u64)> {
    let mut before = 0;
    let what = (FUNCTIONS.get()?.later)(address, bytes, &raw mut before);
    (what != 0).then_some((what, before))
}

/// Nobody knows what is at an address of a device from now on.
pub fn forget(address: usize, bytes: usize) {
    if let Some(functions) = FUNCTIONS.get() {
        (functions.forget)(address, bytes);
    }
}
