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
