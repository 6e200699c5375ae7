//! The planned path takes no memory from the heap.
#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use stalloc_allocator::Arena;
use stalloc_device::Counting;
use stalloc_plan::SectionKind::Repeating;

struct CountingHeap;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

/// What some steps take from the heap that ask for so many bytes each, after the first ones.
fn allocations_of_steps(requests: &[(u64, Option<u32>)], device: u64) -> u64 {
    let plan = plan(&[section(Repeating, requests)]);
    let mut arena = Arena::new(Counting::new(device), &plan).unwrap();
    let mut live = vec![0; requests.len()];
    let mut step = || {
        arena.step_begin();
        for (time, &(size, _)) in requests.iter().enumerate() {
            for (born, &(_, life)) in requests.iter().enumerate().take(time) {
                if born + life.unwrap() as usize + 1 == time {
                    arena.free(live[born]).unwrap();
                }
            }
            live[time] = arena.serve(size, 7).unwrap().address;
        }
        for (born, &(_, life)) in requests.iter().enumerate() {
            if born + life.unwrap() as usize + 1 >= requests.len() {
                arena.free(live[born]).unwrap();
            }
        }
    };
    // The first steps map memory and learn which step follows which.
    (0..6).for_each(|_| step());
    let before = ALLOCATIONS.get();
    (0..20).for_each(|_| step());
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!(arena.statistics().planned, arena.statistics().requests);
    allocations
}

#[test]
fn steps_served_from_the_plan_take_nothing_from_the_heap() {
    let requests: Vec<_> = (0..500u64).map(|n| ((n % 17 + 1) * 512 * 77, Some((n % 40) as u32))).collect();
    assert_eq!(allocations_of_steps(&requests, 1 << 30), 0);
}

#[test]
fn nor_do_steps_in_large_handles_on_a_nearly_full_device() {
    let requests: Vec<_> = (0..12u64).map(|n| ((n % 5 + 1) << 30, Some(20))).collect();
    assert_eq!(allocations_of_steps(&requests, 40 << 30), 0);
}
