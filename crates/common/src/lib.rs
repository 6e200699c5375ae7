//! What crates of every floor need in one form only: [`figures`] for people, and [`whole_file`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod figures;
mod whole_file;

pub use crate::whole_file::whole_file;
