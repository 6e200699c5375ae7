//! A descriptor of cuDNN's graph API, as the program made it: what it is, or which answer it came from.

use super::backend::DESCRIPTOR;
use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub const HEURISTIC: c_int = 4;
pub const ENGINE: c_int = 2;
pub const PLAN: c_int = 5;

pub const HEURISTIC_MODE: c_int = 200;
/// `CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH` and `CUDNN_ATTR_OPERATIONGRAPH_OPS`.
pub const HEURISTIC_GRAPH: c_int = 201;
const OPERATIONS: c_int = 801;
pub const HEURISTIC_RESULTS: c_int = 202;
pub const CONFIGURED_ENGINE: c_int = 300;
pub const PLAN_CONFIGURATION: c_int = 401;
/// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`.
pub const WORKSPACE: c_int = 402;
const FIRST_OF_PLAN: c_int = 400;
const LAST_OF_PLAN: c_int = 499;
pub const FIRST_OF_ENGINE: c_int = 1300;
pub const LAST_OF_ENGINE: c_int = 1399;

/// Type of an attribute that is the library's handle: it has none with no device.
pub const LIBRARY_HANDLE: c_int = 0;

/// Bytes of one element of an attribute's type.
pub fn element(kind: c_int) -> usize {
    match kind {
        2 | 24 => 1,                                  // boolean, character
        LIBRARY_HANDLE | 3 | 5 | 6 | DESCRIPTOR => 8, // handle, 64-bit integer, double, pointer
        26 => 16,                                     // fraction
        _ => 4,                                       // enumerations, float, 32-bit integer
    }
}

/// Whether cuDNN answers an attribute of itself: the engines, what is noted of them, and what a plan needs.
pub fn is_answered(name: c_int) -> bool {
    matches!(name, HEURISTIC_RESULTS | CONFIGURED_ENGINE | FIRST_OF_PLAN..=LAST_OF_PLAN | FIRST_OF_ENGINE..=LAST_OF_ENGINE)
}

/// A value that the program set in a cuDNN descriptor: type, count, bytes, and the descriptors that these name.
#[derive(Clone)]
pub struct Attribute {
    pub kind: c_int,
    pub count: usize,
    pub bytes: Vec<u8>,
    /// The descriptors that the bytes name, which live as long as somebody has them.
    pub children: Vec<Node>,
}

pub type Node = Arc<Mutex<Descriptor>>;

/// Which answer a descriptor came from: the attribute of another one, and its place in the list.
#[derive(Clone)]
pub struct Origin {
    pub parent: Node,
    pub name: c_int,
    pub index: usize,
    /// Elements that were asked for.
    pub asked: usize,
}

pub struct Descriptor {
    pub kind: c_int,
    pub attributes: BTreeMap<c_int, Attribute>,
    pub origin: Option<Origin>,
    /// The engine that is tried when no other would do: it is imitated rather than refused.
    pub is_last_resort: bool,
    /// Only imitated: the installed library refused it.
    pub is_imitated: bool,
    /// The installed library's own, with the number of the process that has it.
    pub installed: Option<(u64, u64)>,
}

impl Descriptor {
    pub fn new(kind: c_int) -> Self {
        let attributes = BTreeMap::new();
        Self { kind, attributes, origin: None, is_last_resort: false, is_imitated: false, installed: None }
    }

    /// The first element of an attribute, as a number.
    pub fn number(&self, name: c_int) -> Option<c_int> {
        let bytes = self.attributes.get(&name)?.bytes.get(..4)?;
        Some(c_int::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The operations of a graph.
    pub fn operations(&self) -> Vec<Node> {
        self.attributes.get(&OPERATIONS).map(|operations| operations.children.clone()).unwrap_or_default()
    }

    /// The first descriptor of an attribute.
    pub fn child(&self, name: c_int) -> Option<Node> {
        self.attributes.get(&name)?.children.first().cloned()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(installed) = self.installed {
            DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(installed);
        }
    }
}

/// The installed library's own of descriptors that are gone: nobody asks for them any more.
static DROPPED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Takes the list of what the installed library may forget.
pub fn take_dropped() -> Vec<(u64, u64)> {
    std::mem::take(&mut *DROPPED.lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn lock(node: &Node) -> MutexGuard<'_, Descriptor> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}
