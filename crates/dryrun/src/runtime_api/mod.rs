//! The CUDA runtime: `cuda*`.

mod device;
mod events;
mod fat_binary;
mod graphs;
mod kernels;
mod memory;
mod pools;
mod streams;
mod symbols;

pub use device::{
    cudaDeviceGetLimit, cudaDeviceGetStreamPriorityRange, current_device, existing, runtime_version, set_current_device,
};
pub use graphs::{cudaGraphDestroy, cudaGraphExecDestroy, cudaGraphInstantiate, cudaGraphLaunch};
pub use kernels::{Dim3, blocks_per_multiprocessor, is_launchable, name_of};
pub use memory::{allocate, allocate_host, copy_now, copy_on, fill_on, free, free_host};
pub use pools::cudaDeviceGetDefaultMemPool;
pub use streams::{
    cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v3,
    cudaStreamIsCapturing, cudaThreadExchangeStreamCaptureMode,
};

use crate::errors::{Status, remember};

/// The end of every function that can fail: remembers the failure for `cudaGetLastError`.
pub fn end<T>(result: Result<T, Status>) -> Status {
    remember(result.map(drop))
}
