//! Stand-in CUDA libraries: run PyTorch's CUDA path on a machine with no GPU.
