//! What a device says of itself: attributes by number, and the runtime's structure of properties.

use crate::config::config;
pub use stalloc_dryrun_setup::identity::{pci_bus, uuid};
use stalloc_dryrun_setup::{Gpu, MIB};

/// A device attribute; the runtime and the driver share the numbers.
pub fn attribute(number: i32, device: u32) -> i32 {
    match number {
        33 => pci_bus(device).cast_signed(),
        103 if config().keeps_memory => 0, // file descriptors
        _ => attribute_of(&config().gpu, number),
    }
}

/// The same of any GPU, as driver 580 answers it for an H200 (`properties/h200.json`). Zero for what the stand-in does not do (fabric
/// handles) and for identities.
fn attribute_of(gpu: &Gpu, number: i32) -> i32 {
    // Of hardware that came with Hopper, or is not known of older cards.
    let large = matches!(gpu.capability.0, 9 | 10);
    let value: u64 = match number {
        1..=3 => 1024,     // threads per block, x, y
        4 => 64,           // z
        5 => 0x7fff_ffff,  // grid x
        6 | 7 => 65_535,   // y, z
        8 => 48 << 10,     // shared memory per block
        9 => 64 << 10,     // constant memory
        10 => 32,          // warp
        11 => 0x7fff_ffff, // pitch
        12 | 82 => 65_536, // registers per block, per multiprocessor
        13 => gpu.clock.into(),
        14 | 30 => 512, // alignment of textures, surfaces
        // Overlap, mapped host memory, concurrent kernels, unified addresses, priorities, caches, gathered textures.
        15 | 19 | 31 | 41 | 44 | 78 | 79 | 80 => 1,
        16 => gpu.multiprocessors.into(),
        21 | 22 | 56 | 70 => 131_072, // textures and surfaces
        23 | 57 => 65_536,
        24..=26 | 58..=60 => 16_384,
        27 | 28 | 42 | 45 | 46 | 49 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => 32_768,
        29 | 43 | 62 | 65 => 2048,
        47 | 48 => 8192,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65_000,
        72 => 2_097_120,
        32 => gpu.ecc.into(),
        36 => gpu.memory_clock.into(),
        37 => gpu.bus_width.into(),
        38 => gpu.l2,
        39 => gpu.threads_per_multiprocessor.into(),
        40 => 3,  // copy engines
        51 => 32, // pitch alignment
        75 => gpu.capability.0.into(),
        76 => gpu.capability.1.into(),
        81 => gpu.shared_per_multiprocessor.into(),
        83 | 89 | 90 | 91 | 95 | 96 | 99 => 1, // managed memory, preemption, cooperative launch, registering
        87 => match gpu.capability {
            (7, 5) => 32,
            (8, 6 | 9) | (10, 3) | (12, _) => 64,
            _ => 2, // single to double precision
        },
        97 => gpu.shared_per_block.into(),
        102 | 103 => gpu.pages.into(), // virtual memory, with file descriptors
        106 => gpu.blocks_per_multiprocessor.into(),
        108 if gpu.capability.0 >= 9 => gpu.l2 * 5 / 8, // persisting cache
        108 => gpu.l2 * 3 / 4,
        109 => 128 * MIB, // access policy window
        111 => 1024,      // shared memory that the system keeps
        // Sparse arrays, host memory registered to be read, timelines, pools, deferred arrays, waits for memory, events between processes.
        112..=115 | 119 | 121..=123 | 125 => 1,
        107 | 110 | 116 | 117 | 124 | 129 => large.into(), // compression, direct access over PCI, pointers to functions
        118 => u64::from(large) * 100,
        120 | 127 => (gpu.capability.0 >= 9).into(), // clusters, tensor maps
        126 => 1 + 3 * u64::from(gpu.capability.0 >= 9), // memory synchronisation domains
        131 => return -1,                            // no node of memory
        141 | 142 | 144 | 145 => 1,                  // virtual memory and pools of the host
        _ => 0,
    };
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A context's limit as it is at the start, as driver 580 has it on an H200; none where it has none.
pub fn limit(gpu: &Gpu, number: i32) -> Option<u64> {
    Some(match number {
        0 => 1024,                                 // stack of a thread
        1 => u64::from(gpu.multiprocessors) << 16, // buffer of printf
        2 => 8 << 20,                              // heap of malloc in kernels
        3 if gpu.capability.0 < 9 => 2,            // depth of waiting for kernels of kernels
        4 => 2048,                                 // launches that such a kernel has pending
        5 => 64,                                   // bytes fetched into the cache
        // Three tenths of what may persist there.
        6 if gpu.capability.0 >= 9 => u64::from(attribute_of(gpu, 108).cast_unsigned()) * 3 / 10,
        6 => 0,
        7 => gpu.shared_per_block.into(),
        _ => return None,
    })
}

/// The runtime's `cudaDeviceProp` as the major version `cuda` lays it out.
///
/// Version 12 added fields at the end of 11's; 13 took some out of the middle.
pub fn structure(device: u32, cuda: u32) -> Vec<u8> {
    let gpu = &config().gpu;
    let attribute = |number| attribute(number, device);
    let mut image = StructImage::default();
    let mut name = [0; 256];
    let product = gpu.product.as_bytes();
    name[..product.len()].copy_from_slice(product);
    image.bytes(&name);
    image.bytes(&uuid(device));
    image.bytes(&[0; 8]); // luid
    image.ints(&[0]); // its node mask
    image.size(gpu.total);
    image.size(48 << 10); // shared memory per block
    image.ints(&[attribute(12), 32]); // registers per block, warp
    image.size(0x7fff_ffff); // pitch
    image.ints(&[1024, 1024, 1024, 64, 0x7fff_ffff, 65_535, 65_535]); // threads per block, block, grid
    let before_13 = cuda < 13;
    image.ints_if(before_13, &[attribute(13)]);
    image.size(64 << 10); // constant memory
    image.ints(&[attribute(75), attribute(76)]);
    image.size(512); // texture alignment
    image.size(32); // texture pitch alignment
    image.ints_if(before_13, &[1]); // overlap
    image.ints(&[attribute(16)]);
    image.ints_if(before_13, &[0]); // time limit of kernels
    image.ints(&[0, 1]); // integrated, maps host memory
    image.ints_if(before_13, &[0]); // compute mode
    image.ints(&[131_072, 32_768]); // textures from here on
    image.ints_if(before_13, &[268_435_456]);
    image.ints(&[131_072, 65_536, 32_768, 32_768, 131_072, 65_000, 2_097_120, 32_768, 32_768]);
    image.ints(&[16_384, 16_384, 16_384, 8192, 8192, 32_768, 32_768]);
    image.ints(&[32_768, 2048, 32_768, 32_768, 2048, 32_768, 2046]);
    image.ints(&[
        32_768, 131_072, 65_536, 16_384, 16_384, 16_384, 32_768, 2048, 32_768, 32_768, 2048, 32_768, 32_768, 2046,
    ]);
    image.size(512); // surface alignment
    image.ints(&[1, attribute(32), attribute(33), 0, 0, 0, 3, 1]); // concurrent kernels, ECC, PCI, compute driver, copy engines, unified addresses
    image.ints_if(before_13, &[attribute(36)]);
    image.ints(&[attribute(37), attribute(38), attribute(108), attribute(39), 1, 1, 1]);
    image.size(attribute(81).cast_unsigned().into());
    image.ints(&[attribute(82), 1, 0, 0, 0]); // registers, managed memory, board, atomics on the host
    image.ints_if(before_13, &[attribute(87)]); // single to double precision
    image.ints(&[0, 1, 1, 1, 1]); // pageable access, concurrent managed access, preemption, registered pointers, cooperative launch
    image.ints_if(before_13, &[1]);
    image.size(attribute(97).cast_unsigned().into());
    image.ints(&[0, 0, attribute(106), attribute(109)]);
    image.size(attribute(111).cast_unsigned().into());
    if cuda >= 12 {
        image.ints(&[99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129].map(attribute));
        // What version 13 says of nodes of memory and identities; the rest is zero, kept by NVIDIA for later.
        image.ints(&if cuda >= 13 { [0, -1, 0, 0, 0, 0, 0] } else { [0; 7] });
        image.ints(&[0; 56]);
    }
    image.align(8);
    image.content
}

/// Bytes laid out as C lays out a structure.
#[derive(Default)]
struct StructImage {
    content: Vec<u8>,
}

impl StructImage {
    fn align(&mut self, alignment: usize) {
        self.content.resize(self.content.len().next_multiple_of(alignment), 0);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.content.extend_from_slice(bytes);
    }

    fn ints(&mut self, values: &[i32]) {
        self.align(4);
        values.iter().for_each(|value| self.bytes(&value.to_ne_bytes()));
    }

    fn ints_if(&mut self, there: bool, values: &[i32]) {
        if there {
            self.ints(values);
        }
    }

    fn size(&mut self, value: u64) {
        self.align(8);
        self.bytes(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
