//! The planner's tests from outside, in one program.

#![allow(clippy::unwrap_used)]

mod answers;
mod brute;
#[path = "../../examples/tight/generate.rs"]
mod generate;
mod known;
#[path = "../../examples/tight/nested.rs"]
mod nested;
#[path = "../../examples/tight/noisy.rs"]
mod noisy;
mod properties;
mod relations;
