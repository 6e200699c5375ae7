//! Stand-in CUDA libraries: run PyTorch's CUDA path on a machine with no GPU.
//!
//! The library is preloaded; its unversioned symbols answer for the CUDA runtime, the driver, NVML and the libraries on top of them.
//! Kernels do nothing. Device memory is address space that nobody can touch. What a program can observe without a kernel's result
//! behaves as on a GPU: capacity, addresses, errors, streams, events, graph capture, properties.
//!
//! - `memory`: who owns which addresses, and what is known about their content;
//! - `execution`: streams, events, graphs, and the clock;
//! - `runtime_api`, `driver_api`, `libraries`: the exported functions, thin over the two above;
//! - `stubs`: every other function that a program may link to (`symbols/*.txt`).
//!
//! `docs/dry-run.md` says what is imitated, how faithfully, and what a recorder can ask.

// The exported names are CUDA's.
#![allow(non_snake_case)]

#[macro_use]
mod ffi;

mod checks;
mod config;
mod driver_api;
mod errors;
mod execution;
mod forks;
mod libraries;
mod loaded;
mod log;
mod memory;
mod properties;
mod recorder;
mod runtime_api;
mod stubs;
