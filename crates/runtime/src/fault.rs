//! No panic leaves a function that C calls.
//!
//! Nothing here should panic, and if it does, it costs the job memory, not its life: the arenas serve nothing more, what is
//! live stays where it is, and requests go to the fallback. A foreign frame must not be unwound through: the process would
//! be aborted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arenas;
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
    arenas::retire();
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
        let wanted = std::env::var("STALLOC_FAULT").ok()?;
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
mod tests {
    use super::*;

    /// The functions of a source file that C calls, and how many of them are contained.
    fn functions(source: &str) -> Vec<&str> {
        let starts = source.split("extern \"C").skip(1).filter_map(|rest| {
            let (abi, after) = rest.split_once("\" fn ")?;
            let named = after.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
            (abi.len() <= "-unwind".len() && named).then_some(after)
        });
        starts.collect()
    }

    #[test]
    fn every_function_that_c_calls_is_contained() {
        let sources = [
            include_str!("table.rs"),
            include_str!("pluggable/mod.rs"),
            include_str!("../../python/src/host.rs"),
            include_str!("../../python/src/departure.rs"),
            include_str!("../../python/src/tracker.rs"),
            include_str!("../../python/src/record.rs"),
        ];
        let mut seen = 0;
        for function in sources.into_iter().flat_map(functions) {
            let (name, rest) = function.split_once('(').expect("parameters");
            let body = rest.split("\n}").next().unwrap_or_default();
            // The second name of a function, and one that does nothing.
            let calls_another = name.starts_with("my_") || body.trim_end().ends_with("false");
            let is_contained = ["contained", "done"].iter().any(|by| body.contains(&format!("{by}(\"{name}\"")));
            assert!(calls_another || is_contained, "{name} is not contained");
            seen += 1;
        }
        assert!(seen > 25, "{seen}");
    }

    #[test]
    fn after_a_panic_the_other_answer_is_given() {
        assert_eq!(contained("test", || 1, || 2), 1);
        assert_eq!(contained("test", || panic!("a fault"), || 2), 2);
    }
}
