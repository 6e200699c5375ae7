//! What stands in for an installed cuDNN that cannot be asked: one engine runs everything, and needs memory for attention alone.

use super::{
    backend::DESCRIPTOR,
    descriptor::{
        CONFIGURED_ENGINE, FIRST_OF_ENGINE, HEURISTIC_GRAPH, HEURISTIC_RESULTS, LAST_OF_ENGINE, Node,
        PLAN_CONFIGURATION, element, lock,
    },
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
        // Sizes above all, but for a plan's workspace.
        _ => (1, vec![0; element(kind)]),
    }
}

// Operations and tensors, and their attributes. Attention is one operation, or products with what is between them.
const ATTENTIONS: [c_int; 2] = [41, 43];
const MATRIX_PRODUCT: c_int = 19;
const REDUCTION: c_int = 22;
const REDUCED: c_int = 1610;
const RESULT: c_int = 1611;
const TENSOR_TYPE: c_int = 901;
const SIZES: c_int = 902;
const IS_VIRTUAL: c_int = 907;
/// Tensors that operations of attention write: of one operation on elements, a product, a reduction, and the forward and the backward pass
/// as one.
const WRITTEN: [c_int; 8] = [753, 1522, RESULT, 2803, 2804, 2859, 2860, 2861];

/// What a plan of attention takes on an H200 and an H100 (cuDNN 9.19; docs/dry-run.md), unless a single query is answered and nothing is
/// kept for a backward pass.
const ATTENTION: u64 = 256;

/// Bytes that a plan's engine needs: for attention a few, and where several heads share keys and values, the gradients of each
/// head before they are added up.
pub fn workspace(plan: &Node) -> u64 {
    let configuration = lock(plan).child(PLAN_CONFIGURATION);
    let heuristic = configuration.and_then(|of| lock(&of).origin.as_ref().map(|origin| origin.parent.clone()));
    let graph = heuristic.and_then(|heuristic| lock(&heuristic).child(HEURISTIC_GRAPH));
    let operations = graph.map(|graph| lock(&graph).operations()).unwrap_or_default();
    let kinds: Vec<c_int> = operations.iter().map(|operation| lock(operation).kind).collect();
    let products = kinds.iter().filter(|kind| **kind == MATRIX_PRODUCT).count();
    if products < 2 && !kinds.iter().any(|kind| ATTENTIONS.contains(kind)) {
        return 0;
    }
    // Generation, token by token: one query, and nothing for a backward pass.
    let kept: Vec<Node> = operations.iter().flat_map(kept).collect();
    let is_of_one = matches!(&kept[..], [result] if sizes(result).get(2) == Some(&1));
    let least = if is_of_one { 0 } else { ATTENTION };
    operations.iter().filter_map(over_heads).fold(least, u64::saturating_add)
}

/// The tensors that an operation writes to memory of the program.
fn kept(operation: &Node) -> Vec<Node> {
    let written = WRITTEN.iter().filter_map(|name| lock(operation).child(*name));
    let is_virtual = |tensor: &Node| lock(tensor).attributes.get(&IS_VIRTUAL).is_some_and(|is| is.bytes.contains(&1));
    written.filter(|tensor| !is_virtual(tensor)).collect()
}

/// Bytes of what a reduction over heads, the second of four dimensions, reads.
fn over_heads(operation: &Node) -> Option<u64> {
    let operation = lock(operation);
    let (from, to) = (operation.child(REDUCED)?, operation.child(RESULT)?);
    let (sizes, reduced) = (sizes(&from), sizes(&to));
    let is_over_heads = operation.kind == REDUCTION
        && sizes.len() == 4
        && reduced.len() == 4
        && (0..4).all(|dimension| (sizes[dimension] == reduced[dimension]) == (dimension != 1));
    let bytes: u64 = match lock(&from).number(TENSOR_TYPE)? {
        0 => 4,     // CUDNN_DATA_FLOAT
        2 | 9 => 2, // CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16
        _ => return None,
    };
    is_over_heads.then(|| sizes.iter().fold(bytes, |product, size| product.saturating_mul(*size)))
}

fn sizes(tensor: &Node) -> Vec<u64> {
    let tensor = lock(tensor);
    let bytes = tensor.attributes.get(&SIZES).map_or(&[][..], |sizes| &sizes.bytes);
    let size = |eight: &[u8]| i64::from_ne_bytes(eight.try_into().unwrap_or_default());
    bytes.chunks_exact(8).map(|eight| u64::try_from(size(eight)).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests;
