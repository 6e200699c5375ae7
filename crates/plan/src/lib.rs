//! The plan: where every tensor of a training step goes, its file, and its independent check.
//!
//! A [`Plan`] holds one *arena* (a contiguous address range) and the *sections* that a program runs through: the
//! prologue once, the first step once, then steps of one or more kinds, over and over, all in the same arena. A section
//! lists what the program asks for, in order, every time; a *slot* is a planned request with its offset. Only what repeats
//! exactly is planned: a program whose steps vary has a plan without slots.
//!
//! - [`read`] and [`write()`] keep a plan in a file that is either whole and ours, or refused with the reason.
//! - [`Plan::check`] proves a plan consistent in itself, for every order of sections that it allows;
//!   [`Plan::check_against`] follows a trace through it; [`check_rectangles`] checks a solved allocation instance.
//!
//! The runtime imports this crate and nothing that makes plans; the check imports nothing that it checks.

#![forbid(unsafe_code)]

mod check;
mod file;
mod fingerprint;
mod model;

pub use check::{Findings, Rectangle, check_rectangles};
pub use file::{Error, FORMAT_VERSION, decode, encode, is_plan, read, write, write_as_named};
pub use fingerprint::fingerprint;
pub use model::*;
