//! What stands in for an installed cuDNN that cannot be asked: one engine runs everything and needs nothing.

use super::{
    backend::DESCRIPTOR,
    descriptor::{CONFIGURED_ENGINE, FIRST_OF_ENGINE, HEURISTIC_RESULTS, LAST_OF_ENGINE, element},
};
use std::ffi::c_int;

// Attributes that cuDNN answers of itself, by number.
const PLAN_TEXT: c_int = 405;
const ENGINES: c_int = 802;
const ENGINE_INDEX: c_int = 1301;

/// An attribute that nobody set: how many elements, and their bytes.
///
/// Where the elements are descriptors the caller made them before, and they stay as they are.
pub fn of_itself(name: c_int, kind: c_int) -> (usize, Vec<u8>) {
    match name {
        HEURISTIC_RESULTS | CONFIGURED_ENGINE => (1, Vec::new()),
        ENGINES => (1, 1_i64.to_ne_bytes().to_vec()),
        ENGINE_INDEX => (1, vec![0; 8]),
        // Notes, knobs and layouts: the engine has none.
        FIRST_OF_ENGINE..=LAST_OF_ENGINE | PLAN_TEXT => (0, Vec::new()),
        _ if kind == DESCRIPTOR => (0, Vec::new()),
        // Sizes above all: nothing is needed.
        _ => (1, vec![0; element(kind)]),
    }
}
