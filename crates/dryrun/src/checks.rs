//! Checks of values, which hold: `all`, and with it `isfinite`, `allclose`, `equal`.
//!
//! A program that reads such a check back nearly always asks whether something is wrong, and ends or loops for ever on zeros: is
//! the loss finite, are two tensors close, have all sequences ended. The kernel that wrote the answer has the check in its name.

use crate::runtime_api::name_of;
use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Parts of the names of PyTorch's kernels: the reduction `all`, and the product of two truth values that ends `isfinite`.
const CHECKS: [&str; 2] = ["and_kernel_cuda", "BinaryFunctorIbbbNS0_15binary_internal10MulFunctorIb"];
/// More bytes than this are no check.
const LARGEST: usize = 4096;

/// The kernel that was launched last; 0 if something else has run since.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// `function` was launched, or something that has none (0).
pub fn launched(function: usize) {
    LAST.store(function, Relaxed);
}

/// Whether `bytes` that are read now are the outcome of a check.
pub fn is_check(bytes: usize) -> bool {
    static SEEN: LazyLock<Mutex<HashMap<usize, bool>>> = LazyLock::new(Mutex::default);
    let function = LAST.load(Relaxed);
    if function == 0 || bytes > LARGEST {
        return false;
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    *seen.entry(function).or_insert_with(|| name_of(function).is_some_and(|name| is_name_of_check(&name)))
}

fn is_name_of_check(name: &str) -> bool {
    CHECKS.iter().any(|check| name.contains(check))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_known_by_the_names_of_their_kernels() {
        let reduce = |kernel| {
            format!(
                "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIbNS0_14func_wrapper_tIbZZZNS0_15{kernel}ERNS_14"
            )
        };
        assert!(is_name_of_check(&reduce("and_kernel_cuda")));
        assert!(!is_name_of_check(&reduce("or_kernel_cuda")));
        assert!(!is_check(1), "nothing was launched");
    }
}
