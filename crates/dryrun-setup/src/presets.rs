//! The presets.
//!
//! Memory is what drivers report to programs, which is less than the number on the box and than what `nvidia-smi` says, and
//! differs from driver to driver by up to a few hundred MiB (docs/dry-run.md says how sure each is). Multiprocessors, clocks and
//! caches are those of the data sheets.
//!
//! The range of contexts is what out-of-memory messages of single processes on such cards show to be taken outside PyTorch's
//! allocator ("this process has A in use. Of the allocated memory B is allocated by PyTorch, and C is reserved": A - B - C).
//! bench/results/fidelity.md lists the messages. Of an L4 and an A10 none was seen: theirs are those of the other cards of their kind. Hopper's context
//! and upper bound, and the H200's memory and bus, were measured on an H200 with driver 580 and CUDA 13.0.

use crate::gpu::{Gpu, MIB};

macro_rules! gpus {
    ($($name:literal, $product:literal, $capability:expr, $multiprocessors:literal, $total:expr, $context:literal, ($least:literal, $most:literal),
       $l2:expr, $bus:literal, $clock:literal, $memory_clock:literal, $nvlink:literal, $ecc:literal,
       $peak:literal, $link:literal;)*) => {
        &[$(Gpu {
            name: $name,
            product: $product,
            multiprocessors: $multiprocessors,
            total: $total,
            context: $context * MIB,
            context_range: ($least * MIB, $most * MIB),
            nvlink: $nvlink,
            pages: true,
            l2: $l2,
            bus_width: $bus,
            clock: 1000 * $clock,
            memory_clock: 1000 * $memory_clock,
            ecc: $ecc,
            peak: $peak,
            link: $link,
            ..Gpu::limits($capability)
        }),*]
    };
}

/// Every preset, the smallest memory first: name and product, compute capability, multiprocessors, memory in bytes, context and the
/// range that it may have in MiB, second-level cache in bytes, width of the memory interface, clocks in MHz, NVLink, ECC, tera operations
/// a second on 16-bit matrices without sparsity, and gigabytes a second each way between it and the host: all of the data sheets.
pub const GPUS: &[Gpu] = gpus! {
    "rtx3080",    "NVIDIA GeForce RTX 3080", (8, 6),  68,  10_004 * MIB,   370, (250, 480), 5 * MIB,       320,  1_710, 9_501,  false, false, 60, 32;
    "t4",         "Tesla T4",                (7, 5),  40,  15_843_721_216, 130, (100, 170), 4 * MIB,       256,  1_590, 5_001,  false, true, 65, 16;
    "rtx4080",    "NVIDIA GeForce RTX 4080", (8, 9),  76,  16_049 * MIB,   400, (250, 530), 64 * MIB,      256,  2_505, 11_201, false, false, 98, 32;
    "v100-16gb",  "Tesla V100-SXM2-16GB",    (7, 0),  80,  16_945_512_448, 380, (370, 410), 6 * MIB,       4096, 1_530, 877,    true,  true, 125, 16;
    "l4",         "NVIDIA L4",               (8, 9),  58,  22_559 * MIB,   400, (250, 530), 48 * MIB,      192,  2_040, 6_251,  false, true, 121, 32;
    "a10",        "NVIDIA A10",              (8, 6),  72,  22_589 * MIB,   370, (250, 480), 6 * MIB,       384,  1_695, 6_251,  false, true, 125, 32;
    "rtx4090",    "NVIDIA GeForce RTX 4090", (8, 9),  128, 24_217 * MIB,   420, (250, 530), 72 * MIB,      384,  2_520, 10_501, false, false, 165, 32;
    "rtx3090",    "NVIDIA GeForce RTX 3090", (8, 6),  82,  24_260 * MIB,   370, (300, 430), 6 * MIB,       384,  1_695, 9_751,  false, false, 71, 32;
    "rtx5090",    "NVIDIA GeForce RTX 5090", (12, 0), 170, 32_113 * MIB,   500, (250, 600), 96 * MIB,      512,  2_407, 14_001, false, false, 209, 64;
    "v100-32gb",  "Tesla V100-SXM2-32GB",    (7, 0),  80,  34_089_730_048, 380, (370, 410), 6 * MIB,       4096, 1_530, 877,    true,  true, 125, 16;
    "a100-40gb",  "NVIDIA A100-SXM4-40GB",   (8, 0),  108, 42_298_834_944, 420, (400, 530), 40 * MIB,      5120, 1_410, 1_215,  true,  true, 312, 32;
    "a40",        "NVIDIA A40",              (8, 6),  84,  45_416 * MIB,   370, (250, 480), 6 * MIB,       384,  1_740, 7_251,  false, true, 150, 32;
    "l40s",       "NVIDIA L40S",             (8, 9),  142, 45_457 * MIB,   420, (420, 530), 96 * MIB,      384,  2_520, 9_001,  false, true, 362, 32;
    "a6000",      "NVIDIA RTX A6000",        (8, 6),  84,  48_671 * MIB,   370, (260, 480), 6 * MIB,       384,  1_800, 8_001,  false, false, 155, 32;
    "a100-80gb",  "NVIDIA A100-SXM4-80GB",   (8, 0),  108, 84_987_740_160, 420, (400, 530), 40 * MIB,      5120, 1_410, 1_593,  true,  true, 312, 32;
    "h100-80gb",  "NVIDIA H100 80GB HBM3",   (9, 0),  132, 85_029_158_912, 527, (510, 770), 50 * MIB,      5120, 1_980, 2_619,  true,  true, 989, 64;
    "gh200-96gb", "NVIDIA GH200 480GB",      (9, 0),  132, 96_768 * MIB,   527, (510, 770), 60 * MIB,      6144, 1_980, 2_619,  true,  true, 989, 450;
    "h20",        "NVIDIA H20",              (9, 0),  78,  97_280 * MIB,   527, (510, 770), 60 * MIB,      6144, 1_980, 2_619,  true,  true, 148, 64;
    "h200-141gb", "NVIDIA H200",             (9, 0),  132, 150_109_880_320, 527, (510, 770), 60 * MIB,     6016, 1_980, 3_201,  true,  true, 989, 64;
    "b200",       "NVIDIA B200",             (10, 0), 148, 182_630 * MIB,  650, (650, 740), 253 * MIB / 2, 7680, 1_965, 3_996,  true,  true, 2250, 64;
    "gb200",      "NVIDIA GB200",            (10, 0), 152, 188_733 * MIB,  650, (650, 740), 253 * MIB / 2, 7680, 1_965, 3_996,  true,  true, 2500, 450;
    "gb300",      "NVIDIA GB300",            (10, 3), 152, 283_136 * MIB,  650, (650, 740), 253 * MIB / 2, 7680, 1_965, 3_996,  true,  true, 2500, 450;
};

/// What a description starts from; the description says the rest.
pub(crate) const GENERIC: Gpu = gpus! { "described", "described GPU", (8, 0), 108, 84_987_740_160, 500, (250, 770), 50 * MIB, 5120, 1_410, 1_593, true, true, 312, 32; }
    [0];

/// The preset with this name, or the only one of it, whatever its case.
pub(crate) fn preset(name: &str) -> Option<Gpu> {
    let mut sizes = sizes(name);
    let only = sizes.next().filter(|_| sizes.next().is_none());
    GPUS.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).or(only).copied()
}

/// The presets whose name is this one and a size of memory: `a100` has two.
pub(crate) fn sizes(name: &str) -> impl Iterator<Item = &'static Gpu> {
    GPUS.iter().filter(move |gpu| gpu.name.split_once('-').is_some_and(|(of, _)| of.eq_ignore_ascii_case(name)))
}
