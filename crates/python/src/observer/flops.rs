//! Floating-point operations of what is observed: matrix products, attention and convolutions, by the sizes of their inputs.
//!
//! Counted as `torch.utils.flop_counter` counts: a multiplication and an addition are two, a causal mask saves nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Layout;
use super::layout::{Place, TENSOR, VALUE, tag, word};

static TOTAL: AtomicU64 = AtomicU64::new(0);

/// What an operation multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// The tensors of two inputs, the first of which has this index.
    Matrices(usize),
    /// Queries with keys, then with values: the queries' index, and how many products of this size there are in all.
    Attention(usize, u64),
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
            "_scaled_dot_product_flash_attention"
            | "_scaled_dot_product_efficient_attention"
            | "_scaled_dot_product_cudnn_attention" => Self::Attention(0, 2),
            "_scaled_dot_product_flash_attention_backward"
            | "_scaled_dot_product_efficient_attention_backward"
            | "_scaled_dot_product_cudnn_attention_backward" => Self::Attention(1, 5),
            "cudnn_convolution" | "_slow_conv2d_forward" | "_conv_depthwise2d" | "slow_conv3d_forward" => {
                Self::Convolution
            }
            "convolution_backward" => Self::ConvolutionBackward,
            _ => return None,
        })
    }

    /// The operations of a product that starts with inputs at an address, so many; a convolution's for one element of its output.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn begins(self, inputs: (usize, usize), layout: &Layout) -> Option<u64> {
        // SAFETY: by the contract of this function.
        let sizes = |index: usize| unsafe { sizes(inputs, index, layout) };
        match self {
            Self::Matrices(first) => of_matrices(&sizes(first)?, &sizes(first + 1)?),
            Self::Attention(first, products) => {
                Some(of_attention(&sizes(first)?, &sizes(first + 1)?)?.saturating_mul(products))
            }
            Self::Convolution => of_convolution(&[], &sizes(1)?),
            Self::ConvolutionBackward => Some(of_convolution(&sizes(0)?, &sizes(2)?)?.saturating_mul(2)),
        }
    }

    /// Counts a product that ends with so many outputs at an address. Only of an operation that launched the kernel itself: a call that
    /// is passed on is another operation, and one whose result was kept computes nothing.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn ends(self, begun: u64, outputs: (usize, usize), layout: &Layout) {
        let times = match self {
            // SAFETY: by the contract of this function.
            Self::Convolution => unsafe { sizes(outputs, 0, layout) }.map_or(0, |sizes| product(&sizes)),
            _ => 1,
        };
        TOTAL.fetch_add(begun.saturating_mul(times), Relaxed);
    }
}

/// What was counted since the process began.
pub fn total() -> u64 {
    TOTAL.load(Relaxed)
}

/// The sizes of the tensor that is an input.
///
/// # Safety
/// The inputs must be values at an address, so many.
unsafe fn sizes(inputs: (usize, usize), index: usize, layout: &Layout) -> Option<Vec<usize>> {
    if index >= inputs.1 {
        return None;
    }
    let value = inputs.0 + index * VALUE;
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let tensor = word(value, 0);
        (tag(value) == TENSOR && layout.is_plain(tensor))
            .then(|| layout.tensor.view(tensor, Place::Device))
            .flatten()
            .map(|view| view.sizes)
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
