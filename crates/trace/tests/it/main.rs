//! The formats' tests from outside, in one program.

#![allow(clippy::unwrap_used)]

mod common;
mod hostile;
mod own_format;
mod real_snapshots;
mod rewinding;
mod snapshot_versions;
mod text_formats;
mod traces;
