//! Capacity, addresses, virtual memory, and what is known about content.
use super::{
    DEVICE_BASE, DEVICE_SPAN, DeviceMemory, GRANULE, HostKind, Owner, ProcessMemory, copy, fill, is_device,
    known::{KEPT, KnownBytes, LARGEST, Provenance},
    memory, plain,
    ranges::Ranges,
    shared::{IpcHandle, SharedBytes},
    virtual_memory::VirtualMemory,
};
use crate::{
    errors::{ALREADY_REGISTERED, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY},
    execution::{self, operations, tests::alone},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, fs::File, os::fd::AsFd};

/// A device of its own: `index` is not used by any other test; the process's own memory is at 0.
fn device(index: u64, total: u64, context: u64) -> DeviceMemory {
    DeviceMemory::new(DEVICE_BASE + index * DEVICE_SPAN, total, context)
}

#[test]
fn memory_runs_out_exactly_at_capacity_less_context() {
    let mut device = device(1, 10 * GRANULE, 3 * GRANULE);
    let all: Vec<u64> = (0..7).map(|_| device.allocate(GRANULE).unwrap()).collect();
    assert_eq!(device.allocate(1), Err(OUT_OF_MEMORY));
    assert_eq!((device.used(), device.peak()), (10 * GRANULE, 10 * GRANULE));
    device.free(all[3]).unwrap();
    assert_eq!(device.allocate(2 * GRANULE), Err(OUT_OF_MEMORY));
    assert_eq!(device.allocate(GRANULE), Ok(all[3]));
}

#[test]
fn segments_lie_below_the_ones_before_them() {
    let mut device = device(9, 80 << 30, 0);
    let all: Vec<u64> = (0..3).map(|_| device.allocate(100 << 20).unwrap()).collect();
    assert_eq!((all[0] - all[1], all[1] - all[2]), (128 << 20, 128 << 20));
    device.free(all[1]).unwrap();
    assert_eq!(device.allocate(110 << 20), Ok(all[1]));
}

#[test]
fn a_request_of_any_size_is_answered() {
    let mut device = device(2, 80 << 30, 0);
    for bytes in [u64::MAX, u64::MAX - 1, 1 << 63, (80 << 30) + 1] {
        assert_eq!(device.allocate(bytes), Err(OUT_OF_MEMORY), "{bytes}");
    }
    assert!(device.allocate(80 << 30).is_ok());
}

#[test]
fn small_allocations_share_a_granule_and_give_it_back_together() {
    let mut device = device(3, 4 * GRANULE, 0);
    let small: Vec<u64> = (0..8).map(|_| device.allocate(100_000).unwrap()).collect();
    assert_eq!(device.used(), GRANULE);
    for address in &small[1..] {
        device.free(*address).unwrap();
    }
    assert_eq!(device.used(), GRANULE);
    device.free(small[0]).unwrap();
    assert_eq!(device.used(), 0);
}

#[test]
fn ample_memory_does_not_run_out_but_programs_see_the_capacity() {
    let mut device = device(0, 10 * GRANULE, GRANULE);
    device.make_ample();
    assert_eq!((device.total(), device.free_bytes()), (10 * GRANULE, 9 * GRANULE));
    let address = device.allocate(4 * GRANULE).unwrap();
    assert_eq!(device.free_bytes(), 5 * GRANULE);
    device.allocate(100 * GRANULE).unwrap();
    assert_eq!((device.total(), device.free_bytes(), device.used()), (10 * GRANULE, 0, 105 * GRANULE));
    device.free(address).unwrap();
    assert_eq!(device.used(), 101 * GRANULE);
}

#[test]
fn freeing_what_is_not_allocated_is_refused() {
    let mut device = device(4, 4 * GRANULE, 0);
    let address = device.allocate(GRANULE).unwrap();
    assert_eq!(device.free(address + 512), Err(INVALID_VALUE));
    assert_eq!(device.free(address), Ok(GRANULE));
    assert_eq!(device.free(address), Err(INVALID_VALUE));
    assert_eq!(memory().free(1), Err(INVALID_VALUE));
    assert_eq!(memory().free(u64::MAX), Err(INVALID_VALUE));
}

#[test]
fn physical_memory_lives_until_its_handle_and_its_mapping_are_gone() {
    let mut devices = [device(5, 4 * GRANULE, 0)];
    let mut space = VirtualMemory::default();
    let start = space.reserve(8 * GRANULE, 0).unwrap();
    let handle = space.create(&mut devices, 0, GRANULE, false).unwrap();
    space.map(start + GRANULE, GRANULE, handle).unwrap();
    space.release(&mut devices, handle).unwrap();
    assert_eq!(devices[0].used(), GRANULE, "still mapped");
    assert_eq!(space.mapped(start + GRANULE + 5), None, "nobody was given access");
    assert_eq!(space.set_access(start, 2 * GRANULE, &[(0, 3)]), Err(INVALID_VALUE), "half of it is not mapped");
    assert_eq!(space.set_access(start + GRANULE, GRANULE / 2, &[(0, 3)]), Err(INVALID_VALUE), "a part of a mapping");
    space.set_access(start + GRANULE, GRANULE, &[(0, 3)]).unwrap();
    assert_eq!(space.mapped(start + GRANULE + 5), Some((0, start + GRANULE, GRANULE)));
    assert_eq!(space.unreserve(start, 8 * GRANULE), Err(INVALID_VALUE), "still mapped");
    space.unmap(&mut devices, start + GRANULE, GRANULE).unwrap();
    assert_eq!(devices[0].used(), 0);
    assert_eq!(space.release(&mut devices, handle), Err(INVALID_VALUE));
    space.unreserve(start, 8 * GRANULE).unwrap();
}

#[test]
fn mappings_stay_inside_reservations_and_do_not_overlap() {
    let mut devices = [device(6, 8 * GRANULE, 0)];
    let mut space = VirtualMemory::default();
    let start = space.reserve(2 * GRANULE, 0).unwrap();
    let [one, two] = [0, 1].map(|_| space.create(&mut devices, 0, GRANULE, false).unwrap());
    space.map(start, GRANULE, one).unwrap();
    assert_eq!(space.map(start, GRANULE, two), Err(INVALID_VALUE));
    assert_eq!(space.map(start + 2 * GRANULE, GRANULE, two), Err(INVALID_VALUE));
    assert_eq!(space.map(u64::MAX, GRANULE, two), Err(INVALID_VALUE));
    assert_eq!(space.create(&mut devices, 0, GRANULE + 1, false), Err(INVALID_VALUE));
    assert_eq!(space.create(&mut devices, 0, 8 * GRANULE, false), Err(OUT_OF_MEMORY));
    assert_eq!(space.reserve(1, 0), Err(INVALID_VALUE));
    assert_eq!(space.reserve(1 << 62, 0), Err(OUT_OF_MEMORY));
    assert_eq!(space.unmap(&mut devices, start, 2 * GRANULE), Err(INVALID_VALUE));
}

#[test]
fn page_locked_memory_is_real_and_told_apart_from_registered() {
    let mut memory = memory();
    let start = memory.host().allocate(10_000, HostKind::Locked).unwrap();
    // SAFETY: ten thousand bytes were just allocated there.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(start as usize + 9_999).write(7) };
    assert!(matches!(memory.owner(start + 9_999), Owner::Host { kind: HostKind::Locked, .. }));
    assert_eq!(memory.host().unregister(start), Err(NOT_REGISTERED));
    assert_eq!(memory.host().register(start + 100, 10), Err(ALREADY_REGISTERED));
    memory.host().free(start, HostKind::Locked).unwrap();
    assert_eq!(memory.host().free(start, HostKind::Locked), Err(INVALID_VALUE));
    assert_eq!(memory.host().register(u64::MAX - 10, 100), Err(ALREADY_REGISTERED));
}

#[test]
fn what_was_copied_in_is_read_back_until_a_kernel_runs() {
    let _alone = alone();
    let mut known = KnownBytes::default();
    let mut target = [9; 4];
    known.copied(1000, &[1, 2, 3, 4, 5, 6]);
    assert!(known.read(1001, &mut target).is_some());
    assert_eq!(target, [2, 3, 4, 5]);
    known.copied(1002, &[0]);
    assert_eq!(known.read(1001, &mut target), Some(Provenance::Computed));
    assert_eq!(target, [2, 0, 4, 5], "two writes");
    known.write(1003, &[8, 8], Provenance::Drawn);
    assert_eq!(known.read(1001, &mut target), Some(Provenance::Drawn), "a part of it was drawn");
    assert_eq!(target, [2, 0, 8, 8]);
    known.filled(900, 500, 7);
    assert_eq!(known.read(1001, &mut target), Some(Provenance::Computed));
    assert_eq!(target, [7; 4]);
    known.forget(1004, 1);
    assert_eq!(known.read(1001, &mut target), None);
    assert!(
        known.read(1000, &mut target).is_some() && known.read(1005, &mut target).is_some(),
        "both sides are as they were"
    );
    execution::work();
    assert_eq!(known.read(1000, &mut target), None);
}

#[test]
fn kernels_of_an_operation_leave_what_is_known_to_its_observer() {
    let _alone = alone();
    let mut known = KnownBytes::default();
    known.copied(0, &[1]);
    operations::begin();
    operations::begin();
    execution::launch_compiled(0);
    assert!(operations::end(), "it launched one");
    assert!(!operations::end(), "the outer one did not");
    assert!(known.read(0, &mut [0]).is_some());
    operations::begin();
    execution::launch(0);
    assert!(!operations::end());
    assert_eq!(known.read(0, &mut [0]), None, "a kernel of the program's own may write anywhere");
    known.copied(0, &[1]);
    execution::launch_compiled(0);
    assert_eq!(known.read(0, &mut [0]), None, "no operation answers for it");
}

#[test]
fn known_bytes_move_with_copies_between_places_of_a_device() {
    let _alone = alone();
    let mut known = KnownBytes::default();
    let mut target = [0; 3];
    known.copied(0, &[1, 2, 3]);
    known.moved(0, 500, 3);
    assert!(known.read(500, &mut target).is_some());
    assert_eq!(target, [1, 2, 3]);
    known.moved(9000, 500, 3);
    assert_eq!(known.read(500, &mut target), None);
}

#[test]
fn what_is_kept_does_not_grow_without_end() {
    let _alone = alone();
    let mut known = KnownBytes::default();
    let much = vec![1; 8 << 20];
    let last = (KEPT / much.len()) as u64 + 8;
    for at in 0..=last {
        known.copied(at << 30, &much);
    }
    let mut byte = [0];
    assert_eq!(known.read(0, &mut byte), None, "the oldest is gone");
    assert!(known.read(last << 30, &mut byte).is_some());
    known.copied(1 << 50, &vec![1; LARGEST + 1]);
    assert_eq!(known.read(1 << 50, &mut byte), None, "too large to keep");
}

#[test]
fn reads_of_a_device_give_zeros_unless_known() {
    let _alone = alone();
    let start = memory().device(0).unwrap().allocate(4096).unwrap();
    let (from, mut to) = ([5_u8; 64], [1_u8; 64]);
    let host = |bytes: *const u8| bytes.expose_provenance() as u64;
    copy(plain(start, host(from.as_ptr()), 64), 0, false).unwrap();
    let target = to.as_mut_ptr().expose_provenance() as u64;
    copy(plain(target, start, 64), 0, false).unwrap();
    assert_eq!(to, [5; 64]);
    execution::work();
    copy(plain(target, start, 64), 0, false).unwrap();
    assert_eq!(to, [0; 64]);
    fill(start, 3, 64).unwrap();
    copy(plain(target, start, 64), 0, false).unwrap();
    assert_eq!(to, [3; 64]);
    memory().free(start).unwrap();
    assert_eq!(copy(plain(target, start, 64), 0, false), Err(INVALID_VALUE), "freed");
    assert!(is_device(start) && !is_device(target));
}

proptest! {
    #[test]
    fn ranges_agree_with_a_list(operations in proptest::collection::vec((0_u64..200, 0_u64..20, any::<bool>()), 0..200)) {
        let mut ranges = Ranges::default();
        let mut list: BTreeMap<u64, u64> = BTreeMap::new();
        for (start, bytes, insert) in operations {
            if insert {
                let free = bytes > 0 && list.iter().all(|(other, length)| start + bytes <= *other || other + length <= start);
                prop_assert_eq!(ranges.insert(start, bytes, ()), free);
                if free {
                    list.insert(start, bytes);
                }
            } else {
                prop_assert_eq!(ranges.remove(start).map(|(bytes, ())| bytes), list.remove(&start));
            }
            let found = ranges.find(start).map(|(start, bytes, ())| (start, bytes));
            let expected = list.iter().find(|(other, length)| (**other..*other + *length).contains(&start));
            prop_assert_eq!(found, expected.map(|(start, bytes)| (*start, *bytes)));
            let gap = ranges.gap(3, 250, bytes.max(1), 4);
            let fits = |place: u64| place.is_multiple_of(4) && place >= 3 && place + bytes.max(1) <= 250
                && list.iter().all(|(other, length)| place + bytes.max(1) <= *other || other + length <= place);
            prop_assert_eq!(gap, (0..250).find(|place| fits(*place)));
        }
    }

    #[test]
    fn a_device_never_gives_a_place_twice_and_counts_what_it_gave(sizes in proptest::collection::vec(1_u64..6_000_000, 1..40), order in any::<u64>()) {
        let mut device = device(7, 64 * GRANULE, 0);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for (turn, bytes) in sizes.into_iter().enumerate() {
            if let Ok(start) = device.allocate(bytes) {
                prop_assert!(live.iter().all(|(other, length)| start + bytes <= *other || other + length <= start));
                live.push((start, bytes));
            }
            if order >> (turn % 64) & 1 == 1 && !live.is_empty() {
                let (start, _) = live.swap_remove(turn % live.len());
                prop_assert!(device.free(start).is_ok());
            }
            prop_assert!(device.used() <= device.total());
            prop_assert!(device.used() >= live.iter().map(|(_, bytes)| bytes).sum::<u64>());
        }
        for (start, _) in live {
            prop_assert!(device.free(start).is_ok());
        }
        prop_assert_eq!(device.used(), 0);
    }
}

#[test]
fn what_one_process_writes_into_shared_memory_the_other_reads() {
    let _alone = alone();
    let (mut ours, mut theirs) = (KnownBytes::default(), KnownBytes::default());
    let (here, there) = (DEVICE_BASE, DEVICE_BASE + (1 << 40));
    ours.copied(here + 100, &[1, 2, 3]);
    ours.filled(here + 4096, 3 << 20, 9);
    let handle = ours.share(here, 8 << 20).unwrap();
    assert_eq!(ours.share(here, 8 << 20).unwrap(), handle, "a second wish is for the same");
    theirs.open(there, SharedBytes::open(handle).unwrap().into());
    let read = |known: &mut KnownBytes, start: u64, bytes: usize| {
        let mut target = vec![0; bytes];
        known.read(start, &mut target).map(|_| target)
    };
    assert_eq!(read(&mut theirs, there + 100, 3), Some(vec![1, 2, 3]));
    assert_eq!(read(&mut theirs, there + 99, 3), None, "what was never written is not known");
    assert_eq!(read(&mut theirs, there + 4096, 3 << 20), Some(vec![9; 3 << 20]));
    theirs.copied(there + 101, &[7]);
    theirs.moved(there + 100, there + 200, 3);
    assert_eq!(read(&mut ours, here + 200, 3), Some(vec![1, 7, 3]));
    ours.forget(here + 200, 1);
    assert_eq!(theirs.source(there + 200, 3), None);
    assert_eq!(theirs.source(there + 201, 2), Some(Provenance::Computed));
    ours.unshare(here);
    assert_eq!(read(&mut ours, here + 100, 3), None, "the allocation is gone");
    assert_eq!(read(&mut theirs, there + 100, 3), Some(vec![1, 7, 3]), "who has it open keeps it");
    assert!(SharedBytes::open(handle).is_err());
}

#[test]
fn who_imports_the_pages_of_another_process_reads_and_writes_what_it_does() {
    let _alone = alone();
    let mut ours = ProcessMemory::new(1, 4 * GRANULE, 0);
    let mut theirs = ProcessMemory::new(1, 4 * GRANULE, 0);
    let [here, there] = [&mut ours, &mut theirs].map(|memory| memory.virtual_memory.reserve(4 * GRANULE, 0).unwrap());
    let pages = [0, 1, 2].map(|_| ours.virtual_memory.create(&mut ours.devices, 0, GRANULE, true).unwrap());
    let private = ours.virtual_memory.create(&mut ours.devices, 0, GRANULE, false).unwrap();
    ours.map(here, GRANULE, pages[0]).unwrap();
    ours.map(here + GRANULE, GRANULE, pages[1]).unwrap();
    let border = GRANULE - 2;
    ours.known().copied(here + border, &[1, 2, 3, 4]);
    assert!(matches!(ours.export(private), Err(INVALID_VALUE)), "it was not created to be shared");
    let descriptors = pages.map(|page| ours.export(page).unwrap());
    // Only two are mapped there, and between two pages of the importer's own.
    for (index, descriptor) in descriptors.iter().take(2).enumerate() {
        let page = theirs.import(descriptor.as_fd()).unwrap();
        theirs.map(there + (1 + index as u64) * GRANULE, GRANULE, page).unwrap();
    }
    drop(descriptors);
    assert_eq!(theirs.devices[0].used(), 0, "memory of another process counts there");
    let own = theirs.virtual_memory.create(&mut theirs.devices, 0, GRANULE, false).unwrap();
    theirs.map(there, GRANULE, own).unwrap();
    let read = |memory: &mut ProcessMemory, start: u64, bytes: usize| {
        let mut target = vec![0; bytes];
        memory.known().read(start, &mut target).map(|_| target)
    };
    assert_eq!(read(&mut theirs, there + GRANULE + border, 4), Some(vec![1, 2, 3, 4]));
    assert_eq!(theirs.known().source(there + GRANULE + border, 4), Some(Provenance::Computed));
    assert_eq!(theirs.known().source(there + GRANULE + border, 5), None);
    theirs.known().copied(there + GRANULE - 1, &[7, 8]);
    assert_eq!(read(&mut theirs, there + GRANULE - 1, 2), Some(vec![7, 8]), "of two pages one is the importer's own");
    assert_eq!(read(&mut ours, here, 1), Some(vec![8]));
    theirs.known().filled(there + GRANULE + border + 1, 2, 9);
    assert_eq!(read(&mut ours, here + border, 4), Some(vec![1, 9, 9, 4]));
    ours.known().forget(here + border, 3);
    assert_eq!(read(&mut theirs, there + 2 * GRANULE + 1, 1), Some(vec![4]));
    assert_eq!(read(&mut theirs, there + 2 * GRANULE, 1), None);
    // Unmapped and mapped anew, it is the same memory, while its owner knows nothing of addresses without any.
    ours.unmap(here + GRANULE, GRANULE).unwrap();
    assert_eq!(read(&mut ours, here + GRANULE + 1, 1), None);
    ours.map(here + 2 * GRANULE, GRANULE, pages[1]).unwrap();
    assert_eq!(read(&mut ours, here + 2 * GRANULE + 1, 1), Some(vec![4]));
    let nothing = File::open("/dev/null").unwrap();
    assert_eq!(theirs.import(nothing.as_fd()), Err(INVALID_VALUE));
}

#[test]
fn only_whole_allocations_of_another_process_can_be_opened() {
    let mut device = device(7, 80 << 30, 0);
    let allocated = device.allocate(3 << 20).unwrap();
    let opened = device.open(40 << 30).unwrap();
    assert_eq!(device.used(), 4 << 20, "memory of another process counts there");
    assert_eq!(device.find(opened + 1), Some((opened, 40 << 30)));
    assert_eq!((device.allocation(opened), device.free(opened)), (None, Err(INVALID_VALUE)));
    assert_eq!((device.close(allocated), device.close(opened)), (None, Some(())));
    assert_eq!(device.find(opened), None);
    let nobody = IpcHandle::new([u64::from(std::process::id()), 1 << 20, 4096, 1, 0]);
    assert!(SharedBytes::open(nobody).is_err());
}
