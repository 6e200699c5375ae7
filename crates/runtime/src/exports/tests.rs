#![allow(clippy::unwrap_used)]

use stalloc_allocator::Arena;
use stalloc_device::Counting;
use stalloc_plan::Plan;

use super::*;

const MIB: u64 = 1 << 20;

fn arena() -> Arena<Counting> {
    Arena::new(Counting::new(256 * MIB), &Plan::default()).unwrap()
}

fn serve(arena: &mut Arena<Counting>, bytes: u64) -> LiveBlock {
    let address = arena.serve(bytes, 0).unwrap().address;
    arena.block_around(address).unwrap()
}

#[test]
fn a_page_has_one_descriptor_as_long_as_a_shared_block_lies_on_it() {
    let (mut arena, mut exports) = (arena(), Exports::default());
    let [one, other, large] = [3 * MIB / 4, 3 * MIB / 4, MIB].map(|bytes| serve(&mut arena, bytes));
    let first = exports.share(&mut arena, &one).unwrap();
    assert_eq!((first.page, first.offset, first.descriptors.len()), (2 * MIB, 0, 1));
    let second = exports.share(&mut arena, &other).unwrap();
    assert_eq!(second, Export { offset: 3 * MIB / 4, ..first.clone() }, "they are on one page");
    let third = exports.share(&mut arena, &large).unwrap();
    assert_eq!((third.offset, third.descriptors.len()), (3 * MIB / 2, 2));
    assert_eq!(third.descriptors[0], first.descriptors[0]);
    assert_ne!(third.serial, first.serial, "other pages are no part of the first");
    assert_eq!(exports.share(&mut arena, &large), Ok(third.clone()));
    exports.forget(one.address + 512 * MIB);
    exports.forget(one.address);
    exports.forget(large.address);
    assert_eq!((exports.handles.len(), exports.is_empty()), (1, false), "one block is still shared");
    assert_eq!(exports.share(&mut arena, &other), Ok(second));
    exports.forget(other.address);
    assert_eq!((exports.handles.len(), exports.is_empty()), (0, true));
    let anew = exports.share(&mut arena, &large).unwrap();
    assert!(anew.serial > third.serial, "descriptors' numbers may be the same, and mean other memory");
}

#[test]
fn a_block_on_handles_of_several_lengths_is_refused_and_those_after_it_are_not() {
    // A card of which nobody could spare a handle: with room all would be as long.
    let (mut arena, mut exports) = (Arena::new(Counting::new(10 << 30), &Plan::default()).unwrap(), Exports::default());
    let _first = serve(&mut arena, 6 << 30);
    let [mixed, gone] = [25 * MIB, 60 * MIB].map(|bytes| serve(&mut arena, bytes));
    assert_eq!(exports.share(&mut arena, &mixed), Err(MIXED.to_owned()));
    assert!(exports.is_empty());
    arena.free(gone.address).unwrap();
    let after = serve(&mut arena, 59 * MIB);
    assert_eq!(after.address, gone.address, "where there were large handles");
    assert_eq!(exports.share(&mut arena, &after).unwrap().page, 2 * MIB);
    assert!(arena.pool_begin((0, 1)));
    let _of_graph = arena.pool_serve((0, 1), MIB, 0).unwrap();
    assert_eq!(exports.share(&mut arena, &mixed), Err(MIXED_WITH_GRAPHS.to_owned()));
}

#[test]
fn what_cannot_be_shared_leaves_nothing_behind() {
    let (mut arena, mut exports) = (arena(), Exports::default());
    let block = serve(&mut arena, 5 * MIB);
    let beyond = LiveBlock { size: 64 * MIB, ..block };
    assert!(exports.share(&mut arena, &beyond).unwrap_err().contains("it has no memory"));
    assert_eq!((exports.handles.len(), exports.is_empty()), (0, true));
    assert!(arena.pool_begin((0, 1)));
    let address = arena.pool_serve((0, 1), MIB, 0).unwrap().address;
    let of_graph = arena.block_around(address).unwrap();
    assert!(exports.share(&mut arena, &of_graph).unwrap_err().contains("CUDA graph"));
    let mut solid = Arena::solid(Counting::new(256 * MIB), &Plan::default(), 8 * MIB).unwrap();
    let block = serve(&mut solid, MIB);
    assert!(exports.share(&mut solid, &block).is_err());
    assert!(exports.is_empty());
}
