//! Virtual memory management.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status},
    execution::unmapped,
    ffi::{In, Out},
    log,
    memory::{GRANULE, PhysicalHandle, count_call, memory},
    runtime_api::cudaDeviceGetDefaultMemPool,
};
use std::ffi::{c_int, c_void};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
    metadata: u64,
    flags: [u8; 8],
}

/// Not every GPU can map pages.
fn can_map() -> Result<(), Status> {
    if config().gpu.pages { Ok(()) } else { Err(NOT_SUPPORTED) }
}

const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;

exports! {
    fn cuMemGetAllocationGranularity(bytes: Out<usize>, _properties: *const c_void, _option: c_int) -> Status {
        end(can_map().map(|()| bytes.set(GRANULE as usize)))
    }

    fn cuMemAddressReserve(place: Out<u64>, bytes: usize, alignment: usize, _wish: u64, _flags: u64) -> Status {
        let mut memory = memory();
        let start = can_map().and_then(|()| memory.virtual_memory().0.reserve(bytes as u64, alignment as u64));
        end(start.map(|start| place.set(start)))
    }

    fn cuMemAddressFree(start: u64, bytes: usize) -> Status {
        end(memory().virtual_memory().0.unreserve(start, bytes as u64))
    }

    fn cuMemCreate(place: Out<PhysicalHandle>, bytes: usize, properties: In<AllocationProperties>, _flags: u64) -> Status {
        count_call();
        end(can_map().and_then(|()| properties.get().ok_or(INVALID_VALUE)).and_then(|properties| {
            let device = if properties.location_kind == ON_DEVICE {
                u32::try_from(properties.location).map_err(|_| INVALID_VALUE)?
            } else {
                return Err(NOT_SUPPORTED);
            };
            let mut memory = memory();
            let (virtual_memory, devices) = memory.virtual_memory();
            place.set(virtual_memory.create(devices, device, bytes as u64)?);
            Ok(())
        }))
    }

    fn cuMemRelease(handle: PhysicalHandle) -> Status {
        count_call();
        let mut memory = memory();
        let (virtual_memory, devices) = memory.virtual_memory();
        end(virtual_memory.release(devices, handle))
    }

    fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: PhysicalHandle, _flags: u64) -> Status {
        count_call();
        end(if offset == 0 {
            memory().virtual_memory().0.map(start, bytes as u64, handle)
        } else {
            Err(NOT_SUPPORTED)
        })
    }

    fn cuMemUnmap(start: u64, bytes: usize) -> Status {
        count_call();
        unmapped(start, bytes as u64);
        let mut memory = memory();
        let (virtual_memory, devices) = memory.virtual_memory();
        let unmapped = virtual_memory.unmap(devices, start, bytes as u64);
        memory.known().forget(start, bytes as u64);
        end(unmapped)
    }

    fn cuMemSetAccess(start: u64, bytes: usize, _descriptions: *const c_void, _count: usize) -> Status {
        count_call();
        end(memory().virtual_memory().0.set_access(start, bytes as u64))
    }

    fn cuMemGetAccess(flags: Out<u64>, _location: *const c_void, _address: u64) -> Status {
        flags.set(3);
        SUCCESS
    }

    fn cuMemRetainAllocationHandle(place: Out<PhysicalHandle>, address: u64) -> Status {
        count_call();
        end(memory().virtual_memory().0.retain(address).map(|handle| place.set(handle)))
    }

    fn cuMemGetAllocationPropertiesFromHandle(place: Out<AllocationProperties>, handle: PhysicalHandle) -> Status {
        let device = memory().virtual_memory().0.device(handle);
        end(device.ok_or(INVALID_VALUE).map(|device| place.set(AllocationProperties {
            kind: PINNED,
            handle_types: 0,
            location_kind: ON_DEVICE,
            location: device.cast_signed(),
            metadata: 0,
            flags: [0; 8],
        })))
    }

    fn cuMemExportToShareableHandle(_place: *mut c_void, _handle: PhysicalHandle, _kind: c_int, _flags: u64) -> Status {
        log::complain("sharing device memory between processes is not imitated, the program is told that it is not supported");
        NOT_SUPPORTED
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: c_int) -> Status {
        cudaDeviceGetDefaultMemPool(pool, device)
    }
}
