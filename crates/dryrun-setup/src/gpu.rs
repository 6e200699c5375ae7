//! What there is to know of a GPU that a dry run stands in for.

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
const KIB: u32 = 1 << 10;

/// A model of GPU, as the CUDA runtime would describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// The preset's name on the command line, or the description that the user gave.
    pub name: &'static str,
    /// The name that the driver reports.
    pub product: &'static str,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory that the driver reports to programs (`cudaMemGetInfo`), in bytes.
    pub total: u64,
    /// Memory that one process of PyTorch takes outside its allocator, in bytes (estimate): CUDA's context, kernels as they
    /// are loaded, handles of the libraries. What a program finds taken before its first allocation.
    pub context: u64,
    /// The least and the most of it that is known of such a GPU, in bytes.
    pub context_range: (u64, u64),
    /// Whether GPUs of this kind are linked by NVLink in the machines that have several of them.
    pub nvlink: bool,
    /// Whether it can map pages of memory (virtual memory management).
    pub pages: bool,
    /// Second-level cache, in bytes.
    pub l2: u64,
    /// Width of the memory interface, in bits.
    pub bus_width: u32,
    /// Clock of the multiprocessors, in kHz.
    pub clock: u32,
    /// Clock of the memory, in kHz.
    pub memory_clock: u32,
    /// Threads that one multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// Blocks that one multiprocessor holds.
    pub blocks_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_per_multiprocessor: u32,
    /// Shared memory that one block can ask for, in bytes.
    pub shared_per_block: u32,
    /// Whether ECC is on.
    pub ecc: bool,
    /// Floating-point operations on dense 16-bit matrices, tera a second.
    pub peak: u32,
    /// Bandwidth of the link to the host each way, gigabytes a second.
    pub link: u32,
}

impl Gpu {
    /// The limits of a compute capability, as NVIDIA's programming guide has them; all else is nothing.
    pub(crate) const fn limits(capability: (u32, u32)) -> Gpu {
        let (threads, blocks, shared, per_block) = match capability {
            (7, 0) => (2048, 32, 96, 96),
            (7, _) => (1024, 16, 64, 64),
            (8, 0) => (2048, 32, 164, 163),
            (8, 9) => (1536, 24, 100, 99),
            (8, _) => (1536, 16, 100, 99),
            (12, _) => (1536, 24, 100, 99),
            _ => (2048, 32, 228, 227),
        };
        Gpu {
            name: "",
            product: "",
            capability,
            multiprocessors: 0,
            total: 0,
            context: 0,
            context_range: (0, 0),
            nvlink: false,
            pages: false,
            l2: 0,
            bus_width: 0,
            clock: 0,
            memory_clock: 0,
            threads_per_multiprocessor: threads,
            blocks_per_multiprocessor: blocks,
            shared_per_multiprocessor: shared * KIB,
            shared_per_block: per_block * KIB,
            ecc: false,
            peak: 0,
            link: 0,
        }
    }
}
