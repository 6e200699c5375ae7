//! What every backend must do, run over each of them.

#![allow(clippy::unwrap_used)]

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use stalloc_device::{Address, Backing, Counting, Device, Error, GpuDevice, Host, Shared};

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
        assert!(device.alias(2 * MIB, 4 * MIB, 2 * MIB).is_err());
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
    // One page behind two addresses.
    device.map(base, page).unwrap();
    device.alias(base, base + 4 * page, page).unwrap();
    assert_eq!(device.memory_info().unwrap().free, before.free - page, "a second mapping takes no memory");
    assert!(device.alias(base, base + 4 * page, page).is_err(), "the place is taken");
    assert!(device.alias(base + page, base + 5 * page, page).is_err(), "there is no memory");
    device.unmap(base, page).unwrap();
    assert_eq!(device.memory_info().unwrap().free, before.free - page, "the other mapping holds it");
    device.alias(base + 4 * page, base, page).unwrap();
    device.unmap(base + 4 * page, page).unwrap();
    device.unmap(base, page).unwrap();
    assert_eq!(device.memory_info().unwrap(), before);
    maps_runs(device, base, page);
    device.release(base, 8 * page).unwrap();
    assert_eq!(device.memory_info().unwrap(), before);
}

/// A run is what its pieces are one by one, as far as it goes.
fn maps_runs(device: &mut impl Device, base: Address, page: u64) {
    let before = device.memory_info().unwrap();
    let piece = |pages, from| Backing { bytes: pages * page, from };
    assert_eq!(device.map_run(base, &[]), (0, Ok(())));
    let run = [piece(1, None), piece(2, None), piece(1, Some(base)), piece(2, Some(base + page))];
    assert_eq!(device.map_run(base, &run), (4, Ok(())));
    assert_eq!(device.memory_info().unwrap().free, before.free - 3 * page);
    let (count, refused) = device.map_run(base + 6 * page, &[piece(1, None), piece(2, Some(base))]);
    assert!(count == 1 && refused.is_err(), "memory is mapped as it was");
    let (count, refused) = device.map_run(base + 7 * page, &[piece(before.total / page, None)]);
    assert!(count == 0 && refused.is_err());
    device.unmap(base, 3 * page).unwrap();
    assert_eq!(device.memory_info().unwrap().free, before.free - 4 * page, "the second mappings hold it");
    device.unmap(base + 3 * page, 4 * page).unwrap();
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

/// The driver that the tests bring along: `cargo test` builds it next to this executable's folder.
fn standin() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let library = deps.parent().and_then(Path::parent).unwrap().join("examples/libstandin.so");
    assert!(library.exists(), "{} is built by `cargo test`", library.display());
    library
}

/// One test for both, since they count in the same stand-in.
#[test]
fn gpus_conform_and_leave_nothing_behind() {
    let library = standin();
    conforms(GpuDevice::cuda_at(library.as_os_str(), 0).unwrap());
    conforms(GpuDevice::hip_at(library.as_os_str(), 0).unwrap());
    opens_its_memory_to_a_peer(GpuDevice::cuda_at(library.as_os_str(), 0).unwrap(), &library);
    opens_its_memory_to_a_peer(GpuDevice::hip_at(library.as_os_str(), 0).unwrap(), &library);
    exports_its_pages(&library);
    // SAFETY: the stand-in is this crate's own, and the function is declared like this there.
    let left_over = unsafe {
        let library = libloading::Library::new(library).unwrap();
        library.get::<unsafe extern "C" fn() -> u64>(c"standin_left_over").unwrap()()
    };
    assert_eq!(left_over, 0);
}

/// What is mapped before and what is mapped after; once for each device.
fn opens_its_memory_to_a_peer(mut device: GpuDevice, library: &Path) {
    // SAFETY: the stand-in is this crate's own, and the function is declared like this there.
    let may_use = |address: u64| unsafe {
        let library = libloading::Library::new(library).unwrap();
        library.get::<unsafe extern "C" fn(u64) -> u64>(c"standin_may_use").unwrap()(address)
    };
    let page = device.page_size().unwrap();
    let base = device.reserve(7 * page).unwrap();
    device.map(base, page).unwrap();
    assert!(device.allow_peer(7).is_err(), "there is no such device");
    assert_eq!(may_use(base), 1);
    device.allow_peer(1).unwrap();
    device.allow_peer(1).unwrap();
    device.map(base + page, 2 * page).unwrap();
    assert_eq!((may_use(base), may_use(base + page)), (2, 2));
    let run = [None, None, Some(base)].map(|from| Backing { bytes: page, from });
    assert_eq!(device.map_run(base + 4 * page, &run), (3, Ok(())));
    assert_eq!([4, 5, 6].map(|index| may_use(base + index * page)), [2; 3]);
    device.unmap(base + 4 * page, 3 * page).unwrap();
    device.alias(base, base + 3 * page, page).unwrap();
    assert_eq!(may_use(base + 3 * page), 2);
    device.unmap(base, 4 * page).unwrap();
    device.release(base, 7 * page).unwrap();
}

/// As long as the driver creates memory for that; HIP's is never asked to.
fn exports_its_pages(library: &Path) {
    let unsupported = |refused| matches!(refused, Err(Error::Unsupported(_)));
    let open = |device: &mut GpuDevice| {
        let base = device.reserve(4 * device.page_size().unwrap()).unwrap();
        device.map_run(base, &[Backing { bytes: 2 << 20, from: None }; 2]).1.unwrap();
        base
    };
    let close = |mut device: GpuDevice, base| {
        device.unmap(base, 4 << 20).unwrap();
        device.release(base, 8 << 20).unwrap();
    };
    let mut cuda = GpuDevice::cuda_at(library.as_os_str(), 0).unwrap();
    let base = open(&mut cuda);
    let pages = [base, base + (2 << 20)].map(|page| cuda.export(page).unwrap());
    assert_ne!(pages[0].as_raw_fd(), pages[1].as_raw_fd());
    assert!(unsupported(cuda.export(base + 512)), "no page begins there");
    assert!(unsupported(cuda.export(base + (4 << 20))), "no page is mapped there");
    let mut hip = GpuDevice::hip_at(library.as_os_str(), 0).unwrap();
    let other = open(&mut hip);
    assert!(unsupported(hip.export(other)));
    close(hip, other);
    close(cuda, base);
    // SAFETY: the stand-in is this crate's own, and the function is declared like this there.
    unsafe {
        let library = libloading::Library::new(library).unwrap();
        library.get::<unsafe extern "C" fn()>(c"standin_keeps_all").unwrap()();
    }
    let mut keeps = GpuDevice::cuda_at(library.as_os_str(), 0).unwrap();
    let base = open(&mut keeps);
    assert!(unsupported(keeps.export(base)), "the job runs, and nothing is shared");
    close(keeps, base);
}

/// A driver leaves work behind that threads do when they end, so its code must still be there when its last device is gone.
#[test]
fn a_driver_stays_loaded_when_its_devices_are_gone() {
    let own = std::env::temp_dir().join(format!("stalloc-driver-{}.so", std::process::id()));
    std::fs::copy(standin(), &own).unwrap();
    drop(GpuDevice::cuda_at(own.as_os_str(), 0).unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    std::fs::remove_file(&own).unwrap();
    assert!(maps.contains(own.to_str().unwrap()), "the driver was unloaded");
}

#[test]
fn a_missing_device_and_a_missing_driver_are_said_to_be_missing() {
    let library = standin();
    let error = GpuDevice::cuda_at(library.as_os_str(), 9).unwrap_err().to_string();
    assert_eq!(error, "finding the device failed: error 101");
    let error = GpuDevice::cuda_at("/nowhere/libcuda.so".as_ref(), 0).unwrap_err().to_string();
    assert!(error.starts_with("loading the driver failed: ") && error.contains("/nowhere/libcuda.so"), "{error}");
}

/// Whatever driver there is: the machine's own, or another stand-in named by `STALLOC_TEST_LIBCUDA`.
#[test]
fn the_machines_cuda_conforms() {
    let library = std::env::var_os("STALLOC_TEST_LIBCUDA").unwrap_or_else(|| "libcuda.so.1".into());
    match GpuDevice::cuda_at(&library, 0) {
        Ok(device) => conforms(device),
        Err(error) => eprintln!("SKIPPED the_machines_cuda_conforms: {error}"),
    }
}
