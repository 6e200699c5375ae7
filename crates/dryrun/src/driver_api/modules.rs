//! Modules and kernels, as compilers that run in the program (Triton, NVRTC) load them.

use super::end;
use crate::{
    config::config,
    errors::{INVALID_VALUE, SUCCESS, Status},
    execution::{Handle, launch, new_handle},
    ffi::{In, Out},
    runtime_api::{Dim3, allocate, blocks_per_multiprocessor, is_launchable},
};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Room for a variable of a module, in bytes.
const VARIABLE: usize = 64 << 10;

/// `CUlaunchConfig`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DriverLaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared: c_uint,
    stream: Handle,
}

fn handle(place: Out<Handle>) -> Status {
    place.set(new_handle());
    SUCCESS
}

/// A launch; too large a one is an invalid value here, where the runtime has an error for it.
fn launched(grid: Dim3, block: Dim3, stream: Handle) -> Status {
    end(is_launchable(grid, block).then(|| launch(stream)).ok_or(INVALID_VALUE))
}

fn attribute(attribute: c_int) -> c_int {
    let gpu = &config().gpu;
    match attribute {
        0 => 1024,                                                         // threads of a block
        4 => 32,                                                           // registers of a thread
        5 | 6 => (gpu.capability.0 * 10 + gpu.capability.1).cast_signed(), // versions of PTX and of the binary
        8 => gpu.shared_per_block.cast_signed(),
        _ => 0,
    }
}

exports! {
    fn cuModuleLoad(module: Out<Handle>, _file: *const c_char) -> Status {
        handle(module)
    }

    fn cuModuleLoadData(module: Out<Handle>, _image: *const c_void) -> Status {
        handle(module)
    }

    fn cuModuleLoadDataEx(module: Out<Handle>, _image: *const c_void) -> Status {
        handle(module)
    }

    fn cuModuleLoadFatBinary(module: Out<Handle>, _image: *const c_void) -> Status {
        handle(module)
    }

    fn cuModuleGetFunction(function: Out<Handle>, _module: Handle, _name: *const c_char) -> Status {
        handle(function)
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, _module: Handle, _name: *const c_char) -> Status {
        end(allocate(VARIABLE).map(|start| {
            address.set(start);
            bytes.set(VARIABLE);
        }))
    }

    fn cuLibraryGetModule(module: Out<Handle>, _library: Handle) -> Status {
        handle(module)
    }

    fn cuFuncGetAttribute(value: Out<c_int>, number: c_int, _function: Handle) -> Status {
        value.set(attribute(number));
        SUCCESS
    }

    fn cuKernelGetAttribute(value: Out<c_int>, number: c_int, _kernel: Handle, _device: c_int) -> Status {
        value.set(attribute(number));
        SUCCESS
    }

    fn cuLaunchKernel(_function: Handle, x: c_uint, y: c_uint, z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, _shared: c_uint, stream: Handle) -> Status {
        launched(Dim3 { x, y, z }, Dim3 { x: block_x, y: block_y, z: block_z }, stream)
    }

    fn cuLaunchCooperativeKernel(_function: Handle, x: c_uint, y: c_uint, z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, _shared: c_uint, stream: Handle) -> Status {
        launched(Dim3 { x, y, z }, Dim3 { x: block_x, y: block_y, z: block_z }, stream)
    }

    fn cuLaunchKernelEx(configuration: In<DriverLaunchConfiguration>, _function: Handle) -> Status {
        configuration.get().map_or(INVALID_VALUE, |DriverLaunchConfiguration { grid, block, stream, .. }| launched(grid, block, stream))
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<c_int>, _function: Handle, threads: c_int, shared: usize) -> Status {
        blocks.set(blocks_per_multiprocessor(threads, shared));
        SUCCESS
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<c_int>, _function: Handle, threads: c_int, shared: usize, _flags: c_uint) -> Status {
        blocks.set(blocks_per_multiprocessor(threads, shared));
        SUCCESS
    }

    fn cuOccupancyMaxActiveClusters(clusters: Out<c_int>, _function: Handle, _configuration: *const c_void) -> Status {
        clusters.set(16);
        SUCCESS
    }
}

#[cfg(test)]
mod tests;
