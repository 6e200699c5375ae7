//! cuDNN's graph API: a program builds a graph of operations, asks the heuristics for engines that can run it, and makes a plan of one.
//!
//! Each descriptor keeps the attributes that it is given. The installed cuDNN chooses engines and says what they need (`installed`); where
//! it does not, one engine runs everything and needs nothing.

use super::{
    BAD_PARAM, SUCCESS,
    descriptor::{Attribute, Descriptor, Node, WORKSPACE, element, is_answered, lock},
    imitation,
    installed::{self, CudnnAnswer},
};
use crate::{
    execution::{Handle, library_uses, new_handle, work},
    ffi::Out,
};
use std::{
    collections::HashMap,
    ffi::c_int,
    sync::{Arc, Mutex, PoisonError},
};

/// Type of an attribute that is another descriptor.
pub const DESCRIPTOR: c_int = 15;

/// The most that one attribute may take, in bytes; real ones have a handful of numbers or pointers.
const LARGEST: usize = 1 << 20;

static DESCRIPTORS: Mutex<Option<HashMap<Handle, Node>>> = Mutex::new(None);

fn find(descriptor: Handle) -> Option<Node> {
    let descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    descriptors.as_ref()?.get(&descriptor).cloned()
}

/// The descriptors that an attribute's bytes name.
fn named(bytes: &[u8]) -> Vec<Node> {
    let handles = bytes.chunks_exact(8).map(|chunk| chunk.try_into().map_or(0, Handle::from_ne_bytes));
    handles.filter_map(find).collect()
}

exports! {
    fn cudnnBackendCreateDescriptor(kind: c_int, place: Out<Handle>) -> c_int {
        let handle = new_handle();
        let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.get_or_insert_default().insert(handle, Arc::new(Mutex::new(Descriptor::new(kind))));
        place.set(handle);
        SUCCESS
    }

    fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> c_int {
        let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = descriptors.get_or_insert_default().remove(&descriptor);
        drop(descriptors);
        drop(gone);
        SUCCESS
    }

    fn cudnnSetStream(_handle: Handle, stream: Handle) -> c_int {
        library_uses(stream);
        SUCCESS
    }

    fn cudnnBackendInitialize(_descriptor: Handle) -> c_int {
        SUCCESS
    }

    fn cudnnBackendFinalize(descriptor: Handle) -> c_int {
        let Some(node) = find(descriptor) else {
            return BAD_PARAM;
        };
        installed::spend(&node);
        installed::finalize(&node).map_or(SUCCESS, |answer| answer.status)
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
        let bytes: Vec<u8> = (0..size).map_while(|index| elements.offset(index).get()).collect();
        let children = if kind == DESCRIPTOR { named(&bytes) } else { Vec::new() };
        let Some(node) = find(descriptor) else {
            return BAD_PARAM;
        };
        lock(&node).attributes.insert(name, Attribute { kind, count: size / element(kind), bytes, children });
        SUCCESS
    }

    fn cudnnBackendGetAttribute(descriptor: Handle, name: c_int, kind: c_int, asked: i64, count: Out<i64>, elements: Out<u8>) -> c_int {
        let Some(node) = find(descriptor) else {
            return BAD_PARAM;
        };
        let asked = usize::try_from(asked).unwrap_or(0).min(LARGEST / element(kind));
        let kept = lock(&node).attributes.get(&name).cloned();
        let (found, bytes) = match kept {
            Some(Attribute { count, bytes, .. }) => (count, bytes),
            None if is_answered(name) => {
                let wanted: Vec<u8> = match kind {
                    DESCRIPTOR => (0..asked * 8).map_while(|index| elements.offset(index).get()).collect(),
                    _ => Vec::new(),
                };
                match installed::get(&node, name, kind, asked, &named(&wanted)) {
                    Some(CudnnAnswer { status, .. }) if status != SUCCESS => return status,
                    Some(CudnnAnswer { count, bytes, .. }) => (count, bytes),
                    None if name == WORKSPACE => (1, imitation::workspace(&node).to_ne_bytes().to_vec()),
                    None => imitation::of_itself(name, kind),
                }
            }
            None => imitation::of_itself(name, kind),
        };
        count.set(i64::try_from(found).unwrap_or(0));
        let room = asked.min(found) * element(kind);
        bytes.into_iter().take(room).enumerate().for_each(|(index, byte)| elements.set_at(index, byte));
        SUCCESS
    }
}
