//! What crates of every floor need in one form only: [`figures`] for people, [`printable`] text, [`whole_file`] and [`replace`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod figures;
mod printable;
mod whole_file;

pub use crate::printable::printable;
pub use crate::whole_file::{replace, whole_file};
