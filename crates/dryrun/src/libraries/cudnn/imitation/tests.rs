use super::*;
use crate::libraries::cudnn::descriptor::{Attribute, Descriptor, Origin};
use std::sync::{Arc, Mutex};

const OPERATIONS: c_int = 801;

fn node(kind: c_int, children: &[(c_int, &[Node])]) -> Node {
    let mut descriptor = Descriptor::new(kind);
    for (name, nodes) in children {
        let attribute = Attribute { kind: DESCRIPTOR, count: nodes.len(), bytes: Vec::new(), children: nodes.to_vec() };
        descriptor.attributes.insert(*name, attribute);
    }
    Arc::new(Mutex::new(descriptor))
}

fn tensor(kind: c_int, sizes: [i64; 4]) -> Node {
    let tensor = node(15, &[]);
    let add = |name, bytes: Vec<u8>| {
        let attribute = Attribute { kind: 3, count: 1, bytes, children: Vec::new() };
        lock(&tensor).attributes.insert(name, attribute);
    };
    add(TENSOR_TYPE, kind.to_ne_bytes().to_vec());
    add(SIZES, sizes.iter().flat_map(|size| size.to_ne_bytes()).collect());
    tensor
}

/// A plan of a graph of operations, as the heuristics gave it.
fn plan(operations: &[Node]) -> Node {
    let graph = node(15, &[(OPERATIONS, operations)]);
    let heuristic = node(4, &[(HEURISTIC_GRAPH, &[graph])]);
    let configuration = node(3, &[]);
    lock(&configuration).origin = Some(Origin { parent: heuristic, name: HEURISTIC_RESULTS, index: 0, asked: 1 });
    node(5, &[(PLAN_CONFIGURATION, &[configuration])])
}

fn reduction(kind: c_int, from: [i64; 4], to: [i64; 4]) -> Node {
    node(REDUCTION, &[(REDUCED, &[tensor(kind, from)]), (RESULT, &[tensor(kind, to)])])
}

#[test]
fn attention_needs_what_it_needed_on_an_h200() {
    let product = || node(MATRIX_PRODUCT, &[]);
    let along_rows = reduction(0, [8, 16, 512, 512], [8, 16, 512, 1]);
    assert_eq!(workspace(&plan(&[product(), along_rows, product()])), 256);
    assert_eq!(ATTENTIONS.map(|kind| workspace(&plan(&[node(kind, &[])]))), [256, 256]);
}

#[test]
fn a_single_query_of_which_nothing_is_kept_for_a_backward_pass_needs_nothing() {
    let virtual_one = || {
        let tensor = tensor(0, [8, 16, 512, 512]);
        let is_virtual = Attribute { kind: 2, count: 1, bytes: vec![1], children: Vec::new() };
        lock(&tensor).attributes.insert(IS_VIRTUAL, is_virtual);
        tensor
    };
    let real = || tensor(0, [8, 16, 1, 64]);
    let rows = || tensor(0, [8, 16, 512, 64]);
    let product = |to: Node| node(MATRIX_PRODUCT, &[(1522, &[to])]);
    let softmax = |statistics: Node| node(13, &[(753, &[statistics])]);
    assert_eq!(workspace(&plan(&[product(virtual_one()), softmax(virtual_one()), product(real())])), 0);
    assert_eq!(workspace(&plan(&[product(virtual_one()), softmax(real()), product(real())])), 256);
    assert_eq!(workspace(&plan(&[product(virtual_one()), softmax(virtual_one()), product(rows())])), 256);
    assert_eq!(workspace(&plan(&[node(ATTENTIONS[0], &[(2803, &[real()])])])), 0);
    assert_eq!(workspace(&plan(&[node(ATTENTIONS[0], &[(2803, &[real()]), (2804, &[real()])])])), 256);
}

#[test]
fn gradients_of_shared_keys_and_values_are_kept_for_each_head_until_they_are_added() {
    let product = || node(MATRIX_PRODUCT, &[]);
    let shared = || reduction(9, [8, 16, 512, 64], [8, 4, 512, 64]);
    // Llama's layer with 16 heads and 4 of keys and values: 33,816,832 bytes of which PyTorch's own are 17,039,360.
    assert_eq!(workspace(&plan(&[product(), shared(), product(), shared()])), 33_816_832 - 17_039_360);
}

#[test]
fn what_is_no_attention_or_was_never_planned_needs_nothing() {
    assert_eq!(workspace(&plan(&[node(MATRIX_PRODUCT, &[]), node(13, &[])])), 0);
    assert_eq!(workspace(&node(5, &[])), 0);
}

#[test]
fn sizes_that_no_memory_has_do_not_overflow() {
    let product = || node(MATRIX_PRODUCT, &[]);
    let absurd = reduction(0, [i64::MAX, 2, i64::MAX, 1], [i64::MAX, 1, i64::MAX, 1]);
    assert_eq!(workspace(&plan(&[product(), absurd, product()])), u64::MAX);
}
