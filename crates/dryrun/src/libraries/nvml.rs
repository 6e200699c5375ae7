//! NVML: what monitoring asks about a device.

use crate::{
    config::config,
    ffi::{Out, Text, TextOut, text},
    memory::memory,
    properties,
    runtime_api::runtime_version,
};
use stalloc_dryrun_setup::identity::{DRIVER, bus_name, uuid_name};
use std::ffi::{c_char, c_int, c_uint};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;

/// The handle of device 0; the others follow. No address of anything.
const FIRST: u64 = 0x0c00_0000_0000;

fn device(handle: u64) -> Option<u32> {
    let device = u32::try_from(handle.checked_sub(FIRST)? / 64).ok()?;
    (device < config().devices).then_some(device)
}

fn on_device(handle: u64, answer: impl FnOnce(u32)) -> c_int {
    device(handle).map_or(INVALID_ARGUMENT, |device| {
        answer(device);
        SUCCESS
    })
}

fn write(place: TextOut, size: c_uint, text: &str) -> c_int {
    if (size as usize) <= text.len() {
        return INSUFFICIENT_SIZE;
    }
    place.set(text, size as usize);
    SUCCESS
}

fn handle(place: Out<u64>, index: c_uint) -> c_int {
    if index >= config().devices {
        return INVALID_ARGUMENT;
    }
    place.set(FIRST + 64 * u64::from(index));
    SUCCESS
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfo {
    legacy_name: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    identity: c_uint,
    subsystem: c_uint,
    name: [u8; 32],
}

fn pci_info(device: u32) -> PciInfo {
    let full = bus_name(device);
    let mut info = PciInfo {
        legacy_name: [0; 16],
        domain: 0,
        bus: properties::pci_bus(device),
        device: 0,
        identity: 0,
        subsystem: 0,
        name: [0; 32],
    };
    info.name[..full.len()].copy_from_slice(full.as_bytes());
    // The old name has a domain of four digits.
    info.legacy_name[..full.len() - 4].copy_from_slice(&full.as_bytes()[4..]);
    info
}

exports! {
    fn nvmlInit() -> c_int {
        SUCCESS
    }

    fn nvmlInit_v2() -> c_int {
        SUCCESS
    }

    fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
        SUCCESS
    }

    fn nvmlShutdown() -> c_int {
        SUCCESS
    }

    fn nvmlErrorString(status: c_int) -> *const c_char {
        text(match status {
            SUCCESS => c"Success",
            INVALID_ARGUMENT => c"Invalid Argument",
            NOT_SUPPORTED => c"Not Supported",
            NOT_FOUND => c"Not Found",
            INSUFFICIENT_SIZE => c"Insufficient Size",
            _ => c"Unknown Error",
        })
    }

    fn nvmlSystemGetDriverVersion(version: TextOut, size: c_uint) -> c_int {
        write(version, size, DRIVER)
    }

    fn nvmlSystemGetNVMLVersion(version: TextOut, size: c_uint) -> c_int {
        write(version, size, DRIVER)
    }

    fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) -> c_int {
        version.set(runtime_version());
        SUCCESS
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> c_int {
        nvmlSystemGetCudaDriverVersion(version)
    }

    fn nvmlDeviceGetCount(count: Out<c_uint>) -> c_int {
        count.set(config().devices);
        SUCCESS
    }

    fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> c_int {
        nvmlDeviceGetCount(count)
    }

    fn nvmlDeviceGetHandleByIndex(index: c_uint, place: Out<u64>) -> c_int {
        handle(place, index)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: Out<u64>) -> c_int {
        handle(place, index)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(name: Text, place: Out<u64>) -> c_int {
        let wanted = name.get().to_ascii_uppercase();
        let found = (0..config().devices).find(|device| wanted.ends_with(&bus_name(*device)[8..]));
        found.map_or(NOT_FOUND, |device| handle(place, device))
    }

    fn nvmlDeviceGetHandleByUUID(uuid: Text, place: Out<u64>) -> c_int {
        let found = (0..config().devices).find(|device| uuid.get() == uuid_name(*device));
        found.map_or(NOT_FOUND, |device| handle(place, device))
    }

    fn nvmlDeviceGetIndex(handle: u64, index: Out<c_uint>) -> c_int {
        on_device(handle, |device| index.set(device))
    }

    fn nvmlDeviceGetMinorNumber(handle: u64, number: Out<c_uint>) -> c_int {
        on_device(handle, |device| number.set(device))
    }

    fn nvmlDeviceGetName(handle: u64, name: TextOut, size: c_uint) -> c_int {
        device(handle).map_or(INVALID_ARGUMENT, |_| write(name, size, config().gpu.product))
    }

    fn nvmlDeviceGetUUID(handle: u64, uuid: TextOut, size: c_uint) -> c_int {
        device(handle).map_or(INVALID_ARGUMENT, |device| write(uuid, size, &uuid_name(device)))
    }

    fn nvmlDeviceGetPciInfo_v3(handle: u64, place: Out<PciInfo>) -> c_int {
        on_device(handle, |device| place.set(pci_info(device)))
    }

    fn nvmlDeviceGetCudaComputeCapability(handle: u64, major: Out<c_int>, minor: Out<c_int>) -> c_int {
        on_device(handle, |_| {
            major.set(config().gpu.capability.0.cast_signed());
            minor.set(config().gpu.capability.1.cast_signed());
        })
    }

    fn nvmlDeviceGetMemoryInfo(handle: u64, place: Out<[u64; 3]>) -> c_int {
        on_device(handle, |device| {
            if let Ok(device) = memory().device(device) {
                place.set([device.total(), device.free_bytes(), device.total() - device.free_bytes()]);
            }
        })
    }

    // The first word is the version of the structure, which the caller filled in.
    fn nvmlDeviceGetMemoryInfo_v2(handle: u64, place: Out<[u64; 5]>) -> c_int {
        on_device(handle, |device| {
            if let (Ok(device), Some(old)) = (memory().device(device), place.get()) {
                place.set([old[0], device.total(), 0, device.free_bytes(), device.total() - device.free_bytes()]);
            }
        })
    }

    // Nothing runs, so nothing is used: shares of time in percent.
    fn nvmlDeviceGetUtilizationRates(handle: u64, place: Out<[c_uint; 2]>) -> c_int {
        on_device(handle, |_| place.set([0, 0]))
    }

    fn nvmlDeviceGetTemperature(handle: u64, _sensor: c_int, degrees: Out<c_uint>) -> c_int {
        on_device(handle, |_| degrees.set(30))
    }

    fn nvmlDeviceGetPowerUsage(handle: u64, milliwatts: Out<c_uint>) -> c_int {
        on_device(handle, |_| milliwatts.set(70_000))
    }

    fn nvmlDeviceGetClockInfo(handle: u64, kind: c_int, megahertz: Out<c_uint>) -> c_int {
        on_device(handle, |_| {
            let gpu = &config().gpu;
            megahertz.set(if kind == 2 { gpu.memory_clock } else { gpu.clock } / 1000);
        })
    }

    fn nvmlDeviceGetMaxClockInfo(handle: u64, kind: c_int, megahertz: Out<c_uint>) -> c_int {
        nvmlDeviceGetClockInfo(handle, kind, megahertz)
    }

    fn nvmlDeviceGetComputeRunningProcesses(handle: u64, count: Out<c_uint>) -> c_int {
        on_device(handle, |_| count.set(0))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: u64, count: Out<c_uint>) -> c_int {
        on_device(handle, |_| count.set(0))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: u64, count: Out<c_uint>) -> c_int {
        on_device(handle, |_| count.set(0))
    }

    fn nvmlDeviceGetNvLinkState(_handle: u64, _link: c_uint, _state: Out<c_uint>) -> c_int {
        NOT_SUPPORTED
    }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(_handle: u64, _link: c_uint, _kind: Out<c_uint>) -> c_int {
        NOT_SUPPORTED
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(_handle: u64, _link: c_uint, _place: Out<PciInfo>) -> c_int {
        NOT_SUPPORTED
    }

    fn nvmlDeviceGetP2PStatus(_from: u64, _to: u64, _what: c_int, status: Out<c_int>) -> c_int {
        status.set(0);
        SUCCESS
    }

    fn nvmlDeviceGetGpuFabricInfoV(_handle: u64, _place: u64) -> c_int {
        NOT_SUPPORTED
    }

    fn nvmlDeviceGetMigMode(_handle: u64, _current: Out<c_uint>, _pending: Out<c_uint>) -> c_int {
        NOT_SUPPORTED
    }
}
