//! The operations of a program that an observer tells us of: which kernels belong to which.
//!
//! PyTorch's operations write only where their declaration says, and who observes them reports what that is. So a kernel that is launched
//! inside of one is no reason to forget everything that is known of device memory.

use super::Handle;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The operations that are running on this thread, innermost last, by what they have launched themselves.
    static RUNNING: RefCell<Vec<Option<Launched>>> = const { RefCell::new(Vec::new()) };
    /// What the operation that ended last has launched itself.
    static ENDED: Cell<Option<Launched>> = const { Cell::new(None) };
    /// How many launches of the program's own kernels are running on this thread whose writes are told.
    static LAUNCHES: Cell<usize> = const { Cell::new(0) };
}

/// What an operation launched: the stream of the last kernel, and the time that all of them were taken to need, nanoseconds.
pub type Launched = (Handle, u64);

/// What `what` says of the running operations; at a thread's very end, where libraries clean up, there are none.
fn with<T: Default>(what: impl FnOnce(&mut Vec<Option<Launched>>) -> T) -> T {
    RUNNING.try_with(|running| what(&mut running.borrow_mut())).unwrap_or_default()
}

/// An operation begins on this thread, inside of those that are running; whether there are none.
pub fn begin() -> bool {
    with(|running| {
        running.push(None);
        running.len() == 1
    })
}

/// The innermost operation ends; whether it launched a kernel itself, not through another operation.
pub fn end() -> bool {
    let launched = with(|running| running.pop().flatten());
    ENDED.set(launched);
    launched.is_some()
}

/// What the operation that ended last has launched itself, once.
pub fn take_ended() -> Option<Launched> {
    ENDED.take()
}

/// A kernel was launched on a stream, and taken to need so long: whether an operation answers for it.
pub fn launched(stream: Handle, nanoseconds: u64) -> bool {
    with(|running| {
        let innermost = running.last_mut();
        innermost.map(|launched| *launched = Some((stream, launched.map_or(0, |(_, sum)| sum) + nanoseconds))).is_some()
    })
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
