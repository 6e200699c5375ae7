//! Stream-ordered allocation: `cudaMallocAsync` and memory pools. As work is done at once, so is freeing.

use super::{current_device, device::existing, end, memory::allocate};
use crate::{
    errors::{SUCCESS, Status},
    execution::{Handle, new_handle},
    ffi::Out,
    memory::memory,
};
use std::ffi::{c_int, c_void};

/// The default pool of a device: a handle that is no address.
const DEFAULT_POOL: Handle = 0x0e00_0000_0000;

exports! {
    fn cudaMallocAsync(place: Out<u64>, bytes: usize, _stream: Handle) -> Status {
        end(allocate(bytes).map(|address| place.set(address)))
    }

    fn cudaMallocFromPoolAsync(place: Out<u64>, bytes: usize, _pool: Handle, _stream: Handle) -> Status {
        end(allocate(bytes).map(|address| place.set(address)))
    }

    fn cudaFreeAsync(address: u64, _stream: Handle) -> Status {
        if address == 0 {
            return SUCCESS;
        }
        end(memory().free(address))
    }

    fn cudaDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) -> Status {
        end(existing(device).map(|device| pool.set(DEFAULT_POOL + 64 * u64::from(device))))
    }

    fn cudaDeviceGetMemPool(pool: Out<Handle>, device: c_int) -> Status {
        cudaDeviceGetDefaultMemPool(pool, device)
    }

    fn cudaMemPoolCreate(pool: Out<Handle>, _properties: *const c_void) -> Status {
        pool.set(new_handle());
        SUCCESS
    }

    fn cudaMemPoolGetAttribute(_pool: Handle, attribute: c_int, value: Out<u64>) -> Status {
        match attribute {
            // Reuse of freed memory, three ways.
            1..=3 => value_of_int(value, 1),
            // Release threshold.
            4 => value.set(0),
            // Reserved and used, now and at most.
            5..=8 => end_usage(attribute, value),
            _ => value.set(0),
        }
        SUCCESS
    }
}

/// Switches are an `int`: no more than that may be written.
fn value_of_int(value: Out<u64>, number: u32) {
    if let Some(old) = value.get() {
        // The other half belongs to the caller.
        value.set(old & !u64::from(u32::MAX) | u64::from(number));
    }
}

fn end_usage(attribute: c_int, value: Out<u64>) {
    if let Ok(device) = memory().device(current_device()) {
        let peak = attribute == 6 || attribute == 8;
        value.set(if peak { device.peak() } else { device.used() });
    }
}
