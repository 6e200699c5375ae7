//! The descriptors of cuDNN's graph API: each keeps the attributes that it is given.
//!
//! A program builds a graph of operations, asks the heuristics for engines that can run it, and makes a plan of one. Here one engine
//! runs everything.

use super::{BAD_PARAM, SUCCESS};
use crate::{
    execution::{Handle, new_handle, work},
    ffi::Out,
};
use std::{
    collections::HashMap,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

/// Type of an attribute that is another descriptor.
const DESCRIPTOR: c_int = 15;

// Attributes that cuDNN answers of itself, by number.
const HEURISTIC_RESULTS: c_int = 202;
const CONFIGURED_ENGINE: c_int = 300;
const PLAN_TEXT: c_int = 405;
const ENGINES: c_int = 802;
const FIRST_OF_ENGINE: c_int = 1300;
const ENGINE_INDEX: c_int = 1301;
const LAST_OF_ENGINE: c_int = 1399;

/// The most that one attribute may take, in bytes; real ones have a handful of numbers or pointers.
const LARGEST: usize = 1 << 20;

#[derive(Clone)]
struct Attribute {
    count: usize,
    bytes: Vec<u8>,
}

static DESCRIPTORS: Mutex<Option<HashMap<Handle, HashMap<c_int, Attribute>>>> = Mutex::new(None);

/// Bytes of one element of an attribute's type.
fn element(kind: c_int) -> usize {
    match kind {
        2 | 24 => 1,                     // boolean, character
        0 | 3 | 5 | 6 | DESCRIPTOR => 8, // handle, 64-bit integer, double, pointer
        26 => 16,                        // fraction
        _ => 4,                          // enumerations, float, 32-bit integer
    }
}

/// What is kept for a descriptor under an attribute's number.
fn kept(descriptor: Handle, name: c_int) -> Option<Attribute> {
    let descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    descriptors.as_ref()?.get(&descriptor)?.get(&name).cloned()
}

fn exists(descriptor: Handle) -> bool {
    let descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    descriptors.as_ref().is_some_and(|all| all.contains_key(&descriptor))
}

exports! {
    fn cudnnBackendCreateDescriptor(_kind: c_int, place: Out<Handle>) -> c_int {
        let handle = new_handle();
        let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.get_or_insert_default().insert(handle, HashMap::new());
        place.set(handle);
        SUCCESS
    }

    fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> c_int {
        let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.get_or_insert_default().remove(&descriptor);
        SUCCESS
    }

    fn cudnnBackendInitialize(_descriptor: Handle) -> c_int {
        SUCCESS
    }

    fn cudnnBackendFinalize(descriptor: Handle) -> c_int {
        if exists(descriptor) { SUCCESS } else { BAD_PARAM }
    }

    fn cudnnBackendExecute(_handle: Handle, _plan: Handle, _pack: Handle) -> c_int {
        work();
        SUCCESS
    }

    fn cudnnBackendSetAttribute(descriptor: Handle, name: c_int, kind: c_int, count: i64, elements: Out<u8>) -> c_int {
        let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(element(kind)));
        let Some(size) = size.filter(|size| *size <= LARGEST) else {
            return BAD_PARAM;
        };
        let bytes = (0..size).map_while(|index| elements.offset(index).get()).collect();
        let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(attributes) = descriptors.get_or_insert_default().get_mut(&descriptor) else {
            return BAD_PARAM;
        };
        attributes.insert(name, Attribute { count: size / element(kind), bytes });
        SUCCESS
    }

    fn cudnnBackendGetAttribute(descriptor: Handle, name: c_int, kind: c_int, asked: i64, count: Out<i64>, elements: Out<u8>) -> c_int {
        if !exists(descriptor) {
            return BAD_PARAM;
        }
        let asked = usize::try_from(asked).unwrap_or(0);
        let (found, bytes) = match kept(descriptor, name) {
            Some(Attribute { count, bytes }) => (count, bytes),
            None => of_itself(name, kind),
        };
        count.set(i64::try_from(found).unwrap_or(0));
        let room = asked.min(found) * element(kind);
        bytes.into_iter().take(room).enumerate().for_each(|(index, byte)| elements.set_at(index, byte));
        SUCCESS
    }
}

/// An attribute that nobody set: how many elements, and their bytes.
///
/// Where the elements are descriptors the caller made them before, and they stay as they are.
fn of_itself(name: c_int, kind: c_int) -> (usize, Vec<u8>) {
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
