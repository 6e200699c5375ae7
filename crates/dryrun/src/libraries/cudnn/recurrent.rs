//! Recurrent networks: where each weight lies in the buffer of all weights.
//!
//! As in the real library, the matrices of all layers come first, then the biases. Sizes of the temporary buffers are fitted to LSTMs of one
//! layer on an H200 (cuDNN 9.19, `tests.rs`); of others they are estimates.

use super::{BAD_PARAM, SUCCESS};
use crate::{execution::Handle, ffi::Out};
use std::{
    collections::HashMap,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

/// What `cudnnSetRNNDescriptor_v8` is told.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    gates: u64,
    biased: bool,
    directions: u64,
    data_type: c_int,
    input: u64,
    hidden: u64,
    projection: u64,
    layers: u64,
}

/// A matrix or a bias: where it begins, in elements, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightSlice {
    start: u64,
    rows: u64,
    columns: u64,
}

impl Network {
    /// Matrices of a layer in one direction: the gates on the input, on the state, and the projection.
    fn matrices(&self) -> u64 {
        2 * self.gates + u64::from(self.projection > 0)
    }

    /// Rows and columns of a matrix.
    fn shape(&self, layer: u64, matrix: u64) -> (u64, u64) {
        let state = if self.projection > 0 { self.projection } else { self.hidden };
        if matrix >= 2 * self.gates {
            (self.projection, self.hidden)
        } else if matrix >= self.gates {
            (self.hidden, state)
        } else if layer < self.directions {
            (self.hidden, self.input)
        } else {
            (self.hidden, state * self.directions)
        }
    }

    /// Elements of all matrices of one layer and direction.
    fn layer(&self, layer: u64) -> u64 {
        (0..self.matrices()).map(|matrix| self.shape(layer, matrix)).map(|(rows, columns)| rows * columns).sum()
    }

    /// Layers, each direction counted.
    fn all_layers(&self) -> u64 {
        self.layers * self.directions
    }

    /// A matrix of a layer, if there is such a one.
    pub fn matrix(&self, layer: u64, matrix: u64) -> Option<WeightSlice> {
        if layer >= self.all_layers() || matrix >= self.matrices() {
            return None;
        }
        let layers: u64 = (0..layer).map(|before| self.layer(before)).sum();
        let within: u64 =
            (0..matrix).map(|before| self.shape(layer, before)).map(|(rows, columns)| rows * columns).sum();
        let (rows, columns) = self.shape(layer, matrix);
        Some(WeightSlice { start: layers + within, rows, columns })
    }

    /// A bias of a layer, if there is such a one; the projection has none.
    pub fn bias(&self, layer: u64, bias: u64) -> Option<WeightSlice> {
        if !self.biased || layer >= self.all_layers() || bias >= 2 * self.gates {
            return None;
        }
        let matrices: u64 = (0..self.all_layers()).map(|layer| self.layer(layer)).sum();
        let start = matrices + (layer * 2 * self.gates + bias) * self.hidden;
        Some(WeightSlice { start, rows: self.hidden, columns: 1 })
    }

    /// Bytes of all weights.
    pub fn weights(&self) -> u64 {
        let matrices: u64 = (0..self.all_layers()).map(|layer| self.layer(layer)).sum();
        let biases = if self.biased { self.all_layers() * 2 * self.gates * self.hidden } else { 0 };
        (matrices + biases) * element(self.data_type)
    }

    /// Bytes of the workspace and of what training keeps for the way back, for sequences of `steps` in a batch.
    fn temporary(&self, (steps, batch): (u64, u64), trains: bool) -> (u64, u64) {
        let bytes = element(self.data_type);
        let state = self.hidden * self.directions * bytes;
        let sequence = steps * batch * state;
        if !trains {
            return (sequence * self.gates, 0); // not measured
        }
        // Each layer's gates and cell, and its output, which is the program's own in the last.
        let kept = sequence * ((self.gates + 1) * self.layers + self.layers - 1) + 256;
        let matrices: u64 = (0..self.all_layers()).map(|layer| self.layer(layer)).sum();
        // Half precision takes sums in full too. What the 8 MiB of full precision follow was seen at one shape only.
        let weights = if bytes == 2 { 6 * matrices } else { bytes * matrices + (8 << 20) };
        let states = batch * state * (2 * self.gates + 3);
        let lengths = (8 * batch).next_multiple_of(32);
        (sequence * (self.gates + 2) + states + weights + lengths + 256, kept)
    }
}

/// Bytes of one element of a cuDNN data type.
fn element(data_type: c_int) -> u64 {
    match data_type {
        1 => 8,     // double
        2 | 9 => 2, // half, bfloat16
        _ => 4,
    }
}

/// A tensor's data type, dimensions and strides.
#[derive(Debug, Clone, Default)]
struct Tensor {
    data_type: c_int,
    dimensions: Vec<c_int>,
    strides: Vec<c_int>,
}

/// The most dimensions that a tensor has.
const DIMENSIONS: usize = 8;

#[derive(Default)]
struct Descriptors {
    networks: HashMap<Handle, Network>,
    /// Time steps and batch of a sequence.
    sequences: HashMap<Handle, (u64, u64)>,
    tensors: HashMap<Handle, Tensor>,
}

static DESCRIPTORS: Mutex<Option<Descriptors>> = Mutex::new(None);

fn with<T>(change: impl FnOnce(&mut Descriptors) -> T) -> T {
    change(DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn network(handle: Handle) -> Option<Network> {
    with(|all| all.networks.get(&handle).copied())
}

/// Describes a part as a tensor and tells its address.
fn describe(part: Option<WeightSlice>, network: &Network, weights: u64, tensor: Handle, place: Out<u64>) {
    let Some(part) = part else {
        place.set(0);
        return;
    };
    let number = |value: u64| c_int::try_from(value).unwrap_or(c_int::MAX);
    let dimensions = vec![1, number(part.rows), number(part.columns)];
    let strides = vec![number(part.rows * part.columns), number(part.columns), 1];
    with(|all| all.tensors.insert(tensor, Tensor { data_type: network.data_type, dimensions, strides }));
    place.set(weights + part.start * element(network.data_type));
}

exports! {
    fn cudnnSetRNNDescriptor_v8(descriptor: Handle, _algorithm: c_int, cell: c_int, bias: c_int, direction: c_int, _input_mode: c_int, data_type: c_int, _precision: c_int, _math: c_int, input: c_int, hidden: c_int, projection: c_int, layers: c_int) -> c_int {
        let size = |value: c_int| u64::try_from(value).unwrap_or(0);
        let network = Network {
            gates: match cell {
                2 => 4, // LSTM
                3 => 3, // GRU
                _ => 1,
            },
            biased: bias != 0,
            directions: if direction == 1 { 2 } else { 1 },
            data_type,
            input: size(input),
            hidden: size(hidden),
            projection: if projection == hidden { 0 } else { size(projection) },
            layers: size(layers),
        };
        with(|all| all.networks.insert(descriptor, network));
        SUCCESS
    }

    fn cudnnDestroyRNNDescriptor(descriptor: Handle) -> c_int {
        with(|all| all.networks.remove(&descriptor));
        SUCCESS
    }

    fn cudnnSetRNNDataDescriptor(descriptor: Handle, _data_type: c_int, _layout: c_int, steps: c_int, batch: c_int) -> c_int {
        let sequence = (u64::try_from(steps).unwrap_or(0), u64::try_from(batch).unwrap_or(0));
        with(|all| all.sequences.insert(descriptor, sequence));
        SUCCESS
    }

    fn cudnnDestroyRNNDataDescriptor(descriptor: Handle) -> c_int {
        with(|all| all.sequences.remove(&descriptor));
        SUCCESS
    }

    fn cudnnGetRNNWeightSpaceSize(_handle: Handle, descriptor: Handle, bytes: Out<usize>) -> c_int {
        network(descriptor).map_or(BAD_PARAM, |network| {
            bytes.set(network.weights() as usize);
            SUCCESS
        })
    }

    fn cudnnGetRNNTempSpaceSizes(_handle: Handle, descriptor: Handle, mode: c_int, sequence: Handle, workspace: Out<usize>, reserve: Out<usize>) -> c_int {
        let Some(network) = network(descriptor) else {
            return BAD_PARAM;
        };
        let sequence = with(|all| all.sequences.get(&sequence).copied().unwrap_or_default());
        let (work, kept) = network.temporary(sequence, mode == 1);
        workspace.set(work as usize);
        reserve.set(kept as usize);
        SUCCESS
    }

    fn cudnnGetRNNWeightParams(_handle: Handle, descriptor: Handle, layer: c_int, _bytes: usize, weights: u64, part: c_int, matrix: Handle, matrix_place: Out<u64>, bias: Handle, bias_place: Out<u64>) -> c_int {
        let Some(network) = network(descriptor) else {
            return BAD_PARAM;
        };
        let (Ok(layer), Ok(part)) = (u64::try_from(layer), u64::try_from(part)) else {
            return BAD_PARAM;
        };
        describe(network.matrix(layer, part), &network, weights, matrix, matrix_place);
        describe(network.bias(layer, part), &network, weights, bias, bias_place);
        SUCCESS
    }

    fn cudnnSetTensorNdDescriptor(descriptor: Handle, data_type: c_int, count: c_int, dimensions: Out<c_int>, strides: Out<c_int>) -> c_int {
        let count = usize::try_from(count).unwrap_or(0).min(DIMENSIONS);
        let read = |list: Out<c_int>| (0..count).map_while(|index| list.offset(index).get()).collect();
        let tensor = Tensor { data_type, dimensions: read(dimensions), strides: read(strides) };
        with(|all| all.tensors.insert(descriptor, tensor));
        SUCCESS
    }

    fn cudnnGetTensorNdDescriptor(descriptor: Handle, asked: c_int, data_type: Out<c_int>, count: Out<c_int>, dimensions: Out<c_int>, strides: Out<c_int>) -> c_int {
        let tensor = with(|all| all.tensors.get(&descriptor).cloned().unwrap_or_default());
        data_type.set(tensor.data_type);
        count.set(c_int::try_from(tensor.dimensions.len()).unwrap_or(0));
        let asked = usize::try_from(asked).unwrap_or(0);
        for (place, values) in [(dimensions, tensor.dimensions), (strides, tensor.strides)] {
            values.into_iter().take(asked).enumerate().for_each(|(index, value)| place.set_at(index, value));
        }
        SUCCESS
    }

    fn cudnnDestroyTensorDescriptor(descriptor: Handle) -> c_int {
        with(|all| all.tensors.remove(&descriptor));
        SUCCESS
    }
}

#[cfg(test)]
mod tests;
