//! What a device says of itself: attributes by number, and the runtime's structure of properties.

use crate::config::config;
use stalloc_dryrun_setup::MIB;
pub use stalloc_dryrun_setup::identity::{pci_bus, uuid};

/// A device attribute; the runtime and the driver share the numbers. Zero for what this GPU does not do.
pub fn attribute(number: i32, device: u32) -> i32 {
    let gpu = &config().gpu;
    let clusters = u32::from(gpu.capability.0 >= 9);
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
        14 | 30 => 512,                        // alignment of textures, surfaces
        15 | 19 | 31 | 41 | 78 | 79 | 80 => 1, // overlap, mapped host memory, concurrent kernels, unified addresses, priorities, caches
        16 => gpu.multiprocessors.into(),
        21 | 22 | 69 => 131_072, // textures
        23 | 70 | 71 => 65_536,
        32 => gpu.ecc.into(),
        33 => pci_bus(device).into(),
        36 => gpu.memory_clock.into(),
        37 => gpu.bus_width.into(),
        38 => gpu.l2,
        39 => gpu.threads_per_multiprocessor.into(),
        40 => 3,  // copy engines
        51 => 32, // pitch alignment
        75 => gpu.capability.0.into(),
        76 => gpu.capability.1.into(),
        81 => gpu.shared_per_multiprocessor.into(),
        83 | 89 | 90 | 91 | 95 | 99 => 1, // managed memory, preemption, cooperative launch, registering
        97 => gpu.shared_per_block.into(),
        102 => gpu.pages.into(),                             // virtual memory
        103 => (gpu.pages && !config().keeps_memory).into(), // with file descriptors
        106 => gpu.blocks_per_multiprocessor.into(),
        108 => gpu.l2 * 3 / 4, // persisting cache
        109 => 128 * MIB,      // access policy window
        111 => 1024,           // shared memory that the system keeps
        115 | 119 => 1,        // memory pools
        120 => clusters.into(),
        125 => 1,                           // events between processes
        126 => u64::from(1 + 3 * clusters), // memory synchronisation domains
        _ => 0,
    };
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// The runtime's `cudaDeviceProp` as the major version `cuda` lays it out.
///
/// Version 12 added fields at the end of 11's; 13 took some out of the middle.
pub fn structure(device: u32, cuda: u32) -> Vec<u8> {
    let gpu = &config().gpu;
    let attribute = |number| attribute(number, device);
    let mut image = Image::default();
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
    image.ints_if(before_13, &[if gpu.capability.1 == 0 { 2 } else { 64 }]); // single to double precision
    image.ints(&[0, 1, 1, 1, 1]); // pageable access, concurrent managed access, preemption, registered pointers, cooperative launch
    image.ints_if(before_13, &[1]);
    image.size(attribute(97).cast_unsigned().into());
    image.ints(&[0, 0, attribute(106), attribute(109)]);
    image.size(attribute(111).cast_unsigned().into());
    if cuda >= 12 {
        image.ints(&[1, 0, 0, 0, 1, 0, 0, 0, attribute(119), 0, 1, attribute(120), 1]);
        // The rest is zero: nodes of memory, and what NVIDIA keeps for later.
        image.ints(&[0; 63]);
    }
    image.align(8);
    image.content
}

/// Bytes laid out as C lays out a structure.
#[derive(Default)]
struct Image {
    content: Vec<u8>,
}

impl Image {
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
mod tests {
    use super::structure;

    /// Sizes and places in the headers of CUDA 11.7, 12.4 and 13.2.
    #[test]
    fn the_structure_of_properties_is_laid_out_as_each_version_has_it() {
        for (cuda, size, multiprocessors, l2, per_block) in
            [(11, 728, 388, 616, 696), (12, 1032, 388, 616, 696), (13, 1008, 384, 596, 672)]
        {
            let bytes = structure(0, cuda);
            let int = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(bytes.len(), size, "CUDA {cuda}");
            assert_eq!(int(360), 9, "compute capability, CUDA {cuda}");
            assert_eq!(int(multiprocessors), 132, "CUDA {cuda}");
            assert_eq!(int(l2), 50 << 20, "CUDA {cuda}");
            assert_eq!(int(per_block), 227 << 10, "CUDA {cuda}");
            assert_eq!(bytes[288..296], 85_029_158_912_u64.to_ne_bytes());
        }
    }
}
