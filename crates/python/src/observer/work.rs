//! What an operation has the GPU do, for the clock of the stand-in: its class and the bytes that it reads and writes.

use super::ObserverLayout;
use super::layout::{Located, TENSOR, VALUE, bytes_of, tag, word};

/// A class of operations, by the stand-in's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkClass {
    Matrix = 0,
    Attention = 1,
    Convolution = 2,
    ElementWise = 3,
    Reduction = 4,
    Gather = 5,
    /// Random numbers.
    Random = 6,
    /// What the host does itself.
    Host = 7,
    HostRandom = 8,
    /// A convolution of 16 bits whose channels come before its rows.
    ConvolutionReordered = 9,
    /// A norm over each channel, of which one multiprocessor passes all elements one after the other.
    ByChannel = 10,
    ByChannelBackward = 11,
}

/// Parts of names: `_log_softmax`, `native_layer_norm_backward`.
const REDUCTIONS: [&str; 17] = [
    "norm", "softmax", "sum", "mean", "var", "std", "max", "min", "amax", "amin", "all", "any", "prod", "cumsum",
    "sort", "topk", "loss",
];
const RANDOM: [&str; 8] = ["random", "uniform", "normal", "bernoulli", "exponential", "dropout", "rand", "randn"];
const GATHERS: [&str; 7] = ["index", "embedding", "gather", "scatter", "take", "masked", "nonzero"];

impl WorkClass {
    /// The class of an operation that multiplies nothing, by its name with the namespace.
    pub fn of(name: &str) -> Self {
        let has = |parts: &[&str]| name.split([':', '_']).any(|part| parts.contains(&part));
        if name == "aten::native_batch_norm" {
            Self::ByChannel
        } else if name == "aten::native_batch_norm_backward" {
            Self::ByChannelBackward
        } else if has(&RANDOM) {
            Self::Random
        } else if has(&GATHERS) {
            Self::Gather
        } else if has(&REDUCTIONS) {
            Self::Reduction
        } else {
            Self::ElementWise
        }
    }
}

/// Bytes that an operation reads and writes.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    read: u64,
    written: u64,
    /// The largest input that it does not write to.
    largest: u64,
    /// Bytes of inputs of the host, and where the memory begins of the first that it does not write to.
    host: (u64, usize),
}

impl Traffic {
    /// Of so many inputs at an address; bits say which are written to, and which of them are not read.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn begins(inputs: (usize, usize), writes: u64, fresh: u64, layout: &ObserverLayout) -> Self {
        let mut traffic = Self::default();
        for index in 0..inputs.1 {
            let is = |bits: u64| index < 64 && bits >> index & 1 == 1;
            // SAFETY: by the contract of this function.
            let (bytes, on_host) = unsafe {
                let value = inputs.0 + index * VALUE;
                (bytes_in(value, layout), host_bytes_in(value, layout))
            };
            if let Some((bytes, memory)) = on_host {
                let first = if traffic.host.1 == 0 && !is(writes) { memory } else { traffic.host.1 };
                let bytes = if is(fresh) { 0 } else { bytes };
                traffic.host = (traffic.host.0 + bytes, first);
            }
            if is(writes) {
                traffic.written += bytes;
            } else {
                traffic.largest = traffic.largest.max(bytes);
            }
            if !is(fresh) {
                traffic.read += bytes;
            }
        }
        traffic
    }

    /// Bytes that pass on the host, once it has ended with so many outputs at an address; 0 where it only looks at its input in another way,
    /// or the device takes part.
    ///
    /// # Safety
    /// As [`Self::begins`].
    pub unsafe fn on_host(self, outputs: (usize, usize), layout: &ObserverLayout) -> u64 {
        // SAFETY: by the contract of this function.
        let made = (0..outputs.1).filter_map(|index| unsafe { host_bytes_in(outputs.0 + index * VALUE, layout) });
        let (bytes, is_new) =
            made.fold((0, false), |(sum, new), (bytes, memory)| (sum + bytes, new || memory != self.host.1));
        if is_new && self.read + self.written == 0 { self.host.0 + bytes } else { 0 }
    }

    /// All bytes that pass, once it has ended with so many outputs at an address.
    ///
    /// # Safety
    /// As [`Self::begins`].
    pub unsafe fn ends(self, class: WorkClass, outputs: (usize, usize), layout: &ObserverLayout) -> u64 {
        // SAFETY: by the contract of this function.
        let made: u64 = (0..outputs.1).map(|index| unsafe { bytes_in(outputs.0 + index * VALUE, layout) }).sum();
        let written = self.written.max(made);
        match class {
            // The rows that are picked are read, and written or added to.
            WorkClass::Gather => 3 * self.largest.min(written),
            _ => self.read + written,
        }
    }
}

impl ObserverLayout {
    /// Whether a tensor is a plain one of the host.
    ///
    /// # Safety
    /// `tensor` must be the address of a `TensorImpl`.
    pub unsafe fn is_on_host(&self, tensor: usize) -> bool {
        // SAFETY: by the contract of this function.
        let keys = unsafe { self.tensor.keys(tensor) };
        keys & !self.host.0 == 0 && keys & self.host.1 != 0
    }

    /// Whether a tensor is a plain one of the device.
    ///
    /// # Safety
    /// `tensor` must be the address of a `TensorImpl`.
    pub unsafe fn is_plain(&self, tensor: usize) -> bool {
        // SAFETY: by the contract of this function.
        let keys = unsafe { self.tensor.keys(tensor) };
        keys & !self.device.0 == 0 && keys & self.device.1 != 0
    }
}

/// Bytes of the host's plain tensor that a value is, and where its memory begins.
///
/// # Safety
/// A value must be at `value`.
unsafe fn host_bytes_in(value: usize, layout: &ObserverLayout) -> Option<(u64, usize)> {
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let tensor = word(value, 0);
        if tag(value) != TENSOR || !layout.is_on_host(tensor) {
            return None;
        }
        let (kind, elements) = layout.tensor.elements(tensor);
        let (memory, _) = layout.tensor.storage(tensor, Located::Host)?;
        Some((elements.saturating_mul(bytes_of(kind)? as u64), memory))
    }
}

/// Bytes of the device's plain tensors in a value, those of elements that are the same memory once.
///
/// # Safety
/// A value must be at `value`.
unsafe fn bytes_in(value: usize, layout: &ObserverLayout) -> u64 {
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let first = word(value, 0);
        match tag(value) {
            TENSOR if layout.is_plain(first) && layout.tensor.storage(first, Located::Device).is_some() => {
                let (kind, elements) = layout.tensor.elements(first);
                elements.saturating_mul(bytes_of(kind).unwrap_or(match kind {
                    9 => 8,
                    10 => 16,
                    _ => 1,
                }) as u64)
            }
            tag if tag == layout.tags.list => {
                let (begin, count) = layout.tensor.list(first);
                (0..count).map(|index| bytes_in(begin + index * VALUE, layout)).sum()
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_from_the_parts_of_names() {
        let classes = [
            "aten::native_layer_norm_backward",
            "aten::_log_softmax",
            "aten::embedding_dense_backward",
            "aten::index_put_",
            "aten::native_batch_norm",
        ];
        use WorkClass::{ByChannel, Gather, Reduction};
        assert_eq!(classes.map(WorkClass::of), [Reduction, Reduction, Gather, Gather, ByChannel]);
        assert_eq!(["aten::add_", "aten::summary"].map(WorkClass::of), [WorkClass::ElementWise; 2]);
    }
}
