//! The presets.
//!
//! `total` is what drivers report to programs, which is less than the number on the box and than what `nvidia-smi` says, and
//! differs from driver to driver by up to a few hundred MiB (docs/dry-run.md says how sure each is). Limits are those of the compute
//! capability in NVIDIA's programming guide; multiprocessors, clocks and caches those of the data sheets.
//!
//! `context_range` is what out-of-memory messages of single processes on such cards show to be taken outside PyTorch's
//! allocator ("this process has A in use. Of the allocated memory B is allocated by PyTorch, and C is reserved": A - B - C).
//! docs/fit.md lists the messages.

use crate::gpu::{Gpu, KIB, MIB};

const A100: Gpu = Gpu {
    name: "a100-80gb",
    product: "NVIDIA A100-SXM4-80GB",
    capability: (8, 0),
    multiprocessors: 108,
    total: 84_987_740_160,
    context: 420 * MIB,
    context_range: (400 * MIB, 530 * MIB),
    nvlink: true,
    pages: true,
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
    context_range: (510 * MIB, 680 * MIB),
    l2: 50 * MIB,
    clock: 1_980_000,
    memory_clock: 2_619_000,
    shared_per_multiprocessor: 228 * KIB,
    shared_per_block: 227 * KIB,
    ..A100
};

const V100: Gpu = Gpu {
    name: "v100-32gb",
    product: "Tesla V100-SXM2-32GB",
    capability: (7, 0),
    multiprocessors: 80,
    total: 34_089_730_048,
    context: 380 * MIB,
    context_range: (370 * MIB, 410 * MIB),
    l2: 6 * MIB,
    bus_width: 4096,
    clock: 1_530_000,
    memory_clock: 877_000,
    shared_per_multiprocessor: 96 * KIB,
    shared_per_block: 96 * KIB,
    ..A100
};

const T4: Gpu = Gpu {
    name: "t4",
    product: "Tesla T4",
    capability: (7, 5),
    multiprocessors: 40,
    total: 15_843_721_216,
    context: 130 * MIB,
    context_range: (100 * MIB, 170 * MIB),
    nvlink: false,
    pages: true,
    l2: 4 * MIB,
    bus_width: 256,
    clock: 1_590_000,
    memory_clock: 5_001_000,
    threads_per_multiprocessor: 1024,
    blocks_per_multiprocessor: 16,
    shared_per_multiprocessor: 64 * KIB,
    shared_per_block: 64 * KIB,
    ecc: true,
};

const RTX3090: Gpu = Gpu {
    name: "rtx3090",
    product: "NVIDIA GeForce RTX 3090",
    capability: (8, 6),
    multiprocessors: 82,
    total: 24_260 * MIB,
    context: 370 * MIB,
    context_range: (300 * MIB, 430 * MIB),
    nvlink: false,
    pages: true,
    l2: 6 * MIB,
    bus_width: 384,
    clock: 1_695_000,
    memory_clock: 9_751_000,
    threads_per_multiprocessor: 1536,
    blocks_per_multiprocessor: 16,
    shared_per_multiprocessor: 100 * KIB,
    shared_per_block: 99 * KIB,
    ecc: false,
};

const L40S: Gpu = Gpu {
    name: "l40s",
    product: "NVIDIA L40S",
    capability: (8, 9),
    multiprocessors: 142,
    total: 45_457 * MIB,
    context: 420 * MIB,
    context_range: (420 * MIB, 530 * MIB),
    l2: 96 * MIB,
    clock: 2_520_000,
    memory_clock: 9_001_000,
    blocks_per_multiprocessor: 24,
    ecc: true,
    ..RTX3090
};

const RTX4080: Gpu = Gpu {
    name: "rtx4080",
    product: "NVIDIA GeForce RTX 4080",
    multiprocessors: 76,
    total: 16_049 * MIB,
    context: 400 * MIB,
    context_range: (250 * MIB, 530 * MIB),
    l2: 64 * MIB,
    bus_width: 256,
    clock: 2_505_000,
    memory_clock: 11_201_000,
    ecc: false,
    ..L40S
};

const B200: Gpu = Gpu {
    name: "b200",
    product: "NVIDIA B200",
    capability: (10, 0),
    multiprocessors: 148,
    total: 182_630 * MIB,
    context: 650 * MIB,
    context_range: (650 * MIB, 740 * MIB),
    l2: 253 * MIB / 2,
    bus_width: 7680,
    clock: 1_965_000,
    memory_clock: 3_996_000,
    ..H100
};

/// What a description starts from; the description says the rest.
pub(crate) const GENERIC: Gpu = Gpu {
    name: "described",
    product: "described GPU",
    context_range: (250 * MIB, 720 * MIB),
    context: 500 * MIB,
    l2: 50 * MIB,
    ..A100
};

/// Every preset, the smallest memory first.
pub const GPUS: &[Gpu] = &[
    Gpu {
        name: "rtx3080",
        product: "NVIDIA GeForce RTX 3080",
        multiprocessors: 68,
        total: 10_004 * MIB,
        context_range: (250 * MIB, 480 * MIB),
        l2: 5 * MIB,
        bus_width: 320,
        clock: 1_710_000,
        memory_clock: 9_501_000,
        ..RTX3090
    },
    T4,
    RTX4080,
    Gpu { name: "v100-16gb", product: "Tesla V100-SXM2-16GB", total: 16_945_512_448, ..V100 },
    Gpu {
        name: "l4",
        product: "NVIDIA L4",
        multiprocessors: 58,
        total: 22_559 * MIB,
        // Not seen on an L4: that of the other cards of its kind.
        context: 400 * MIB,
        context_range: (250 * MIB, 530 * MIB),
        l2: 48 * MIB,
        bus_width: 192,
        clock: 2_040_000,
        memory_clock: 6_251_000,
        ..L40S
    },
    Gpu {
        name: "a10",
        product: "NVIDIA A10",
        multiprocessors: 72,
        total: 22_589 * MIB,
        // Not seen on an A10: that of the other cards of its kind.
        context_range: (250 * MIB, 480 * MIB),
        memory_clock: 6_251_000,
        ecc: true,
        ..RTX3090
    },
    Gpu {
        name: "rtx4090",
        product: "NVIDIA GeForce RTX 4090",
        multiprocessors: 128,
        total: 24_217 * MIB,
        context_range: (250 * MIB, 530 * MIB),
        l2: 72 * MIB,
        memory_clock: 10_501_000,
        ecc: false,
        ..L40S
    },
    RTX3090,
    Gpu {
        name: "rtx5090",
        product: "NVIDIA GeForce RTX 5090",
        capability: (12, 0),
        multiprocessors: 170,
        total: 32_113 * MIB,
        context: 500 * MIB,
        context_range: (250 * MIB, 600 * MIB),
        l2: 96 * MIB,
        bus_width: 512,
        clock: 2_407_000,
        memory_clock: 14_001_000,
        ..RTX4080
    },
    V100,
    Gpu { name: "a100-40gb", product: "NVIDIA A100-SXM4-40GB", total: 42_298_834_944, memory_clock: 1_215_000, ..A100 },
    Gpu {
        name: "a40",
        product: "NVIDIA A40",
        multiprocessors: 84,
        total: 45_416 * MIB,
        context_range: (250 * MIB, 480 * MIB),
        clock: 1_740_000,
        memory_clock: 7_251_000,
        ecc: true,
        ..RTX3090
    },
    L40S,
    Gpu {
        name: "a6000",
        product: "NVIDIA RTX A6000",
        multiprocessors: 84,
        total: 48_671 * MIB,
        context_range: (260 * MIB, 480 * MIB),
        clock: 1_800_000,
        memory_clock: 8_001_000,
        ..RTX3090
    },
    A100,
    H100,
    Gpu {
        name: "gh200-96gb",
        product: "NVIDIA GH200 480GB",
        // Of 96 GB; a message of such a card says 94.50 GiB. Programs may use more through the host's memory.
        total: 96_768 * MIB,
        bus_width: 6144,
        l2: 60 * MIB,
        ..H100
    },
    Gpu {
        name: "h20",
        product: "NVIDIA H20",
        multiprocessors: 78,
        total: 97_280 * MIB,
        bus_width: 6144,
        l2: 60 * MIB,
        ..H100
    },
    Gpu {
        name: "h200-141gb",
        product: "NVIDIA H200",
        total: 143_156 * MIB,
        bus_width: 6144,
        memory_clock: 3_201_000,
        l2: 60 * MIB,
        ..H100
    },
    B200,
    Gpu { name: "gb200", product: "NVIDIA GB200", multiprocessors: 152, total: 188_733 * MIB, ..B200 },
    Gpu {
        name: "gb300",
        product: "NVIDIA GB300",
        capability: (10, 3),
        multiprocessors: 152,
        total: 283_136 * MIB,
        ..B200
    },
];
