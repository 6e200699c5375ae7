//! Contexts: each device has one, the primary, and a thread's current context is its current device.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_CONTEXT, SUCCESS, Status},
    execution::{Handle, execution},
    ffi::Out,
    runtime_api::{cudaDeviceGetLimit, cudaDeviceGetStreamPriorityRange, current_device, existing, set_current_device},
};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

/// The context of device 0; the others follow. No address of anything.
const FIRST: Handle = 0x0d00_0000_0000;
const STEP: Handle = 64;

thread_local! {
    /// The devices that this thread comes back to, one for each context that it pushed.
    static PUSHED: RefCell<Vec<c_int>> = const { RefCell::new(Vec::new()) };
}

fn of(device: u32) -> Handle {
    FIRST + STEP * Handle::from(device)
}

/// The context of the thread's current device.
pub fn current() -> Handle {
    of(current_device())
}

fn device_of(context: Handle) -> Result<c_int, Status> {
    let device = context.checked_sub(FIRST).map(|offset| offset / STEP);
    device
        .filter(|device| *device < Handle::from(config().devices))
        .and_then(|device| c_int::try_from(device).ok())
        .ok_or(INVALID_CONTEXT)
}

fn enter(context: Handle) -> Result<(), Status> {
    // No context at all leaves the device as it is: what follows would create the primary context again.
    if context == 0 {
        return Ok(());
    }
    set_current_device(device_of(context)?)
}

exports! {
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) -> Status {
        end(existing(device).map(|device| context.set(of(device))))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
        end(existing(device))
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) -> Status {
        end(existing(device).map(|_| {
            flags.set(0);
            active.set(1);
        }))
    }

    fn cuCtxGetCurrent(context: Out<Handle>) -> Status {
        context.set(current());
        SUCCESS
    }

    fn cuCtxSetCurrent(context: Handle) -> Status {
        end(enter(context))
    }

    fn cuCtxPushCurrent_v2(context: Handle) -> Status {
        let before = current_device().cast_signed();
        end(enter(context).map(|()| PUSHED.with_borrow_mut(|devices| devices.push(before))))
    }

    fn cuCtxPopCurrent_v2(context: Out<Handle>) -> Status {
        context.set(current());
        // The last one stays: what follows would create the primary context again.
        end(PUSHED.with_borrow_mut(Vec::pop).map_or(Ok(()), set_current_device))
    }

    fn cuCtxGetDevice(device: Out<c_int>) -> Status {
        device.set(current_device().cast_signed());
        SUCCESS
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: c_int) -> Status {
        cudaDeviceGetLimit(value, limit)
    }

    fn cuCtxGetApiVersion(_context: Handle, version: Out<c_uint>) -> Status {
        version.set(3020);
        SUCCESS
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> Status {
        cudaDeviceGetStreamPriorityRange(least, greatest)
    }

    fn cuCtxSynchronize() -> Status {
        end(execution().synchronize())
    }
}
