//! Plain data out of pickles, protocols 2 to 5.
//!
//! A pickle is a program for a small stack machine, and Python runs whatever it names. This machine knows the
//! instructions for data only (dict, list, tuple, int, float, str, bytes, bool, None, and sets as lists); one that
//! would import or call something is refused with its name.
//!
//! Why not a crate: a snapshot refers to each call-stack frame from thousands of stacks. `serde-pickle` refuses
//! such shared objects inside of containers as recursive, and a tree of owned values would hold a copy for each
//! reference, more than ten times the size of the file. Here every object is a node of an [`Pickled`], a reference
//! to it costs 8 bytes, dicts with the same keys share them, and lists with the same items share those too.

mod arena;
mod machine;

pub(crate) use arena::{Fields, Pickled, Value};
pub(crate) use machine::load;
