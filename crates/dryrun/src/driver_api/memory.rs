//! Allocation, copies, pointers.

use super::{context, end};
use crate::{
    errors::{INVALID_VALUE, NOT_FOUND, SUCCESS, Status},
    execution::{Handle, execution},
    ffi::{In, Out},
    memory::{HostKind, Owner, memory, plain},
    runtime_api::{allocate, allocate_host, copy_now, copy_on, current_device, fill_on, free, free_host},
};
use std::ffi::{c_int, c_uint};

fn allocate_some(bytes: usize) -> Result<u64, Status> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    execution().wait_for_all()?;
    allocate(bytes)
}

/// Fills `count` elements of `size` bytes with `value`; what is not the same in every byte is not remembered.
fn fill_elements(stream: Handle, start: u64, value: u32, size: usize, count: usize) -> Result<(), Status> {
    let bytes = value.to_le_bytes();
    let same = bytes[..size].iter().all(|byte| *byte == bytes[0]);
    let length = count.checked_mul(size).ok_or(INVALID_VALUE)?;
    if same {
        return fill_on(stream, start, bytes[0], length);
    }
    memory().known().forget(start, length as u64);
    Ok(())
}

/// A `CUpointer_attribute` of an address.
fn pointer_attribute(place: Out<u64>, attribute: c_int, address: u64) -> Result<(), Status> {
    let found = memory().owner(address);
    // Results are as wide as the attribute's type; half of the place may belong to something else.
    let word = |value: u32| place.narrow::<u32>().set(value);
    let (on_device, device, start, bytes) = match found {
        Owner::Device { device, start, bytes } => (true, device, start, bytes),
        Owner::Host { start, bytes, .. } => (false, current_device(), start, bytes),
        Owner::Unknown => return Err(INVALID_VALUE),
    };
    let managed = matches!(found, Owner::Host { kind: HostKind::Managed, .. });
    match attribute {
        1 => place.set(context::current()),
        2 => word(if on_device || managed { 2 } else { 1 }),
        3 => place.set(address),
        4 if on_device => return Err(INVALID_VALUE),
        4 => place.set(address),
        7 => place.set(start), // buffer id: unique and lasting as long as the buffer
        8 => place.narrow::<u8>().set(managed.into()),
        9 => word(device),
        11 => place.set(start),
        12 => place.set(bytes),
        13 => place.narrow::<u8>().set(1), // mapped
        14 => word(0),                     // handle types
        16 => word(3),                     // access: read and write
        17 => place.set(0),                // pool
        _ => word(0),
    }
    Ok(())
}

exports! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Status {
        end(memory().device(current_device()).map(|device| {
            free.set(device.free_bytes() as usize);
            total.set(device.total() as usize);
        }))
    }

    fn cuMemAlloc_v2(place: Out<u64>, bytes: usize) -> Status {
        end(allocate_some(bytes).map(|address| place.set(address)))
    }

    fn cuMemAllocAsync(place: Out<u64>, bytes: usize, _stream: Handle) -> Status {
        end(allocate(bytes).map(|address| place.set(address)))
    }

    fn cuMemFree_v2(address: u64) -> Status {
        end(if address == 0 { Ok(()) } else { free(address) })
    }

    fn cuMemFreeAsync(address: u64, _stream: Handle) -> Status {
        cuMemFree_v2(address)
    }

    fn cuMemAllocManaged(place: Out<u64>, bytes: usize, _flags: c_uint) -> Status {
        end(allocate_host(bytes, HostKind::Managed).map(|address| place.set(address)))
    }

    fn cuMemHostAlloc(place: Out<u64>, bytes: usize, _flags: c_uint) -> Status {
        end(allocate_host(bytes, HostKind::Locked).map(|address| place.set(address)))
    }

    fn cuMemAllocHost_v2(place: Out<u64>, bytes: usize) -> Status {
        cuMemHostAlloc(place, bytes, 0)
    }

    fn cuMemFreeHost(address: u64) -> Status {
        end(free_host(address))
    }

    fn cuMemHostRegister_v2(address: u64, bytes: usize, _flags: c_uint) -> Status {
        end(memory().host().register(address, bytes as u64))
    }

    fn cuMemHostUnregister(address: u64) -> Status {
        end(memory().host().unregister(address))
    }

    fn cuMemHostGetDevicePointer_v2(place: Out<u64>, address: u64, _flags: c_uint) -> Status {
        place.set(address);
        SUCCESS
    }

    fn cuMemGetAddressRange_v2(start: Out<u64>, bytes: Out<usize>, address: u64) -> Status {
        end(match memory().owner(address) {
            Owner::Device { start: first, bytes: length, .. } => {
                start.set(first);
                bytes.set(length as usize);
                Ok(())
            }
            _ => Err(NOT_FOUND),
        })
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cuMemsetD8_v2(start: u64, value: u8, count: usize) -> Status {
        end(fill_elements(0, start, value.into(), 1, count))
    }

    fn cuMemsetD8Async(start: u64, value: u8, count: usize, stream: Handle) -> Status {
        end(fill_elements(stream, start, value.into(), 1, count))
    }

    fn cuMemsetD16Async(start: u64, value: u16, count: usize, stream: Handle) -> Status {
        end(fill_elements(stream, start, value.into(), 2, count))
    }

    fn cuMemsetD32_v2(start: u64, value: c_uint, count: usize) -> Status {
        end(fill_elements(0, start, value, 4, count))
    }

    fn cuMemsetD32Async(start: u64, value: c_uint, count: usize, stream: Handle) -> Status {
        end(fill_elements(stream, start, value, 4, count))
    }

    fn cuPointerGetAttribute(place: Out<u64>, attribute: c_int, address: u64) -> Status {
        end(pointer_attribute(place, attribute, address))
    }

    fn cuPointerGetAttributes(count: c_uint, attributes: In<c_int>, places: In<Out<u64>>, address: u64) -> Status {
        for index in 0..count as usize {
            if let (Some(attribute), Some(place)) = (attributes.at(index), places.at(index))
                && pointer_attribute(place, attribute, address).is_err()
            {
                // Here an unknown address is no error: the answers are zero, at the width that every attribute has.
                place.narrow::<u8>().set(0);
            }
        }
        SUCCESS
    }

    fn cuPointerSetAttribute(_value: u64, _attribute: c_int, _address: u64) -> Status {
        SUCCESS
    }
}
