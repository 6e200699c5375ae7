//! Handles of memory: large ones behind wide ranges, and none of which a part is of no use where memory is short.
use stalloc_allocator::Arena;
use stalloc_device::{Counting, Device, Shared};
use stalloc_plan::Plan;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn open(bytes: u64) -> (Arena<Shared<Counting>>, Shared<Counting>) {
    let device = Shared::new(Counting::new(bytes));
    (Arena::new(device.clone(), &Plan::default()).unwrap(), device)
}

/// An arena of 8 GiB in which so much lives, and above it 256 MiB that were given back, with a block behind them. The place of these.
fn with_a_gap(lives: u64) -> (Arena<Shared<Counting>>, u64) {
    let (mut arena, _) = open(8 * GIB);
    arena.serve(lives, 0).unwrap();
    let large = arena.serve(256 * MIB, 0).unwrap();
    arena.serve(4 * MIB, 0).unwrap();
    arena.free(large.address).unwrap();
    (arena, large.address)
}

#[test]
fn wide_ranges_are_behind_few_handles() {
    let (mut arena, device) = open(80 * GIB);
    let blocks = (0..200).map(|_| arena.serve(101 * MIB, 0).unwrap()).count() as u64;
    assert_eq!(arena.statistics().departure, None, "there is no plan to leave");
    let pages = blocks * 101 / 2;
    // Three calls for a handle.
    assert!(device.driver_work().calls < pages * 3 / 4, "{} for {pages} pages", device.driver_work().calls);
}

#[test]
fn with_room_small_requests_are_behind_few_handles_too() {
    let (mut arena, device) = open(80 * GIB);
    let blocks = (0..500).map(|_| arena.serve(4 * MIB, 0).unwrap()).count() as u64;
    let pages = blocks * 4 / 2;
    assert!(device.driver_work().calls < pages * 3 / 2, "{} for {pages} pages", device.driver_work().calls);
    assert!(arena.reserved() <= pages * 2 * MIB * 103 / 100, "{}", arena.reserved());
    // A card of which nobody could spare a handle.
    let (mut arena, device) = open(4 * GIB);
    let blocks = (0..200).map(|_| arena.serve(4 * MIB, 0).unwrap()).count() as u64;
    assert_eq!(arena.reserved(), blocks * 4 * MIB);
    assert!(device.driver_work().calls > blocks, "{}", device.driver_work().calls);
}

#[test]
fn where_memory_is_short_no_block_begins_to_use_a_part_of_a_handle() {
    let (mut arena, gap) = with_a_gap(3 * GIB);
    let _more = arena.serve(3 * GIB / 2, 0).unwrap();
    let part = arena.serve(3 * MIB, 0).unwrap();
    assert_eq!(part.address, gap);
    // All that is left, but the two pages of that block, and those behind.
    assert!(arena.serve(8 * GIB - 9 * GIB / 2 - 8 * MIB, 0).is_some());
}

#[test]
fn a_handle_that_is_broken_up_leaves_pages_and_no_hole() {
    let (mut arena, gap) = with_a_gap(5 * GIB);
    let before = arena.reserved();
    let part = arena.serve(3 * MIB, 0).unwrap();
    assert_eq!((part.address, arena.reserved()), (gap, before));
}

#[test]
fn where_there_is_room_a_handle_is_kept_for_the_block_that_comes_back() {
    let (mut arena, device) = open(80 * GIB);
    let _stays = arena.serve(3 * GIB, 0).unwrap();
    let large = arena.serve(256 * MIB, 0).unwrap();
    arena.free(large.address).unwrap();
    let part = arena.serve(3 * MIB, 0).unwrap();
    arena.free(part.address).unwrap();
    let before = device.driver_work();
    assert_eq!(arena.serve(256 * MIB, 0).unwrap().address, large.address);
    assert_eq!(device.driver_work(), before);
}

#[test]
fn the_first_wide_block_is_behind_few_handles_however_little_lived_before() {
    let (mut arena, device) = open(80 * GIB);
    arena.serve(2 * GIB, 0).unwrap();
    let (calls, pages) = (device.driver_work().calls, 2 * GIB / (2 * MIB));
    assert!(calls < pages / 4, "{calls} for {pages} pages");
}

#[test]
fn what_was_given_back_is_taken_anew_in_handles_of_more_than_a_page() {
    let (mut arena, device) = open(80 * GIB);
    let large = arena.serve(2 * GIB, 0).unwrap();
    let _behind = arena.serve(4 * MIB, 0).unwrap();
    arena.free(large.address).unwrap();
    arena.give_back(u64::MAX).unwrap();
    let before = device.driver_work().calls;
    assert_eq!(arena.serve(2 * GIB, 0).unwrap().address, large.address);
    let (calls, pages) = (device.driver_work().calls - before, 2 * GIB / (2 * MIB));
    assert!(calls < 2 * pages, "{calls} for {pages} pages");
}

#[test]
fn a_block_says_on_which_handles_it_lies() {
    let (mut arena, _) = open(8 * GIB);
    let served = arena.serve(5 * MIB, 0).unwrap();
    let block = arena.block(served.address).unwrap();
    let handles = arena.handles(&block).unwrap();
    assert!(
        handles[0].start <= block.address && block.address + block.size <= handles[handles.len() - 1].end,
        "{handles:?}"
    );
    assert!(handles.windows(2).all(|pair| pair[0].end == pair[1].start), "{handles:?}");
}
