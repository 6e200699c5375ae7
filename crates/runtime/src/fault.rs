//! No panic leaves a function that C calls.
//!
//! Nothing here should panic, and if it does, it costs the job memory, not its life: the arenas serve nothing more, what is
//! live stays where it is, and requests go to the fallback. A foreign frame must not be unwound through: the process would
//! be aborted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::devices;
use crate::messages::say;

/// Does `act` for the function `name` that C calls; after a panic, what `otherwise` says.
#[inline]
pub fn contained<T>(name: &'static str, act: impl FnOnce() -> T, otherwise: impl FnOnce() -> T) -> T {
    let done = catch_unwind(AssertUnwindSafe(|| {
        injection::strike(name);
        act()
    }));
    match done {
        Ok(result) => result,
        Err(_) => {
            gave_up(name);
            // What it says is without a panic where nothing is done but to return a constant.
            otherwise()
        }
    }
}

/// Says that the fallback serves from now on, once, and sees to it.
#[cold]
fn gave_up(name: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    devices::retire();
    if !SAID.swap(true, Ordering::AcqRel) {
        say(&format!("internal error ({name}); the job goes on without its plan"));
    }
}

/// Faults on purpose, for tests: `STALLOC_FAULT=serve:3` makes the third call of that function panic and every one after
/// it, `STALLOC_FAULT=*:3` those of every function. Builds without debug assertions do not look at it.
#[cfg(debug_assertions)]
mod injection {
    use std::collections::HashMap;
    use std::sync::{Mutex, OnceLock, PoisonError};

    struct Armed {
        name: String,
        from: u64,
        calls: Mutex<HashMap<&'static str, u64>>,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    fn armed() -> Option<Armed> {
        let wanted = stalloc_common::settings::FAULT.text()?;
        let (name, from) = wanted.split_once(':')?;
        Some(Armed { name: name.to_owned(), from: from.parse().ok()?, calls: Mutex::default() })
    }

    pub fn strike(name: &'static str) {
        let Some(armed) = ARMED.get_or_init(armed) else { return };
        if armed.name != name && armed.name != "*" {
            return;
        }
        let call = {
            let mut calls = armed.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let call = calls.entry(name).or_default();
            *call += 1;
            *call
        };
        assert!(call < armed.from, "a fault on purpose in {name}");
    }
}

#[cfg(not(debug_assertions))]
mod injection {
    #[inline]
    pub fn strike(_name: &'static str) {}
}

#[cfg(test)]
mod tests;
