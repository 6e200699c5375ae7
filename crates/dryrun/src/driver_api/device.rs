//! Devices, versions, errors.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_DEVICE, INVALID_VALUE, SUCCESS, Status, driver_name, sentence},
    ffi::{Out, TextOut},
    properties,
    runtime_api::{existing, runtime_version},
};
use std::ffi::{c_char, c_int, c_uint};

exports! {
    fn cuInit(_flags: c_uint) -> Status {
        SUCCESS
    }

    fn cuDriverGetVersion(version: Out<c_int>) -> Status {
        version.set(runtime_version());
        SUCCESS
    }

    fn cuDeviceGetCount(count: Out<c_int>) -> Status {
        count.set(config().devices.cast_signed());
        SUCCESS
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) -> Status {
        end(existing(ordinal).map(|_| device.set(ordinal)))
    }

    fn cuDeviceGetName(name: TextOut, size: c_int, device: c_int) -> Status {
        end(existing(device).map(|_| name.set(config().gpu.product, usize::try_from(size).unwrap_or(0))))
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) -> Status {
        end(existing(device).map(|device| uuid.set(properties::uuid(device))))
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) -> Status {
        cuDeviceGetUuid(uuid, device)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> Status {
        end(existing(device).map(|_| bytes.set(config().gpu.total as usize)))
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) -> Status {
        end(existing(device).map(|_| {
            major.set(config().gpu.capability.0.cast_signed());
            minor.set(config().gpu.capability.1.cast_signed());
        }))
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) -> Status {
        end(existing(device).map(|device| value.set(properties::attribute(attribute, device))))
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) -> Status {
        let both = existing(device).and_then(|_| existing(peer)).map_err(|_| INVALID_DEVICE);
        end(both.map(|_| can.set(c_int::from(device != peer))))
    }

    fn cuDeviceGetPCIBusId(text: TextOut, size: c_int, device: c_int) -> Status {
        end(existing(device).map(|device| {
            let bus = format!("0000:{:02X}:00.0", properties::pci_bus(device));
            text.set(&bus, usize::try_from(size).unwrap_or(0));
        }))
    }

    fn cuGetErrorString(error: Status, text: Out<*const c_char>) -> Status {
        end(driver_name(error).ok_or(INVALID_VALUE).map(|_| text.set(sentence(error))))
    }

    fn cuGetErrorName(error: Status, text: Out<*const c_char>) -> Status {
        end(driver_name(error).ok_or(INVALID_VALUE).map(|name| text.set(name)))
    }
}
