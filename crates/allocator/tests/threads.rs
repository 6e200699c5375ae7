//! Several threads allocate and free at once; every 512 bytes know whether somebody has them.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicU8, Ordering};

use common::*;
use stalloc_allocator::{Allocator, Arena, Locked, PlannedAllocator};
use stalloc_device::{Counting, Shared};
use stalloc_plan::SectionKind::Repeating;

const CAPACITY: u64 = 256 * MIB;

#[test]
fn threads_never_share_memory() {
    let requests: Vec<_> = (0..64u64).map(|n| ((n % 7 + 1) * 64 * 1024, Some((n % 5) as u32))).collect();
    let plan = plan(&[section(Repeating, &requests)]);
    let device = Shared::new(Counting::new(CAPACITY));
    let arena = Arena::new(device.clone(), &plan).unwrap();
    let base = arena.base();
    let fallback = Direct { device, sizes: Default::default() };
    let allocator = Locked::new(PlannedAllocator::new(arena, fallback));
    let taken: Vec<AtomicU8> = (0..2 * CAPACITY / 512).map(|_| AtomicU8::new(0)).collect();
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (allocator, taken, requests) = (&allocator, &taken, &requests);
            scope.spawn(move || {
                let mark = |address: u64, size: u64, from: u8, to: u8| {
                    let first = ((address - base) / 512) as usize;
                    for unit in &taken[first..first + (size / 512) as usize] {
                        assert_eq!(unit.swap(to, Ordering::Relaxed), from, "a block is handed out twice");
                    }
                };
                let mut live = Vec::new();
                for round in 0..rounds {
                    let (size, _) = requests[((round * (thread + 1)) % 64) as usize];
                    let address = allocator.lock().malloc(size, 0).unwrap();
                    mark(address, size, 0, 1);
                    live.push((address, size));
                    if live.len() > 6 {
                        let (address, size) = live.remove((round % 6) as usize);
                        mark(address, size, 1, 0);
                        allocator.lock().free(address).unwrap();
                    }
                    if round % 500 == 0 {
                        allocator.lock().empty_cache().unwrap();
                    }
                }
                for (address, size) in live {
                    mark(address, size, 1, 0);
                    allocator.lock().free(address).unwrap();
                }
            });
        }
    });
    assert_eq!(allocator.lock().allocated(), 0);
}
