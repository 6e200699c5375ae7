//! Convolution before the graph API: the choice of an algorithm, which is the first one and needs no workspace.

use super::SUCCESS;
use crate::{execution::Handle, ffi::Out};
use std::ffi::c_int;

/// `cudnnConvolutionFwdAlgoPerf_t` and its two sisters.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Performance {
    algorithm: c_int,
    status: c_int,
    milliseconds: f32,
    memory: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

fn only_one(asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
    if asked > 0 {
        results.set(Performance { milliseconds: 0.1, determinism: 1, ..Performance::default() });
    }
    count.set(c_int::from(asked > 0));
    SUCCESS
}

exports! {
    fn cudnnGetConvolutionForwardAlgorithm_v7(_handle: Handle, _x: Handle, _w: Handle, _convolution: Handle, _y: Handle, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }

    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(_handle: Handle, _w: Handle, _dy: Handle, _convolution: Handle, _dx: Handle, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }

    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(_handle: Handle, _x: Handle, _dy: Handle, _convolution: Handle, _dw: Handle, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }

    fn cudnnFindConvolutionForwardAlgorithmEx(_handle: Handle, _x: Handle, _x_data: u64, _w: Handle, _w_data: u64, _convolution: Handle, _y: Handle, _y_data: u64, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }

    fn cudnnFindConvolutionBackwardDataAlgorithmEx(_handle: Handle, _w: Handle, _w_data: u64, _dy: Handle, _dy_data: u64, _convolution: Handle, _dx: Handle, _dx_data: u64, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }

    fn cudnnFindConvolutionBackwardFilterAlgorithmEx(_handle: Handle, _x: Handle, _x_data: u64, _dy: Handle, _dy_data: u64, _convolution: Handle, _dw: Handle, _dw_data: u64, asked: c_int, count: Out<c_int>, results: Out<Performance>) -> c_int {
        only_one(asked, count, results)
    }
}
