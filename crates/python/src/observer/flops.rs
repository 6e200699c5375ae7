//! Floating-point operations of what is observed: matrix products, attention and convolutions, by the sizes of their inputs.
//!
//! Counted as `torch.utils.flop_counter` counts: a multiplication and an addition are two, a causal mask saves nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::ObserverLayout;
use super::layout::{Located, TENSOR, VALUE, View, bytes_of, tag, word};
use super::work::WorkClass;

static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Per cent of the time that a product of aligned matrices takes: a vocabulary of 50,257 made whole steps of nanoGPT 25 % longer than one of
/// 50,304 on an A100, and the instructions of Hopper and later, which need alignment, are 1.6 times as fast as those before them.
const UNALIGNED: u64 = 300;

/// What an operation multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// The tensors of two inputs, the first of which has this index.
    Matrices(usize),
    /// Queries with keys, then with values: the queries' index, how many products of this size there are in all, and the index of what
    /// says that half of them is not computed.
    Attention(usize, u64, usize),
    /// The same of inputs whose heads come after their rows.
    AttentionOfRows(usize, u64, usize),
    /// An input with a weight, to an output.
    Convolution,
    /// The two products of a convolution's backward pass: the gradient with the weight, and with the input.
    ConvolutionBackward,
}

impl Product {
    /// The product of an operation, by its name without the namespace; none for one that has none, or that is made of others.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name.strip_prefix("aten::")? {
            "mm" | "bmm" | "_scaled_mm" => Self::Matrices(0),
            "addmm" | "baddbmm" | "addmm_" | "_addmm_activation" => Self::Matrices(1),
            // Those that launch themselves, and those that others pass it on to.
            "_scaled_dot_product_flash_attention" => Self::Attention(0, 2, 4),
            "_flash_attention_forward" => Self::AttentionOfRows(0, 2, 8),
            "_scaled_dot_product_efficient_attention" | "_scaled_dot_product_cudnn_attention" => {
                Self::Attention(0, 2, 6)
            }
            "_cudnn_attention_forward" => Self::Attention(0, 2, 10),
            "_efficient_attention_forward" => Self::AttentionOfRows(0, 2, usize::MAX),
            "_scaled_dot_product_flash_attention_backward" | "_scaled_dot_product_efficient_attention_backward" => {
                Self::Attention(1, 5, 11)
            }
            "_flash_attention_backward" => Self::AttentionOfRows(1, 5, 11),
            "_efficient_attention_backward" => Self::AttentionOfRows(1, 5, usize::MAX),
            "_scaled_dot_product_cudnn_attention_backward" | "_cudnn_attention_backward" => Self::Attention(1, 5, 14),
            "cudnn_convolution" | "_slow_conv2d_forward" | "_conv_depthwise2d" | "slow_conv3d_forward" => {
                Self::Convolution
            }
            "convolution_backward" => Self::ConvolutionBackward,
            _ => return None,
        })
    }

    /// How its time follows from what it does.
    pub fn class(self) -> WorkClass {
        match self {
            Self::Matrices(_) => WorkClass::Matrix,
            Self::Attention(..) | Self::AttentionOfRows(..) => WorkClass::Attention,
            Self::Convolution | Self::ConvolutionBackward => WorkClass::Convolution,
        }
    }

    /// The operations of a product that starts with inputs at an address, so many, and the type of its numbers; a convolution's for one
    /// element of its output.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn begins(self, inputs: (usize, usize), layout: &ObserverLayout) -> Option<(u64, u16)> {
        // SAFETY: by the contract of this function.
        let view = |index: usize| unsafe { tensor(inputs, index, layout) };
        let sizes = |index: usize| view(index).map(|view| view.sizes);
        let (first, flops) = match self {
            Self::Matrices(first) => (first, of_matrices(&sizes(first)?, &sizes(first + 1)?)?),
            Self::Attention(first, products, _) => {
                (first, of_attention(&sizes(first)?, &sizes(first + 1)?)?.saturating_mul(products))
            }
            Self::AttentionOfRows(first, products, _) => {
                let mut keys = sizes(first + 1)?;
                let rows = keys.len().checked_sub(3)?;
                keys.swap(rows, rows + 1);
                (first, of_attention(&sizes(first)?, &keys)?.saturating_mul(products))
            }
            Self::Convolution => (0, of_convolution(&[], &sizes(1)?)?),
            Self::ConvolutionBackward => (0, of_convolution(&sizes(0)?, &sizes(2)?)?.saturating_mul(2)),
        };
        Some((flops, view(first)?.kind))
    }

    /// Per cent of what is counted that takes time, of inputs as those of [`Self::begins`]: attention to what came before alone computes
    /// half, and matrices whose rows are not whole pieces of 16 bytes take longer.
    ///
    /// # Safety
    /// As [`Self::begins`].
    pub unsafe fn weight(self, inputs: (usize, usize), layout: &ObserverLayout) -> u64 {
        match self {
            Self::Attention(.., causal) | Self::AttentionOfRows(.., causal) if causal < inputs.1 => {
                let value = inputs.0 + causal * VALUE;
                // SAFETY: by the contract of this function.
                let is_causal = unsafe { tag(value) == layout.tags.bool && word(value, 0) & 1 == 1 };
                if is_causal { 50 } else { 100 }
            }
            Self::Matrices(first) => {
                // SAFETY: as above.
                let matrices = unsafe { [tensor(inputs, first, layout), tensor(inputs, first + 1, layout)] };
                if matrices.iter().flatten().all(is_aligned) { 100 } else { UNALIGNED }
            }
            _ => 100,
        }
    }

    /// How its time follows from what it does, of inputs as those of [`Self::begins`]: tensor cores want the channels of 16-bit numbers last.
    ///
    /// # Safety
    /// As [`Self::begins`].
    pub unsafe fn class_of(self, inputs: (usize, usize), layout: &ObserverLayout) -> WorkClass {
        let input = match self {
            Self::Convolution => 0,
            Self::ConvolutionBackward => 1,
            _ => return self.class(),
        };
        // SAFETY: by the contract of this function.
        match unsafe { tensor(inputs, input, layout) } {
            Some(view) if bytes_of(view.kind) == Some(2) && has_channels_first(&view) => {
                WorkClass::ConvolutionReordered
            }
            _ => WorkClass::Convolution,
        }
    }

    /// Counts a product that ends with so many outputs at an address; all its operations. Only of an operation that launched the kernel itself: a call that
    /// is passed on is another operation, and one whose result was kept computes nothing.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn ends(self, begun: u64, outputs: (usize, usize), layout: &ObserverLayout) -> u64 {
        let times = match self {
            // SAFETY: by the contract of this function.
            Self::Convolution => unsafe { tensor(outputs, 0, layout) }.map_or(0, |view| product(&view.sizes)),
            _ => 1,
        };
        let operations = begun.saturating_mul(times);
        TOTAL.fetch_add(operations, Relaxed);
        operations
    }
}

/// Whether the rows or columns of a matrix are whole pieces of 16 bytes, and it can be read in such; its result then is so too.
fn is_aligned(matrix: &View) -> bool {
    let bytes = bytes_of(matrix.kind).unwrap_or(1);
    let dimensions = matrix.sizes.len().saturating_sub(2);
    let whole = |elements: &usize| (elements * bytes).is_multiple_of(16);
    let rows = matrix.strides[dimensions..].iter().max().is_none_or(whole);
    rows && matrix.sizes.last().is_none_or(whole)
}

/// Whether the channels of several, the second dimension, do not lie side by side.
fn has_channels_first(input: &View) -> bool {
    matches!((input.sizes.get(1), input.strides.get(1)), (Some(2..), Some(2..)))
}

/// Elements of each channel of an operation's first input, where it is a tensor whose channels come before its rows.
///
/// # Safety
/// The inputs must be values at an address, so many.
pub unsafe fn elements_by_channel(inputs: (usize, usize), layout: &ObserverLayout) -> Option<u64> {
    // SAFETY: by the contract of this function.
    let input = unsafe { tensor(inputs, 0, layout) }.filter(has_channels_first)?;
    Some(input.numel as u64 / input.sizes[1] as u64)
}

/// What was counted since the process began.
pub fn total() -> u64 {
    TOTAL.load(Relaxed)
}

/// The tensor that is an input.
///
/// # Safety
/// The inputs must be values at an address, so many.
unsafe fn tensor(inputs: (usize, usize), index: usize, layout: &ObserverLayout) -> Option<View> {
    if index >= inputs.1 {
        return None;
    }
    let value = inputs.0 + index * VALUE;
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let tensor = word(value, 0);
        (tag(value) == TENSOR && layout.is_plain(tensor)).then(|| layout.tensor.view(tensor, Located::Device)).flatten()
    }
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |all, &size| all.saturating_mul(size as u64))
}

/// [.., m, k] with [.., k, n].
fn of_matrices(one: &[usize], other: &[usize]) -> Option<u64> {
    Some(product(one).saturating_mul(2).saturating_mul(*other.last()? as u64))
}

/// One of the products of [.., s, d] with [.., t, d].
fn of_attention(queries: &[usize], keys: &[usize]) -> Option<u64> {
    let [.., length, _] = keys else { return None };
    Some(product(queries).saturating_mul(2).saturating_mul(*length as u64))
}

/// Each element of the output from all inputs of one output channel.
fn of_convolution(output: &[usize], weight: &[usize]) -> Option<u64> {
    Some(product(output).saturating_mul(2).saturating_mul(product(weight.get(1..)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_counted_as_pytorch_counts_them() {
        assert_eq!(of_matrices(&[3, 5], &[5, 7]), Some(2 * 3 * 5 * 7));
        assert_eq!(of_matrices(&[2, 3, 5], &[2, 5, 7]), Some(2 * 2 * 3 * 5 * 7));
        // Queries with keys, and scores with values.
        assert_eq!(of_attention(&[2, 4, 16, 8], &[2, 4, 32, 8]).map(|one| 2 * one), Some(2 * 2 * 2 * 4 * 16 * 32 * 8));
        assert_eq!(of_convolution(&[2, 64, 8, 8], &[64, 3, 7, 7]), Some(2 * 2 * 64 * 8 * 8 * 3 * 7 * 7));
        assert_eq!((Product::of("aten::addmm"), Product::of("aten::add")), (Some(Product::Matrices(1)), None));
    }
}
