//! cuBLAS and cuBLASLt: versions, and the choice of an algorithm, which needs no workspace here.

use crate::{
    execution::{Handle, cuda_major, library_uses, reduce_fractions},
    ffi::{Out, text},
    loaded,
};
use std::ffi::{c_char, c_int};

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

fn version() -> usize {
    let major = cuda_major() as usize;
    // cuBLAS counts in ten thousands since version 12.
    let fallback = if major >= 12 { major * 10_000 } else { major * 1000 };
    loaded::returned("libcublasLt", c"cublasLtGetVersion").unwrap_or(fallback)
}

exports! {
    fn cublasLtGetVersion() -> usize {
        version()
    }

    fn cublasLtGetCudartVersion() -> usize {
        loaded::returned("libcublasLt", c"cublasLtGetCudartVersion").unwrap_or(cuda_major() as usize * 1000)
    }

    fn cublasGetVersion_v2(_handle: Handle, place: Out<c_int>) -> c_int {
        place.set(c_int::try_from(version()).unwrap_or(0));
        0
    }

    fn cublasGetCudartVersion() -> usize {
        cublasLtGetCudartVersion()
    }

    fn cublasSetStream_v2(_handle: Handle, stream: Handle) -> c_int {
        library_uses(stream);
        0
    }

    fn cublasSetMathMode(_handle: Handle, mode: c_int) -> c_int {
        // `CUBLAS_TF32_TENSOR_OP_MATH`, with flags above it.
        reduce_fractions(mode & 15 == 3);
        0
    }

    fn cublasGetStatusString(status: c_int) -> *const c_char {
        text(if status == 0 { c"CUBLAS_STATUS_SUCCESS" } else { c"cuBLAS error (stalloc dry run)" })
    }

    fn cublasGetStatusName(status: c_int) -> *const c_char {
        cublasGetStatusString(status)
    }

    fn cublasLtGetStatusString(status: c_int) -> *const c_char {
        cublasGetStatusString(status)
    }

    fn cublasLtMatmulAlgoGetHeuristic(_handle: Handle, _operation: Handle, _a: Handle, _b: Handle, _c: Handle, _d: Handle, _preference: Handle, asked: c_int, results: Out<Heuristic>, count: Out<c_int>) -> c_int {
        if asked > 0 {
            results.set(Heuristic { algorithm: [0; 8], workspace: 0, status: 0, waves: 1.0, reserved: [0; 4] });
        }
        count.set(c_int::from(asked > 0));
        0
    }
}
