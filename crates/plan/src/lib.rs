//! The plan: where every tensor of a training step goes, its file, and its independent check.
//!
//! A [`Plan`] holds one *arena* (a contiguous address range) and the *sections* that a program runs through: the
//! prologue once, the first step once, then steps of one or more kinds, over and over, all in the same arena. A section
//! lists what the program is expected to ask for, in order; a *slot* is a planned request with its offset; what cannot
//! be planned is *dynamic* and belongs to a group that says what was seen of it and which ranges it may reuse.
//!
//! The runtime imports this crate and nothing that makes plans; the check imports nothing that it checks.

mod model;

pub use model::*;
