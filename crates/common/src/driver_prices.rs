//! What a driver's calls for memory take, nanoseconds, as measured on an H200 with handles of 2 MiB (bench/results/gpu.md).
//!
//! Opening and unmapping several handles by one call saves nothing; a handle of 32 MiB takes 1.6 times what one of 2 MiB does, one of
//! 512 MiB 4.6 times. `cudaMalloc` and `cudaFree` take 61 and 161 microseconds for 512 MiB. An A100 was published to take 193 to create, 36 to
//! open and 26 to unmap (bench_vmm, <https://github.com/magnate3/linux-riscv-dev>).

/// `cuMemCreate`.
pub const CREATE: u64 = 9_500;
/// `cuMemMap`.
pub const MAP: u64 = 1_500;
/// `cuMemSetAccess`.
pub const OPEN: u64 = 22_000;
/// `cuMemUnmap`.
pub const UNMAP: u64 = 15_500;
/// `cuMemRelease` of the last use.
pub const GIVE_BACK: u64 = 10_000;
/// `cudaMalloc`.
pub const ALLOC: u64 = 31_000;
/// `cudaFree`.
pub const FREE: u64 = 30_000;
