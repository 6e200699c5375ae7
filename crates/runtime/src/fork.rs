//! What becomes of a forked child of a process that uses its GPU, such as a data loader's worker.
//!
//! The driver does not work there, the child's tensors are copies of its parent's, and locks may have been copied while
//! another thread held them. So it never takes a lock of ours: it is served nothing, and what it gives back is left alone.
//! A child of a parent that has not used its GPU yet is a process like any other.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IN_USE: AtomicBool = AtomicBool::new(false);
static IS_CHILD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        in_parent: Option<extern "C" fn()>,
        in_child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// The process uses a device from now on.
pub fn in_use() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function only sets a flag, which it may in a child of several threads, and it lives as long as the
        // process: this library is never unloaded.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
    IN_USE.store(true, Ordering::Release);
}

extern "C" fn in_child() {
    if IN_USE.load(Ordering::Acquire) {
        IS_CHILD.store(true, Ordering::Release);
    }
}

/// Whether this is a child that was forked while its parent used a device. One load.
#[inline]
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}
