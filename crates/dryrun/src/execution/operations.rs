//! The operations of a program that an observer tells us of: which kernels belong to which.
//!
//! PyTorch's operations write only where their declaration says, and who observes them reports what that is. So a kernel that is launched
//! inside of one is no reason to forget everything that is known of device memory.

use std::cell::{Cell, RefCell};

thread_local! {
    /// The operations that are running on this thread, innermost last: whether one of its own kernels was launched.
    static RUNNING: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    /// How many launches of the program's own kernels are running on this thread whose writes are told.
    static LAUNCHES: Cell<usize> = const { Cell::new(0) };
}

/// What `what` says of the running operations; at a thread's very end, where libraries clean up, there are none.
fn with<T: Default>(what: impl FnOnce(&mut Vec<bool>) -> T) -> T {
    RUNNING.try_with(|running| what(&mut running.borrow_mut())).unwrap_or_default()
}

/// An operation begins on this thread, inside of those that are running.
pub fn begin() {
    with(|running| running.push(false));
}

/// The innermost operation ends; whether it launched a kernel itself, not through another operation.
pub fn end() -> bool {
    with(|running| running.pop().unwrap_or(false))
}

/// A kernel was launched: whether an operation answers for it.
pub fn launched() -> bool {
    with(|running| running.last_mut().map(|launched| *launched = true).is_some())
}

/// Kernels of the program's own code are launched on this thread from now on, and what they write is told afterwards.
pub fn launch_begins() {
    LAUNCHES.set(LAUNCHES.get() + 1);
}

/// The innermost such launch is over.
pub fn launch_ends() {
    LAUNCHES.set(LAUNCHES.get().saturating_sub(1));
}

/// Whether somebody tells what a kernel of the program's own code writes that is launched now.
pub fn is_launch_told() -> bool {
    LAUNCHES.get() > 0
}
