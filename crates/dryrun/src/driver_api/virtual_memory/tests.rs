//! What a real driver refuses, asked as programs ask it.

use super::{
    DESCRIPTOR, HandleProperties, MemoryAccess, MemoryLocation, ON_DEVICE, PINNED, cuMemAddressFree,
    cuMemAddressReserve, cuMemCreate, cuMemGetAccess, cuMemMap, cuMemRelease, cuMemSetAccess, cuMemUnmap,
};
use crate::{
    errors::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, SUCCESS},
    execution::tests::alone,
    ffi::{In, Out},
    memory::{GRANULE, memory},
};

const BYTES: usize = GRANULE as usize;

fn properties() -> HandleProperties {
    let location = MemoryLocation { kind: ON_DEVICE, index: 0 };
    HandleProperties { kind: PINNED, handle_types: 0, location, metadata: 0, flags: [0; 8] }
}

fn created(bytes: usize) -> u64 {
    let mut handle = 0;
    assert_eq!(cuMemCreate(Out::to(&mut handle), bytes, In::of(&properties()), 0), SUCCESS);
    handle
}

fn reserved(bytes: usize) -> u64 {
    let mut start = 0;
    assert_eq!(cuMemAddressReserve(Out::to(&mut start), bytes, 0, 0, 0), SUCCESS);
    start
}

fn allow(start: u64, bytes: usize, device: i32, flags: i32) -> i32 {
    let description = MemoryAccess { location: MemoryLocation { kind: ON_DEVICE, index: device }, flags };
    cuMemSetAccess(start, bytes, In::of(&description), 1)
}

fn used() -> u64 {
    memory().device(0).unwrap().used()
}

#[test]
fn memory_is_created_as_the_driver_allows_it() {
    let _alone = alone();
    let refused = |properties: HandleProperties, bytes, flags| {
        let mut handle = 7;
        let status = cuMemCreate(Out::to(&mut handle), bytes, In::of(&properties), flags);
        assert_eq!(handle, 7, "a handle was made");
        status
    };
    assert_eq!(refused(properties(), BYTES + 512, 0), INVALID_VALUE, "no multiple of the granularity");
    assert_eq!(refused(properties(), 0, 0), INVALID_VALUE);
    assert_eq!(refused(properties(), BYTES, 1), INVALID_VALUE, "flags must be zero");
    assert_eq!(refused(HandleProperties { kind: 0, ..properties() }, BYTES, 0), INVALID_VALUE);
    let elsewhere = MemoryLocation { kind: ON_DEVICE, index: 99 };
    assert_eq!(refused(HandleProperties { location: elsewhere, ..properties() }, BYTES, 0), INVALID_DEVICE);
    let fabric = HandleProperties { handle_types: 8, ..properties() };
    assert_eq!(refused(fabric, BYTES, 0), NOT_SUPPORTED, "there is no fabric");
    assert_eq!(refused(HandleProperties { handle_types: 8 | DESCRIPTOR, ..properties() }, BYTES, 0), NOT_SUPPORTED);
}

#[test]
fn mapping_keeps_to_whole_handles_granules_and_reservations() {
    let _alone = alone();
    let start = reserved(4 * BYTES);
    let wide = created(2 * BYTES);
    assert_eq!(cuMemMap(start, BYTES, 0, wide, 0), INVALID_VALUE, "a part of the handle");
    assert_eq!(cuMemMap(start, BYTES, BYTES, wide, 0), INVALID_VALUE, "offset must be zero");
    assert_eq!(cuMemMap(start, 2 * BYTES, 0, wide, 1), INVALID_VALUE, "flags must be zero");
    assert_eq!(cuMemMap(start + GRANULE / 2, 2 * BYTES, 0, wide, 0), INVALID_VALUE, "not at a granule");
    assert_eq!(cuMemMap(start + 3 * GRANULE, 2 * BYTES, 0, wide, 0), INVALID_VALUE, "beyond the reservation");
    assert_eq!(cuMemMap(start, 2 * BYTES, 0, wide, 0), SUCCESS);
    assert_eq!(cuMemUnmap(start, BYTES), INVALID_VALUE, "a part of a mapping");
    assert_eq!(cuMemUnmap(start, 4 * BYTES), INVALID_VALUE, "half of it is not mapped");
    assert_eq!(cuMemAddressFree(start, 4 * BYTES), INVALID_VALUE, "still mapped");
    assert_eq!(cuMemUnmap(start, 2 * BYTES), SUCCESS);
    assert_eq!(cuMemUnmap(start, 2 * BYTES), INVALID_VALUE, "not mapped any more");
    assert_eq!(cuMemAddressFree(start, 2 * BYTES), INVALID_VALUE, "a part of the reservation");
    assert_eq!((cuMemAddressFree(start, 4 * BYTES), cuMemRelease(wide)), (SUCCESS, SUCCESS));
    let mut place = 0;
    assert_eq!(cuMemAddressReserve(Out::to(&mut place), BYTES, 3 * BYTES, 0, 0), INVALID_VALUE, "no power of two");
    assert_eq!(cuMemAddressReserve(Out::to(&mut place), BYTES, 0, 0, 1), INVALID_VALUE, "flags must be zero");
    assert_eq!(cuMemAddressReserve(Out::to(&mut place), 100, 0, 0, 0), INVALID_VALUE, "no multiple of a page");
}

#[test]
fn memory_is_used_only_once_access_is_set_and_by_whom_it_is_set_for() {
    let _alone = alone();
    let (start, handle) = (reserved(2 * BYTES), created(BYTES));
    let is_usable = |address| memory().virtual_memory().0.mapped(address).is_some();
    assert_eq!(allow(start, BYTES, 0, 3), INVALID_VALUE, "nothing is mapped");
    assert_eq!(cuMemMap(start, BYTES, 0, handle, 0), SUCCESS);
    assert!(!is_usable(start));
    assert_eq!(allow(start, 2 * BYTES, 0, 3), INVALID_VALUE, "half of it is not mapped");
    assert_eq!(allow(start, BYTES / 2, 0, 3), INVALID_VALUE, "a part of a mapping");
    assert_eq!(allow(start, BYTES, 99, 3), INVALID_DEVICE);
    assert_eq!(allow(start, BYTES, 0, 2), INVALID_VALUE, "no such access");
    assert_eq!(cuMemSetAccess(start, BYTES, In::none(), 0), INVALID_VALUE, "for nobody");
    assert!(!is_usable(start));
    assert_eq!(allow(start, BYTES, 0, 3), SUCCESS);
    let mut flags = 0;
    let here = MemoryLocation { kind: ON_DEVICE, index: 0 };
    assert_eq!((cuMemGetAccess(Out::to(&mut flags), In::of(&here), start), flags), (SUCCESS, 3));
    assert_eq!(cuMemGetAccess(Out::to(&mut flags), In::of(&here), start + GRANULE), INVALID_VALUE);
    assert_eq!((cuMemUnmap(start, BYTES), cuMemMap(start, BYTES, 0, handle, 0)), (SUCCESS, SUCCESS));
    assert!(!is_usable(start), "a new mapping starts without access");
    assert_eq!((cuMemUnmap(start, BYTES), cuMemRelease(handle)), (SUCCESS, SUCCESS));
}

#[test]
fn memory_comes_back_with_the_last_mapping_and_the_last_handle() {
    let _alone = alone();
    let before = used();
    let (start, handle) = (reserved(2 * BYTES), created(BYTES));
    assert_eq!(cuMemMap(start, BYTES, 0, handle, 0), SUCCESS);
    assert_eq!(cuMemMap(start + GRANULE, BYTES, 0, handle, 0), SUCCESS, "the same memory at two addresses");
    assert_eq!((cuMemRelease(handle), cuMemRelease(handle)), (SUCCESS, INVALID_VALUE));
    assert_eq!(cuMemUnmap(start, BYTES), SUCCESS);
    assert_eq!(used(), before + GRANULE, "the second mapping holds it");
    assert_eq!(cuMemMap(start, BYTES, 0, handle, 0), INVALID_VALUE, "a released handle maps nothing");
    assert_eq!(cuMemUnmap(start + GRANULE, BYTES), SUCCESS);
    assert_eq!(used(), before);
    assert_eq!(cuMemAddressFree(start, 2 * BYTES), SUCCESS);
}
