//! Locking, apart from everything that is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// An allocator that several threads use, such as autograd's. Each call locks it for as long as it takes; nothing of
/// the caller's runs in the meantime.
#[derive(Debug, Default)]
pub struct Locked<A>(Mutex<A>);

impl<A> Locked<A> {
    /// Puts an allocator behind a lock.
    pub const fn new(allocator: A) -> Self {
        Locked(Mutex::new(allocator))
    }

    /// The allocator, locked until the guard is dropped. After a panic under the lock it goes on: every operation
    /// takes a range before it hands it out and forgets a block before it frees its range, so one that was cut short
    /// can lose memory, never hand it out twice.
    pub fn lock(&self) -> MutexGuard<'_, A> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
