//! cuDNN: versions, the descriptors that a graph of operations is made of, recurrent networks, and the older choice of algorithms.
//!
//! From 9.8 on, the installed library says which engines it would choose and what they need (`installed`). Before, every operation is
//! supported and needs no workspace.

mod algorithms;
mod answers;
mod backend;
mod descriptor;
mod imitation;
mod installed;
mod recurrent;

pub use installed::tally;

/// `CUDNN_STATUS_SUCCESS`.
const SUCCESS: i32 = 0;
/// `CUDNN_STATUS_BAD_PARAM`, which is also what version 8 has for the like.
const BAD_PARAM: i32 = 2000;

use crate::{
    execution::cuda_major,
    ffi::{Out, text},
    loaded,
};
use std::ffi::{c_char, c_int};

/// The version of the cuDNN that the program was built for.
fn version() -> usize {
    let fallback = if cuda_major() >= 12 { 90_100 } else { 8500 };
    loaded::returned("libcudnn", c"cudnnGetVersion").unwrap_or(fallback)
}

exports! {
    fn cudnnGetVersion() -> usize {
        version()
    }

    fn cudnnGetCudartVersion() -> usize {
        loaded::returned("libcudnn", c"cudnnGetCudartVersion").unwrap_or(cuda_major() as usize * 1000)
    }

    fn cudnnGetProperty(which: c_int, value: Out<c_int>) -> c_int {
        let version = version();
        // Version 9 counts in ten thousands, the ones before in thousands.
        let unit = if version >= 90_000 { 10_000 } else { 1000 };
        let part = match which {
            0 => version / unit,
            1 => version % unit / 100,
            _ => version % 100,
        };
        value.set(c_int::try_from(part).unwrap_or(0));
        0
    }

    fn cudnnGetErrorString(status: c_int) -> *const c_char {
        text(if status == 0 { c"CUDNN_STATUS_SUCCESS" } else { c"CUDNN_STATUS_NOT_SUPPORTED (stalloc dry run)" })
    }
}
