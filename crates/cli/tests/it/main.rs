//! The command's tests from outside, in one program.

#![allow(clippy::unwrap_used)]

mod absurd;
mod commands;
mod faults;
mod floors;
mod help;
mod info;
mod settings;
