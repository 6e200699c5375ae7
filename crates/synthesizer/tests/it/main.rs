//! The synthesizer's tests from outside, in one program.

#![allow(clippy::unwrap_used)]

mod common;
mod learning;
mod random;
mod real_traces;
mod training;
