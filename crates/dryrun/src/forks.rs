//! A fork waits until no other thread is in the middle of a change: in the child, that thread would never end it.

use std::any::Any;
use std::cell::RefCell;
use std::sync::{MutexGuard, Once, OnceLock, TryLockError, TryLockResult};
use std::thread::sleep;
use std::time::Duration;

/// How often a fork looks whether others are done, and the time between: a second in all, for a thread that forks amid its own change.
const MOST_TRIES: u32 = 5000;
const PAUSE: Duration = Duration::from_micros(200);

/// Takes a lock, if it is free.
type Take = fn() -> Option<Box<dyn Any>>;

static LOCKS: [OnceLock<Take>; 2] = [const { OnceLock::new() }; 2];

thread_local! {
    /// What this thread holds while it forks.
    static HELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Has forks wait for a lock from now on.
pub fn wait_for(take: Take) {
    static ONCE: Once = Once::new();
    let _ = LOCKS.iter().find(|place| place.set(take).is_ok());
    ONCE.call_once(|| {
        // SAFETY: the functions take nothing, do not unwind, and live as long as this library, which is never unloaded.
        let _ = unsafe { libc::pthread_atfork(Some(hold), Some(let_go), Some(let_go)) };
    });
}

/// A lock that was tried, if it was free.
pub fn taken<T>(lock: TryLockResult<MutexGuard<'static, T>>) -> Option<Box<dyn Any>> {
    match lock {
        Ok(held) => Some(Box::new(held)),
        Err(TryLockError::Poisoned(held)) => Some(Box::new(held.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

extern "C" fn hold() {
    // In no order: whoever holds one of them may wait for another.
    for _ in 0..MOST_TRIES {
        if let Some(held) = LOCKS.iter().filter_map(OnceLock::get).map(|take| take()).collect() {
            let _ = HELD.try_with(|place| place.replace(held));
            return;
        }
        sleep(PAUSE);
    }
}

extern "C" fn let_go() {
    let _ = HELD.try_with(RefCell::take);
}

#[cfg(test)]
mod tests;
