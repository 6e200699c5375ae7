//! The libraries on top of CUDA, as far as a program can tell them from stubs (`crate::stubs` does the rest).

mod cublas;
pub mod cudnn;
pub mod nccl;
mod nvml;
