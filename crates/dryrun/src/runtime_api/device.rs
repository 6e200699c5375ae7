//! Devices, errors, versions.

use super::end;
use crate::{
    config::config,
    errors::{self, INVALID_DEVICE, SUCCESS, Status, UNSUPPORTED_LIMIT},
    execution::{cuda_major, execution},
    ffi::{Out, Text, TextOut},
    loaded,
    memory::memory,
    properties,
};
use std::{
    cell::Cell,
    ffi::{c_char, c_int, c_uint},
};

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// The device that the calling thread uses.
pub fn current_device() -> u32 {
    CURRENT.get()
}

/// Changes the device that the calling thread uses.
pub fn set_current_device(device: c_int) -> Result<(), Status> {
    CURRENT.set(existing(device)?);
    Ok(())
}

/// A device number, if there is such a device.
pub fn existing(device: c_int) -> Result<u32, Status> {
    u32::try_from(device).ok().filter(|device| *device < config().devices).ok_or(INVALID_DEVICE)
}

/// Writes the device's properties where the caller's version of the structure has room for them.
fn write_properties(place: Out<u8>, device: c_int, cuda: u32) -> Status {
    end(existing(device).map(|device| {
        for (index, byte) in properties::structure(device, cuda).into_iter().enumerate() {
            place.set_at(index, byte);
        }
    }))
}

exports! {
    fn cudaGetDeviceCount(count: Out<c_int>) -> Status {
        count.set(config().devices.cast_signed());
        SUCCESS
    }

    fn cudaGetDevice(device: Out<c_int>) -> Status {
        device.set(current_device().cast_signed());
        SUCCESS
    }

    fn cudaSetDevice(device: c_int) -> Status {
        end(set_current_device(device))
    }

    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> Status {
        end(existing(device))
    }

    fn cudaDeviceSynchronize() -> Status {
        end(execution().synchronize())
    }

    fn cudaDriverGetVersion(version: Out<c_int>) -> Status {
        version.set(runtime_version());
        SUCCESS
    }

    fn cudaRuntimeGetVersion(version: Out<c_int>) -> Status {
        version.set(runtime_version());
        SUCCESS
    }

    fn cudaGetLastError() -> Status {
        errors::take_last()
    }

    fn cudaPeekAtLastError() -> Status {
        errors::last()
    }

    fn cudaGetErrorString(error: Status) -> *const c_char {
        errors::sentence(error)
    }

    fn cudaGetErrorName(error: Status) -> *const c_char {
        errors::runtime_name(error)
    }

    // Versions 11 and 13 export this name with different structures; 12 has a name of its own.
    fn cudaGetDeviceProperties(place: Out<u8>, device: c_int) -> Status {
        let cuda = if cuda_major() >= 13 { 13 } else { 11 };
        write_properties(place, device, cuda)
    }

    fn cudaGetDeviceProperties_v2(place: Out<u8>, device: c_int) -> Status {
        write_properties(place, device, 12)
    }

    fn cudaDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) -> Status {
        end(existing(device).map(|device| value.set(properties::attribute(attribute, device))))
    }

    fn cudaDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) -> Status {
        end(existing(device).and_then(|_| existing(peer)).map(|_| can.set(c_int::from(device != peer))))
    }

    fn cudaDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> Status {
        least.set(0);
        greatest.set(-5);
        SUCCESS
    }

    fn cudaDeviceGetPCIBusId(text: TextOut, size: c_int, device: c_int) -> Status {
        end(existing(device).map(|device| {
            let bus = format!("0000:{:02X}:00.0", properties::pci_bus(device));
            text.set(&bus, usize::try_from(size).unwrap_or(0));
        }))
    }

    fn cudaDeviceGetByPCIBusId(device: Out<c_int>, bus: Text) -> Status {
        let wanted = bus.get().to_ascii_uppercase();
        let found = (0..config().devices).find(|device| wanted.contains(&format!("{:02X}:00", properties::pci_bus(*device))));
        end(found.ok_or(INVALID_DEVICE).map(|found| device.set(found.cast_signed())))
    }

    fn cudaDeviceGetLimit(value: Out<usize>, limit: c_int) -> Status {
        end(properties::limit(&config().gpu, limit).ok_or(UNSUPPORTED_LIMIT).map(|limit| value.set(limit as usize)))
    }

    fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) -> Status {
        end(memory().device(current_device()).map(|device| {
            free.set(device.free_bytes() as usize);
            total.set(device.total() as usize);
        }))
    }
}

/// The version of CUDA that everything here claims to be: that of the runtime which the program was built for.
pub fn runtime_version() -> c_int {
    let (major, minor) = loaded::runtime_version().unwrap_or((13, 0));
    (major * 1000 + minor * 10).cast_signed()
}
