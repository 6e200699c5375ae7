//! What the arena says of its blocks, its addresses and its memory.
use stalloc_allocator::{Arena, Error, LiveBlock};
use stalloc_device::{Counting, Shared};
use stalloc_plan::Plan;

const MIB: u64 = 1 << 20;

fn open() -> Arena<Shared<Counting>> {
    Arena::new(Shared::new(Counting::new(1 << 30)), &Plan::default()).unwrap()
}

#[test]
fn every_block_is_told_with_its_stream_and_the_bytes_that_were_asked_for() {
    let mut arena = open();
    let asked = [(1000, 3), (3 * MIB + 1, 3), (0, 9), (512, 9)];
    let mut expected: Vec<LiveBlock> = asked
        .into_iter()
        .map(|(requested, stream)| {
            let address = arena.serve(requested, stream).unwrap().address;
            let size = requested.max(1).next_multiple_of(512);
            LiveBlock { address, size, requested, stream, pending: false }
        })
        .collect();
    let large = expected[1];
    expected.sort_unstable_by_key(|block| block.address);
    assert_eq!(arena.blocks(), expected);
    for &block in &expected {
        assert_eq!(arena.block(block.address), Some(block));
        assert_eq!(arena.block(block.address + 1), None, "it begins elsewhere");
        for inside in [0, 1, block.size - 1] {
            assert_eq!(arena.block_around(block.address + inside), Some(block));
        }
    }
    let freed = arena.free(large.address).unwrap();
    assert_eq!((freed.size, freed.requested), (large.size, large.requested));
    assert_eq!(arena.blocks().len(), 3);
    assert_eq!((arena.block(large.address), arena.block_around(large.address + 5)), (None, None));
}

#[test]
fn a_block_that_another_stream_uses_is_told_as_one_that_waits_until_it_is_done() {
    let mut arena = open();
    let block = arena.serve(1000, 3).unwrap().address;
    arena.record_stream(block, 7).unwrap();
    arena.free(block).unwrap();
    assert!(
        arena.blocks()[..] == [LiveBlock { address: block, size: 1024, requested: 1000, stream: 3, pending: true }]
    );
    assert_eq!(arena.block(block), None, "the program has given it back");
    assert!(arena.block_around(block + 600).is_some_and(|block| block.pending));
    assert_eq!(arena.statistics().allocated, 0);
    // The next request asks whether the stream is done.
    let next = arena.serve(512, 3).unwrap().address;
    assert_eq!(arena.blocks().iter().map(|block| block.address).collect::<Vec<_>>(), [next]);
}

#[test]
fn addresses_at_which_no_block_begins_are_refused_with_their_number() {
    let mut arena = open();
    let block = arena.serve(4096, 0).unwrap().address;
    let addresses = arena.addresses();
    for wrong in [block + 1, block + 512, addresses.start - 512, addresses.end, 0, u64::MAX] {
        assert_eq!(arena.free(wrong), Err(Error::UnknownAddress(wrong)));
        assert_eq!(arena.record_stream(wrong, 1), Err(Error::UnknownAddress(wrong)));
    }
    assert!(arena.owns(block + 1) && arena.owns(addresses.start) && arena.owns(addresses.end - 1));
    assert!(!arena.owns(addresses.start - 1) && !arena.owns(addresses.end));
    arena.free(block).unwrap();
    assert_eq!(arena.free(block), Err(Error::UnknownAddress(block)));
}

#[test]
fn there_is_memory_behind_every_block_and_what_is_free_of_it_goes_back() {
    let mut arena = open();
    let blocks: Vec<u64> = (0..8).map(|_| arena.serve(5 * MIB, 0).unwrap().address).collect();
    let bytes = |arena: &Arena<Shared<Counting>>| arena.mapped().iter().map(|part| part.end - part.start).sum::<u64>();
    assert_eq!((bytes(&arena), arena.reserved()), (arena.statistics().reserved, arena.statistics().reserved));
    assert!(
        blocks
            .iter()
            .all(|block| arena.mapped().iter().any(|part| part.start <= *block && block + 5 * MIB <= part.end))
    );
    for &block in &blocks[1..] {
        arena.free(block).unwrap();
    }
    let before = arena.reserved();
    let given = arena.give_back(u64::MAX).unwrap();
    assert!(given >= 30 * MIB && given == before - arena.reserved(), "{given}");
    assert_eq!((arena.reserved(), bytes(&arena)), (6 * MIB, 6 * MIB));
    assert_eq!(arena.statistics().peak_reserved, before);
}

#[test]
fn what_was_served_and_what_was_not_adds_up() {
    let mut arena = open();
    assert!(arena.serve(4096, 0).is_some());
    assert!(arena.serve(1 << 60, 0).is_none());
    arena.set_capturing(true);
    assert!(arena.serve(4096, 0).is_none());
    arena.set_capturing(false);
    let statistics = arena.statistics();
    assert_eq!((statistics.requests, statistics.planned, statistics.best_fit, statistics.fallback), (3, 0, 1, 2));
    assert_eq!((statistics.unplanned.capturing, statistics.unplanned.refused), (1, 1));
    assert_eq!((statistics.unplanned.not_in_plan, statistics.allocated, statistics.peak_allocated), (1, 4096, 4096));
}
