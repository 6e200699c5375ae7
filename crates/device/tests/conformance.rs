//! What every backend must do, run over each of them.

#![allow(clippy::unwrap_used)]

use stalloc_device::{Counting, Device, Error, Host, Shared};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 64 * MIB;

/// Memory is counted, aligned, disjoint, and given back once.
fn hands_out_memory(device: &mut impl Device) {
    let before = device.memory_info().unwrap();
    assert!(before.free <= before.total);
    let first = device.alloc(3 * MIB).unwrap();
    let second = device.alloc(512).unwrap();
    assert_ne!(first, 0);
    assert_eq!((first % 512, second % 512), (0, 0));
    assert!(first + 3 * MIB <= second || second + 512 <= first);
    assert!(device.memory_info().unwrap().free <= before.free - 3 * MIB);
    device.free(first).unwrap();
    device.free(second).unwrap();
    assert_eq!(device.memory_info().unwrap(), before);
    assert!(device.free(first).is_err(), "a second free of the same address is refused");
    assert!(device.free(12345).is_err());
}

fn refuses_more_than_it_has(device: &mut impl Device) {
    let info = device.memory_info().unwrap();
    match device.alloc(info.total + MIB) {
        Err(Error::OutOfMemory { requested, .. }) => assert_eq!(requested, info.total + MIB),
        other => panic!("{other:?}"),
    }
    assert!(matches!(device.alloc(u64::MAX), Err(Error::OutOfMemory { .. })));
    assert_eq!(device.memory_info().unwrap(), info);
}

/// Pages come and go behind a reserved range; without them each of these calls is refused.
fn maps_pages(device: &mut impl Device) {
    let Some(page) = device.page_size() else {
        assert!(device.reserve(2 * MIB).is_err());
        assert!(device.map(2 * MIB, 2 * MIB).is_err());
        assert!(device.unmap(2 * MIB, 2 * MIB).is_err());
        return;
    };
    let before = device.memory_info().unwrap();
    let base = device.reserve(8 * page).unwrap();
    assert_eq!(base % page, 0);
    assert_eq!(device.memory_info().unwrap(), before, "a range alone takes no memory");
    device.map(base + page, 2 * page).unwrap();
    device.map(base + 3 * page, page).unwrap();
    assert_eq!(device.memory_info().unwrap().free, before.free - 3 * page);
    assert!(device.map(base + 2 * page, page).is_err(), "a page is mapped once");
    assert!(device.unmap(base, page).is_err());
    assert!(device.unmap(base + page, page).is_err(), "a mapping is unmapped as a whole");
    device.unmap(base + page, 3 * page).unwrap();
    assert_eq!(device.memory_info().unwrap(), before);
    device.map(base, 8 * page).unwrap();
    device.unmap(base, 8 * page).unwrap();
    device.release(base, 8 * page).unwrap();
    assert_eq!(device.memory_info().unwrap(), before);
}

fn orders_streams(device: &mut impl Device) {
    let event = device.record(0).unwrap();
    device.wait(&event).unwrap();
    assert!(device.completed(&event).unwrap());
    device.queue_wait(0, &event).unwrap();
    device.synchronize().unwrap();
    let later = device.record(0).unwrap();
    device.synchronize().unwrap();
    assert!(device.completed(&later).unwrap());
}

fn conforms(mut device: impl Device) {
    hands_out_memory(&mut device);
    refuses_more_than_it_has(&mut device);
    maps_pages(&mut device);
    orders_streams(&mut device);
}

#[test]
fn counting_conforms() {
    conforms(Counting::new(CAPACITY));
}

#[test]
fn counting_without_pages_conforms() {
    conforms(Counting::without_pages(CAPACITY));
}

#[test]
fn a_shared_device_conforms() {
    let device = Shared::new(Counting::new(CAPACITY));
    conforms(device.clone());
    assert_eq!(device.lock().used(), 0);
}

#[test]
fn host_conforms() {
    conforms(Host::new(CAPACITY));
}
