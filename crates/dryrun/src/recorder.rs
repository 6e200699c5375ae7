//! What a program can ask of the stand-in by functions that it finds in its own process (`ctypes.CDLL(None)` in Python).
//!
//! | function | |
//! |---|---|
//! | `version() -> int` | 1 |
//! | `on_host_read(callback, void *user)` | calls `callback` at each copy from device to host; null removes it |
//! | `block(int what, int device, uint64 address, uint64 bytes, uint64 stream) -> int` | an allocator announces a block: 0 handed out, 1 used by a stream too, 2 about to be given back; 1 if order is checked |
//! | `operation_took(int class, int type, uint64 operations, uint64 bytes)` | after its end, of one that launched kernels itself: what it did (`execution/durations.rs` has the classes) |
//! | `clock(int what) -> uint64` | nanoseconds: 0 the host's time, 1 how long it has waited for devices, 2 when these are done with all that they were given |
//! | `start_work() -> uint64`, `work_ended() -> uint64` | counts work that the program started by other means than CUDA; how much of it has certainly ended |
//! | `operation_begin()`, `operation_end() -> int` | around an operation; the second says whether it launched kernels itself |
//! | `launch_begin()`, `launch_end()` | around the launch of a kernel whose outputs are forgotten afterwards |
//! | `known(uint64 address, size_t bytes, void *target) -> int` | 0: not known; 1: known and copied; 2: known, drawn at random; 3: from a check taken to hold |
//! | `write(uint64 address, size_t bytes, const void *from, int how)` | these bytes are there now; `how` as above |
//! | `write_later(uint64 address, uint64 bytes, uint64 what)` | these bytes can be computed: `what` is the caller's number for them |
//! | `later(uint64 address, uint64 bytes, uint64 *before) -> uint64` | what the bytes are, if they can be computed, else 0; `before`: bytes of it that lie before |
//! | `forget(uint64 address, uint64 bytes)` | these bytes are no longer known |
//! | `keep(uint64 address)` | only copies use this page-locked memory of the host: what is known of a device's memory stays known there |
//! | `summary(char *text, size_t size) -> size_t` | a JSON object; returns its length, writes at most `size` bytes with a final zero |
//!
//! Each name begins with `stalloc_dryrun_`. The callback runs on the copying thread with no lock held.

use crate::{
    config::config,
    execution::{self, operations},
    ffi::{Out, TextOut},
    libraries::{cudnn, nccl},
    log,
    memory::{Provenance, counted_calls, host_bytes, host_bytes_mut, memory},
};
use serde_json::json;
use std::{
    ffi::{c_int, c_void},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// `int callback(void *user, void *destination, uint64 bytes, uint64 source, int device, uint64 stream, int flags)`, with flags 1: the bytes
/// are known, 2: an asynchronous copy to page-locked memory, 4: the outcome of a check, 8: drawn at random. One that writes another answer to
/// `destination` returns 1.
type ReadCallback = extern "C" fn(*mut c_void, *mut u8, u64, u64, c_int, u64, c_int) -> c_int;

/// A callback with the pointer that it wants back; the pointer's owner promises that any thread may use it.
#[derive(Clone, Copy)]
struct Listener {
    callback: ReadCallback,
    user: usize,
}

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
static KNOWN: AtomicU64 = AtomicU64::new(0);
static ZERO: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Where a read comes from.
pub struct ReadOrigin {
    /// Device address.
    pub source: u64,
    /// Its device.
    pub device: u32,
    /// Stream of the copy.
    pub stream: u64,
    /// An asynchronous copy to page-locked memory.
    pub offload: bool,
}

/// What is at the destination of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// What the program wrote itself.
    Known,
    /// What follows from numbers that were drawn in place of unknown ones.
    Drawn,
    /// The outcome of a check, which holds.
    Check,
    /// Zeros in place of what a kernel would have written.
    Unknown,
}

impl From<Provenance> for Bytes {
    fn from(source: Provenance) -> Self {
        match source {
            Provenance::Computed => Self::Known,
            Provenance::Check => Self::Check,
            Provenance::Drawn => Self::Drawn,
        }
    }
}

/// Counts a copy of so many bytes from the host to a device.
pub fn host_write(bytes: usize) {
    WRITTEN.fetch_add(bytes as u64, Relaxed);
}

/// Tells of a read; `target` holds what the program will see, and the callback may change it.
pub fn host_read(target: &mut [u8], origin: ReadOrigin, bytes: Bytes) {
    BYTES.fetch_add(target.len() as u64, Relaxed);
    let listener = *LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = listener.is_some_and(|Listener { callback, user }| {
        callback(
            std::ptr::with_exposed_provenance_mut(user),
            target.as_mut_ptr(),
            target.len() as u64,
            origin.source,
            origin.device.cast_signed(),
            origin.stream,
            c_int::from(bytes == Bytes::Known)
                | c_int::from(origin.offload) << 1
                | c_int::from(bytes == Bytes::Check) << 2
                | c_int::from(bytes == Bytes::Drawn) << 3,
        ) == 1
    });
    let counter = match (answered, bytes) {
        (true, _) | (false, Bytes::Check | Bytes::Drawn) => &ANSWERED,
        (false, Bytes::Known) => &KNOWN,
        (false, Bytes::Unknown) => &ZERO,
    };
    let count = counter.fetch_add(1, Relaxed) + 1;
    // A loop that waits for a value never ends; say so before somebody wonders for an hour.
    if !answered && bytes == Bytes::Unknown && count.is_power_of_two() && count >= 1 << 16 {
        log::complain(&format!(
            "{count} values were read back from the device, all zero; a loop that waits for a value to change does not end in a dry run"
        ));
    }
}

exports! {
    fn stalloc_dryrun_version() -> c_int {
        1
    }

    fn stalloc_dryrun_on_host_read(callback: Option<ReadCallback>, user: usize) {
        let listener = callback.map(|callback| Listener { callback, user });
        *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    fn stalloc_dryrun_operation_begin() {
        execution::operation_begins();
    }

    fn stalloc_dryrun_operation_end() -> c_int {
        operations::end().into()
    }

    fn stalloc_dryrun_operation_took(class: c_int, kind: c_int, operations: u64, bytes: u64) {
        execution::operation_took(execution::OperationClass::from_number(class), u16::try_from(kind).unwrap_or(0), operations, bytes);
    }

    fn stalloc_dryrun_clock(what: c_int) -> u64 {
        usize::try_from(what).ok().and_then(|what| execution::clock().get(what).copied()).unwrap_or(0)
    }

    fn stalloc_dryrun_launch_begin() {
        operations::launch_begins();
    }

    fn stalloc_dryrun_launch_end() {
        operations::launch_ends();
    }

    fn stalloc_dryrun_known(start: u64, bytes: usize, target: u64) -> c_int {
        let mut memory = memory();
        let source = match target {
            0 => memory.known().source(start, bytes as u64),
            _ => memory.known().read(start, host_bytes_mut(target, bytes)),
        };
        match source {
            None => 0,
            Some(Provenance::Computed) => 1,
            Some(Provenance::Drawn) => 2,
            Some(Provenance::Check) => 3,
        }
    }

    fn stalloc_dryrun_write(start: u64, bytes: usize, from: u64, how: c_int) {
        let source = match how {
            1 => Provenance::Computed,
            3 => Provenance::Check,
            _ => Provenance::Drawn,
        };
        memory().known().write(start, host_bytes(from, bytes), source);
    }

    fn stalloc_dryrun_write_later(start: u64, bytes: u64, what: u64) {
        memory().known().write_later(start, bytes, (what, 0));
    }

    fn stalloc_dryrun_later(start: u64, bytes: u64, before: Out<u64>) -> u64 {
        memory().known().later(start, bytes).map_or(0, |(what, at)| {
            before.set(at);
            what
        })
    }

    fn stalloc_dryrun_keep(address: u64) {
        memory().host().keep(address);
    }

    fn stalloc_dryrun_forget(start: u64, bytes: u64) {
        memory().known().forget(start, bytes);
    }

    fn stalloc_dryrun_start_work() -> u64 {
        execution::collective(0, 0);
        execution::work_done()
    }

    fn stalloc_dryrun_work_ended() -> u64 {
        execution::work_ended()
    }

    fn stalloc_dryrun_summary(text: TextOut, size: usize) -> usize {
        let summary = summary();
        text.set(&summary, size);
        summary.len()
    }
}

fn summary() -> String {
    let devices: Vec<_> = memory()
        .devices()
        .iter()
        .map(|device| json!({"total": device.total(), "used": device.used(), "peak": device.peak()}))
        .collect();
    let (blocks, violations) = execution::tally();
    json!({
        "gpu": config().gpu.name,
        "devices": devices,
        "host_reads": {
            "known": KNOWN.load(Relaxed),
            "zero": ZERO.load(Relaxed),
            "answered": ANSWERED.load(Relaxed),
            "bytes": BYTES.load(Relaxed),
        },
        "host_writes": {"bytes": WRITTEN.load(Relaxed)},
        "memory_calls": counted_calls(),
        "registered": nccl::registered(),
        "launches": execution::work_done(),
        "graphs": execution::INSTANTIATED.load(Relaxed),
        "cudnn": cudnn::tally(),
        "not_imitated": log::all_not_imitated(),
        "order": {"blocks": blocks, "violations": violations},
    })
    .to_string()
}
