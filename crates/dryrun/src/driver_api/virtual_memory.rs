//! Virtual memory management.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status},
    execution::unmapped,
    ffi::{In, Out},
    memory::{GRANULE, PhysicalHandle, count_call, memory},
    runtime_api::cudaDeviceGetDefaultMemPool,
};
use std::{
    ffi::{c_int, c_void},
    os::fd::{BorrowedFd, IntoRawFd, RawFd},
};

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

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: the only way in which memory gets to other processes here.
const DESCRIPTOR: c_int = 1;
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
            if ![0, DESCRIPTOR].contains(&properties.handle_types) {
                return Err(NOT_SUPPORTED);
            }
            let mut memory = memory();
            let (virtual_memory, devices) = memory.virtual_memory();
            let is_exportable = properties.handle_types == DESCRIPTOR;
            place.set(virtual_memory.create(devices, device, bytes as u64, is_exportable)?);
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
            memory().map(start, bytes as u64, handle)
        } else {
            Err(NOT_SUPPORTED)
        })
    }

    fn cuMemUnmap(start: u64, bytes: usize) -> Status {
        count_call();
        unmapped(start, bytes as u64);
        end(memory().unmap(start, bytes as u64))
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
        let mut memory = memory();
        let virtual_memory = memory.virtual_memory().0;
        let handle_types = if virtual_memory.is_exportable(handle) { DESCRIPTOR } else { 0 };
        end(virtual_memory.device(handle).ok_or(INVALID_VALUE).map(|device| place.set(AllocationProperties {
            kind: PINNED,
            handle_types,
            location_kind: ON_DEVICE,
            location: device.cast_signed(),
            metadata: 0,
            flags: [0; 8],
        })))
    }

    fn cuMemExportToShareableHandle(place: Out<c_int>, handle: PhysicalHandle, kind: c_int, _flags: u64) -> Status {
        end(if kind == DESCRIPTOR {
            memory().export(handle).map(|descriptor| place.set(descriptor.into_raw_fd()))
        } else {
            Err(NOT_SUPPORTED)
        })
    }

    fn cuMemImportFromShareableHandle(place: Out<PhysicalHandle>, descriptor: *mut c_void, kind: c_int) -> Status {
        end(match RawFd::try_from(descriptor.addr()) {
            // SAFETY: a descriptor that the program has open, as it says; it is used during this call alone.
            Ok(number) if kind == DESCRIPTOR => memory().import(unsafe { BorrowedFd::borrow_raw(number) }).map(|handle| place.set(handle)),
            _ => Err(if kind == DESCRIPTOR { INVALID_VALUE } else { NOT_SUPPORTED }),
        })
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: c_int) -> Status {
        cudaDeviceGetDefaultMemPool(pool, device)
    }
}
