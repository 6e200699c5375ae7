//! Several threads allocate and free at once; a map apart from them knows which addresses somebody has.
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::*;
use stalloc_allocator::{Allocator, Arena, PlannedAllocator};
use stalloc_device::{Counting, Shared};
use stalloc_plan::SectionKind::Repeating;

const CAPACITY: u64 = 256 * MIB;

#[test]
fn threads_never_share_memory() {
    let requests: Vec<_> = (0..64u64).map(|n| ((n % 7 + 1) * 64 * 1024, Some((n % 5) as u32))).collect();
    let plan = plan(&[section(Repeating, &requests)]);
    let device = Shared::new(Counting::new(CAPACITY));
    let arena = Arena::new(device.clone(), &plan).unwrap();
    let fallback = Direct { device, sizes: Default::default() };
    let allocator = Mutex::new(PlannedAllocator::new(arena, fallback));
    // By address. Never held while the allocator is called: a block is in here for less time than somebody has it.
    let taken = Mutex::new(BTreeMap::<u64, u64>::new());
    let turns = if cfg!(miri) { 20 } else { 3000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (allocator, taken, requests) = (&allocator, &taken, &requests);
            scope.spawn(move || {
                let take = |address: u64, size: u64| {
                    let mut taken = taken.lock().unwrap();
                    let below = taken.range(..address + size).next_back();
                    let free = below.is_none_or(|(start, size)| start + size <= address);
                    assert!(free, "a block is handed out twice");
                    taken.insert(address, size);
                };
                let give = |address: u64| assert!(taken.lock().unwrap().remove(&address).is_some());
                let mut live = Vec::new();
                for turn in 0..turns {
                    let (size, _) = requests[((turn * (thread + 1)) % 64) as usize];
                    let address = allocator.lock().unwrap().malloc(size, 0).unwrap();
                    take(address, size);
                    live.push(address);
                    if live.len() > 6 {
                        let address = live.remove((turn % 6) as usize);
                        give(address);
                        allocator.lock().unwrap().free(address).unwrap();
                    }
                    if turn % 500 == 0 {
                        allocator.lock().unwrap().empty_cache().unwrap();
                    }
                }
                for address in live {
                    give(address);
                    allocator.lock().unwrap().free(address).unwrap();
                }
            });
        }
    });
    assert_eq!(allocator.lock().unwrap().allocated(), 0);
}
