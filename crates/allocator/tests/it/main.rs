//! The arena's tests from outside, in one program: a stranger's view of serve, free and begin a step.

#![allow(clippy::unwrap_used)]

mod blocks;
mod budget;
#[path = "../common/mod.rs"]
mod common;
mod following;
mod handles;
mod order;
mod pins;
mod pools;
mod random;
mod sleep;
mod streams;
mod threads;

/// So many random cases, ten times as many where all tests are run (`scripts/test all`).
fn cases(usual: u32) -> u32 {
    match std::env::var_os("STALLOC_TESTS") {
        _ if cfg!(miri) => 3,
        Some(tests) if tests == "all" => 10 * usual,
        _ => usual,
    }
}
