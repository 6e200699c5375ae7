//! Virtual memory management, as strict as `cuda.h` words it: a real driver must not be the first to refuse.
//!
//! The rules are quoted from the comments of CUDA 13's `cuda.h`, section "Virtual Memory Management". Where a rule is not written there,
//! the stand-in refuses what no driver is known to accept.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Status},
    execution::unmapped,
    ffi::{In, Out},
    memory::{GRANULE, PhysicalHandle, count_call, memory},
    runtime_api::cudaDeviceGetDefaultMemPool,
};
use stalloc_common::driver_prices::{CREATE, GIVE_BACK, MAP, OPEN, UNMAP};
use std::{
    ffi::{c_int, c_void},
    os::fd::{BorrowedFd, IntoRawFd, RawFd},
};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HandleProperties {
    kind: c_int,
    handle_types: c_int,
    location: MemoryLocation,
    metadata: u64,
    flags: [u8; 8],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryLocation {
    kind: c_int,
    index: c_int,
}

impl MemoryLocation {
    /// The device that this names.
    fn device(self) -> Result<u32, Status> {
        if self.kind != ON_DEVICE {
            return Err(NOT_SUPPORTED);
        }
        u32::try_from(self.index).ok().filter(|device| *device < config().devices).ok_or(INVALID_DEVICE)
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryAccess {
    location: MemoryLocation,
    flags: c_int,
}

/// "flags for future use, must be zero now" (`cuMemCreate`, `cuMemMap`); "currently unused, must be zero" (`cuMemAddressReserve`).
fn unused(flags: u64) -> Result<(), Status> {
    if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) }
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
    fn cuMemGetAllocationGranularity(bytes: Out<usize>, properties: In<HandleProperties>, option: c_int) -> Status {
        end(can_map().and_then(|()| properties.get().ok_or(INVALID_VALUE)).and_then(|properties| {
            properties.location.device()?;
            // `CU_MEM_ALLOC_GRANULARITY_MINIMUM` and `_RECOMMENDED`.
            if ![0, 1].contains(&option) {
                return Err(INVALID_VALUE);
            }
            bytes.set(GRANULE as usize);
            Ok(())
        }))
    }

    fn cuMemAddressReserve(place: Out<u64>, bytes: usize, alignment: usize, _wish: u64, flags: u64) -> Status {
        let mut memory = memory();
        let start = can_map().and_then(|()| unused(flags));
        let start = start.and_then(|()| memory.virtual_memory().0.reserve(bytes as u64, alignment as u64));
        end(start.map(|start| place.set(start)))
    }

    fn cuMemAddressFree(start: u64, bytes: usize) -> Status {
        end(memory().virtual_memory().0.unreserve(start, bytes as u64))
    }

    fn cuMemCreate(place: Out<PhysicalHandle>, bytes: usize, properties: In<HandleProperties>, flags: u64) -> Status {
        count_call(CREATE);
        end(can_map().and_then(|()| unused(flags)).and_then(|()| properties.get().ok_or(INVALID_VALUE)).and_then(|properties| {
            // "::CUmemAllocationProp::type": `CU_MEM_ALLOCATION_TYPE_PINNED` is what devices have.
            if properties.kind != PINNED {
                return Err(INVALID_VALUE);
            }
            let device = properties.location.device()?;
            // A type of handle that the device does not support is refused: `CUDA_ERROR_NOT_SUPPORTED`.
            let is_exportable = match properties.handle_types {
                0 => false,
                DESCRIPTOR if !config().keeps_memory => true,
                _ => return Err(NOT_SUPPORTED),
            };
            let mut memory = memory();
            let (virtual_memory, devices) = memory.virtual_memory();
            place.set(virtual_memory.create(devices, device, bytes as u64, is_exportable)?);
            Ok(())
        }))
    }

    fn cuMemRelease(handle: PhysicalHandle) -> Status {
        count_call(GIVE_BACK);
        let mut memory = memory();
        let (virtual_memory, devices) = memory.virtual_memory();
        end(virtual_memory.release(devices, handle))
    }

    fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: PhysicalHandle, flags: u64) -> Status {
        count_call(MAP);
        // "offset: [...] Note: currently must be zero."
        end(unused(flags).and_then(|()| match offset {
            0 => memory().map(start, bytes as u64, handle),
            _ => Err(INVALID_VALUE),
        }))
    }

    fn cuMemUnmap(start: u64, bytes: usize) -> Status {
        count_call(UNMAP);
        let mut memory = memory();
        let whole = memory.virtual_memory().0.is_whole(start, bytes as u64);
        drop(memory);
        end(if whole {
            unmapped(start, bytes as u64);
            crate::memory::memory().unmap(start, bytes as u64)
        } else {
            Err(INVALID_VALUE)
        })
    }

    fn cuMemSetAccess(start: u64, bytes: usize, descriptions: In<MemoryAccess>, count: usize) -> Status {
        count_call(OPEN);
        // More places than devices name one twice.
        let wanted = (0..count.min(1 + config().devices as usize)).map(|index| {
            let description = descriptions.at(index).ok_or(INVALID_VALUE)?;
            // `CU_MEM_ACCESS_FLAGS_PROT_NONE`, `_READ` and `_READWRITE`.
            let flags = u64::try_from(description.flags).ok().filter(|flags| [0, 1, 3].contains(flags)).ok_or(INVALID_VALUE)?;
            Ok((description.location.device()?, flags))
        });
        let wanted: Result<Vec<_>, Status> = wanted.collect();
        end(wanted.and_then(|wanted| match wanted.is_empty() {
            true => Err(INVALID_VALUE),
            false => memory().virtual_memory().0.set_access(start, bytes as u64, &wanted),
        }))
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<MemoryLocation>, address: u64) -> Status {
        let device = location.get().ok_or(INVALID_VALUE).and_then(MemoryLocation::device);
        let found = device.and_then(|device| memory().virtual_memory().0.access(address, device));
        end(found.map(|found| flags.set(found)))
    }

    fn cuMemRetainAllocationHandle(place: Out<PhysicalHandle>, address: u64) -> Status {
        count_call(MAP);
        end(memory().virtual_memory().0.retain(address).map(|handle| place.set(handle)))
    }

    fn cuMemGetAllocationPropertiesFromHandle(place: Out<HandleProperties>, handle: PhysicalHandle) -> Status {
        let mut memory = memory();
        let virtual_memory = memory.virtual_memory().0;
        let handle_types = if virtual_memory.is_exportable(handle) { DESCRIPTOR } else { 0 };
        end(virtual_memory.device(handle).ok_or(INVALID_VALUE).map(|device| place.set(HandleProperties {
            kind: PINNED,
            handle_types,
            location: MemoryLocation { kind: ON_DEVICE, index: device.cast_signed() },
            metadata: 0,
            flags: [0; 8],
        })))
    }

    fn cuMemExportToShareableHandle(place: Out<c_int>, handle: PhysicalHandle, kind: c_int, flags: u64) -> Status {
        end(unused(flags).and_then(|()| match kind {
            DESCRIPTOR => memory().export(handle).map(|descriptor| place.set(descriptor.into_raw_fd())),
            _ => Err(NOT_SUPPORTED),
        }))
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

#[cfg(test)]
mod tests;
