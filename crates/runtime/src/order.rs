//! Tells the stand-in CUDA which blocks there are, where it checks that memory passes from stream to stream in order.
//!
//! A GPU has no such function, and is told nothing: then it is one load and one branch for a request and for a free.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use stalloc_device::{Address, Stream};

/// `stalloc_dryrun_block`: see `crates/dryrun/src/recorder.rs`.
type Tell = unsafe extern "C" fn(c_int, c_int, u64, u64, u64) -> c_int;

const UNKNOWN: usize = 0;
const NOBODY: usize = 1;

/// Whom to tell: its address, once it was looked for.
static LISTENER: AtomicUsize = AtomicUsize::new(UNKNOWN);

#[cold]
fn look() -> usize {
    // SAFETY: looks a name up, which any thread may do at any time.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"stalloc_dryrun_block".as_ptr()) }.expose_provenance();
    // It says at once whether it listens.
    let listens = found != 0 && tell(found, -1, 0, 0, 0, 0);
    let listener = if listens { found } else { NOBODY };
    LISTENER.store(listener, Ordering::Relaxed);
    listener
}

fn tell(listener: usize, what: c_int, device: i32, address: Address, bytes: u64, stream: Stream) -> bool {
    let function = std::ptr::with_exposed_provenance::<()>(listener);
    // SAFETY: the address of the function of this name in the stand-in, which is loaded for good and has this signature.
    let function = unsafe { std::mem::transmute::<*const (), Tell>(function) };
    // SAFETY: it takes numbers only.
    unsafe { function(what, device, address, bytes, stream) != 0 }
}

#[inline]
fn told(what: c_int, device: i32, address: Address, bytes: u64, stream: Stream) {
    let mut listener = LISTENER.load(Ordering::Relaxed);
    if listener == UNKNOWN {
        listener = look();
    }
    if listener != NOBODY {
        tell(listener, what, device, address, bytes, stream);
    }
}

/// A block was handed out, all waits for it queued.
#[inline]
pub fn handed_out(device: i32, address: Address, bytes: u64, stream: Stream) {
    told(0, device, address, bytes, stream);
}

/// A stream uses a block too.
#[inline]
pub fn used_on(device: i32, address: Address, stream: Stream) {
    told(1, device, address, 0, stream);
}

/// A block is about to be given back: from then on another thread may get it.
#[inline]
pub fn given_back(device: i32, address: Address) {
    told(2, device, address, 0, 0);
}
