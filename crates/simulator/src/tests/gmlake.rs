//! The rules of the GMLake model.

use stalloc_allocator::{Allocator, Error};

use crate::device::SimGpu;
use crate::gmlake::{Gmlake, GmlakeSettings};

const MIB: u64 = 1 << 20;

fn gmlake(capacity: u64) -> Gmlake<SimGpu> {
    Gmlake::new(SimGpu::new(capacity), GmlakeSettings { fragment_limit: 100 * MIB, ..GmlakeSettings::default() })
}

fn two_free_blocks(allocator: &mut Gmlake<SimGpu>) {
    let blocks = [100 * MIB, 60 * MIB].map(|size| allocator.malloc(size, 0).unwrap());
    blocks.iter().for_each(|&address| allocator.free(address).unwrap());
}

#[test]
fn free_blocks_that_are_apart_are_stitched_into_one() {
    let mut allocator = gmlake(1 << 40);
    two_free_blocks(&mut allocator);
    let stitched = allocator.malloc(150 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 160 * MIB);
    allocator.malloc(10 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 160 * MIB, "the rest of the last block is free");
    allocator.free(stitched).unwrap();
    assert_eq!(allocator.malloc(120 * MIB, 0).unwrap(), stitched, "and serves the next one again");
    allocator.malloc(30 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 160 * MIB, "the chunks that it does not need are free");
}

#[test]
fn below_the_limit_and_on_other_streams_nothing_is_stitched() {
    let mut allocator = gmlake(1 << 40);
    two_free_blocks(&mut allocator);
    allocator.malloc(150 * MIB, 1).unwrap();
    assert_eq!(allocator.reserved(), 310 * MIB);
    let held = allocator.malloc(100 * MIB, 0).unwrap();
    allocator.malloc(98 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 408 * MIB);
    allocator.free(held).unwrap();
}

#[test]
fn what_is_given_back_is_given_back_whole() {
    let mut allocator = gmlake(400 * MIB);
    two_free_blocks(&mut allocator);
    let stitched = allocator.malloc(150 * MIB, 0).unwrap();
    let small = allocator.malloc(1, 0).unwrap();
    assert!(matches!(allocator.malloc(300 * MIB, 0), Err(Error::OutOfMemory { .. })));
    allocator.free(stitched).unwrap();
    allocator.free(small).unwrap();
    assert_eq!(allocator.free(stitched), Err(Error::UnknownAddress(stitched)));
    allocator.empty_cache().unwrap();
    assert_eq!((allocator.allocated(), allocator.reserved()), (0, 0));
    allocator.malloc(400 * MIB, 0).unwrap();
}

#[test]
fn a_stitched_block_that_another_stream_uses_keeps_its_chunks() {
    let device = SimGpu::new(1 << 40);
    let mut allocator =
        Gmlake::new(device.clone(), GmlakeSettings { fragment_limit: 100 * MIB, ..GmlakeSettings::default() });
    two_free_blocks(&mut allocator);
    let stitched = allocator.malloc(160 * MIB, 0).unwrap();
    let busy = device.start(0);
    allocator.record_stream(stitched, busy).unwrap();
    allocator.free(stitched).unwrap();
    allocator.malloc(60 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 220 * MIB);
    device.finish(busy);
    allocator.malloc(100 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved(), 220 * MIB);
}
