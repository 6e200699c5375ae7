//! The GPUs that a dry run can stand in for.
//!
//! Capacity is of the size that drivers report to programs (`cudaMemGetInfo`), which is less than the number on the box and differs
//! from driver to driver (docs/dry-run.md says how sure each is); limits are those of
//! the compute capability in NVIDIA's programming guide. `context` is an estimate: what a process has lost to its CUDA context
//! before its first allocation depends on the driver and on the kernels loaded.

use crate::SetupError;

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
const KIB: u32 = 1 << 10;

/// A model of GPU, as the CUDA runtime would describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The preset's name on the command line.
    pub name: &'static str,
    /// The name that the driver reports.
    pub product: &'static str,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory that the driver reports, in bytes.
    pub total: u64,
    /// Memory that the context takes, in bytes (estimate).
    pub context: u64,
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
}

const A100: Gpu = Gpu {
    name: "a100-80gb",
    product: "NVIDIA A100-SXM4-80GB",
    capability: (8, 0),
    multiprocessors: 108,
    total: 84_987_740_160,
    context: 420 * MIB,
    l2: 40 * MIB,
    bus_width: 5120,
    clock: 1_410_000,
    memory_clock: 1_593_000,
    threads_per_multiprocessor: 2048,
    blocks_per_multiprocessor: 32,
    shared_per_multiprocessor: 164 * KIB,
    shared_per_block: 163 * KIB,
    ecc: true,
};

const H100: Gpu = Gpu {
    name: "h100-80gb",
    product: "NVIDIA H100 80GB HBM3",
    capability: (9, 0),
    multiprocessors: 132,
    total: 85_029_158_912,
    context: 520 * MIB,
    l2: 50 * MIB,
    clock: 1_980_000,
    memory_clock: 2_619_000,
    shared_per_multiprocessor: 228 * KIB,
    shared_per_block: 227 * KIB,
    ..A100
};

const L40S: Gpu = Gpu {
    name: "l40s",
    product: "NVIDIA L40S",
    capability: (8, 9),
    multiprocessors: 142,
    total: 45_457 * MIB,
    context: 420 * MIB,
    l2: 96 * MIB,
    bus_width: 384,
    clock: 2_520_000,
    memory_clock: 9_001_000,
    threads_per_multiprocessor: 1536,
    blocks_per_multiprocessor: 24,
    shared_per_multiprocessor: 100 * KIB,
    shared_per_block: 99 * KIB,
    ecc: true,
};

/// Every preset.
pub const GPUS: &[Gpu] = &[
    Gpu { name: "a100-40gb", product: "NVIDIA A100-SXM4-40GB", total: 42_298_834_944, memory_clock: 1_215_000, ..A100 },
    A100,
    H100,
    Gpu {
        name: "h200-141gb",
        product: "NVIDIA H200",
        total: 143_156 * MIB,
        bus_width: 6144,
        memory_clock: 3_201_000,
        l2: 60 * MIB,
        ..H100
    },
    Gpu {
        name: "b200",
        product: "NVIDIA B200",
        capability: (10, 0),
        multiprocessors: 148,
        total: 182_630 * MIB,
        context: 650 * MIB,
        l2: 253 * MIB / 2,
        bus_width: 7680,
        clock: 1_965_000,
        memory_clock: 3_996_000,
        ..H100
    },
    L40S,
    Gpu {
        name: "rtx4090",
        product: "NVIDIA GeForce RTX 4090",
        multiprocessors: 128,
        total: 24_217 * MIB,
        l2: 72 * MIB,
        memory_clock: 10_501_000,
        ecc: false,
        ..L40S
    },
];

/// The preset with this name, whatever its case.
///
/// # Errors
/// [`SetupError::UnknownGpu`], with all the names.
pub fn find(name: &str) -> Result<&'static Gpu, SetupError> {
    GPUS.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).ok_or_else(|| SetupError::UnknownGpu {
        name: name.to_owned(),
        known: GPUS.iter().map(|gpu| gpu.name).collect::<Vec<_>>().join(", "),
    })
}
