//! Kernels: registered by the program's own start code, launched to no effect.

use super::{end, fat_binary::FatBinary};
use crate::{
    checks,
    config::config,
    errors::{INVALID_CONFIGURATION, INVALID_VALUE, SUCCESS, Status},
    execution::{Handle, cuda_major, launch_compiled, new_handle},
    ffi::{In, Out},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::{Mutex, PoisonError},
};

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

#[derive(Clone, Copy)]
struct CallConfiguration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<CallConfiguration>> = const { RefCell::new(Vec::new()) };
}

/// A kernel that start code registered.
#[derive(Clone, Copy)]
struct Registered {
    /// The host's function.
    function: usize,
    /// Address of its name, which lives as long as its module.
    name: usize,
    module: Handle,
}

static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// The compiled code of each module.
static MODULES: Mutex<BTreeMap<Handle, FatBinary>> = Mutex::new(BTreeMap::new());

/// `cudaLaunchConfig_t`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfiguration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

/// Blocks of `threads` that one multiprocessor holds, as far as threads and shared memory go.
pub fn blocks_per_multiprocessor(threads: c_int, shared: usize) -> c_int {
    let gpu = &config().gpu;
    let threads = u32::try_from(threads).unwrap_or(0).next_multiple_of(32).max(32);
    let by_threads = gpu.threads_per_multiprocessor / threads;
    // The system keeps a kibibyte of each block's shared memory.
    let by_shared = gpu.shared_per_multiprocessor as usize / (shared + 1024);
    by_threads.min(u32::try_from(by_shared).unwrap_or(u32::MAX)).min(gpu.blocks_per_multiprocessor).cast_signed()
}

/// Whether a launch has no more blocks, and threads in a block, than any GPU takes (CUDA's programming guide, technical specifications
/// per compute capability). None at all is let through: what was computed from values, which are not real, may be none.
pub fn is_launchable(grid: Dim3, block: Dim3) -> bool {
    let threads = [block.x, block.y, block.z].into_iter().map(u128::from).product::<u128>();
    c_int::try_from(grid.x).is_ok() && grid.y.max(grid.z) <= 65_535 && threads <= 1024 && block.z <= 64
}

fn launched(function: usize, grid: Dim3, block: Dim3, stream: Handle) -> Status {
    if !is_launchable(grid, block) {
        return end::<()>(Err(INVALID_CONFIGURATION));
    }
    launch_compiled(stream);
    checks::launched(function);
    SUCCESS
}

fn registered(function: usize) -> Option<Registered> {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.iter().find(|kernel| kernel.function == function).copied()
}

/// The address of a registered kernel's name.
fn address_of_name(function: usize) -> Option<usize> {
    registered(function).map(|kernel| kernel.name)
}

/// The versions of the code that a device loads of a kernel: see [`FatBinary::versions`].
fn versions(function: usize) -> (u32, u32) {
    let device = config().gpu.capability.0 * 10 + config().gpu.capability.1;
    let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let code = registered(function).and_then(|kernel| modules.get(&kernel.module));
    code.and_then(|code| code.versions(device)).unwrap_or((device, device))
}

/// A registered kernel's name, as the compiler wrote it.
pub fn name_of(function: usize) -> Option<String> {
    let name = address_of_name(function).filter(|name| *name != 0)?;
    // SAFETY: the compiler's start code passed it as a string, which is there as long as the module of the kernel is.
    let name = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(name)) };
    Some(name.to_string_lossy().into_owned())
}

exports! {
    fn __cudaRegisterFatBinary(binary: In<FatBinary>) -> Handle {
        let module = new_handle();
        if let Some(binary) = binary.get() {
            MODULES.lock().unwrap_or_else(PoisonError::into_inner).insert(module, binary);
        }
        module
    }

    fn __cudaRegisterFatBinaryEnd(_module: Handle) {}

    fn __cudaUnregisterFatBinary(module: Handle) {
        MODULES.lock().unwrap_or_else(PoisonError::into_inner).remove(&module);
    }

    fn __cudaRegisterFunction(module: Handle, function: usize, _device_function: usize, name: usize) {
        REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).push(Registered { function, name, module });
    }

    fn __cudaRegisterVar() {}

    fn __cudaRegisterManagedVar() {}

    fn __cudaInitModule(_module: Handle) -> c_char {
        1
    }

    fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> c_uint {
        CONFIGURATIONS.with_borrow_mut(|stack| stack.push(CallConfiguration { grid, block, shared, stream }));
        0
    }

    fn __cudaPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>) -> Status {
        end(CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(INVALID_VALUE).map(|configuration| {
            grid.set(configuration.grid);
            block.set(configuration.block);
            shared.set(configuration.shared);
            stream.set(configuration.stream);
        }))
    }

    fn __cudaGetKernel(kernel: Out<usize>, function: usize) -> Status {
        kernel.set(function);
        SUCCESS
    }

    fn cudaGetKernel(kernel: Out<usize>, function: usize) -> Status {
        kernel.set(function);
        SUCCESS
    }

    fn cudaGetFuncBySymbol(place: Out<usize>, function: usize) -> Status {
        place.set(function);
        SUCCESS
    }

    fn __cudaLaunchKernel(kernel: usize, grid: Dim3, block: Dim3, _arguments: *mut c_void, _shared: usize, stream: Handle) -> Status {
        launched(kernel, grid, block, stream)
    }

    fn __cudaLaunchKernel_ptsz(kernel: usize, grid: Dim3, block: Dim3, _arguments: *mut c_void, _shared: usize, stream: Handle) -> Status {
        launched(kernel, grid, block, stream)
    }

    fn cudaLaunchKernel(function: usize, grid: Dim3, block: Dim3, _arguments: *mut c_void, _shared: usize, stream: Handle) -> Status {
        launched(function, grid, block, stream)
    }

    fn cudaLaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, _arguments: *mut c_void, _shared: usize, stream: Handle) -> Status {
        launched(function, grid, block, stream)
    }

    fn cudaLaunchKernelExC(configuration: In<LaunchConfiguration>, function: usize, _arguments: *mut c_void) -> Status {
        configuration.get().map_or(INVALID_VALUE, |LaunchConfiguration { grid, block, stream, .. }| launched(function, grid, block, stream))
    }

    fn cudaFuncGetAttributes(place: Out<c_int>, function: usize) -> Status {
        let attributes = function_attributes(versions(function));
        let words = if cuda_major() >= 12 { attributes.len() } else { 14 };
        attributes.into_iter().take(words).enumerate().for_each(|(index, word)| place.set_at(index, word));
        SUCCESS
    }

    fn cudaFuncGetName(place: Out<usize>, function: usize) -> Status {
        end(address_of_name(function).ok_or(INVALID_VALUE).map(|name| place.set(name)))
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<c_int>, _function: usize, threads: c_int, shared: usize) -> Status {
        blocks.set(blocks_per_multiprocessor(threads, shared));
        SUCCESS
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<c_int>, _function: usize, threads: c_int, shared: usize, _flags: c_uint) -> Status {
        blocks.set(blocks_per_multiprocessor(threads, shared));
        SUCCESS
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, _function: usize, _blocks: c_int, _threads: c_int) -> Status {
        bytes.set(config().gpu.shared_per_block as usize);
        SUCCESS
    }

    fn cudaOccupancyMaxActiveClusters(clusters: Out<c_int>, _function: usize, _configuration: *const c_void) -> Status {
        clusters.set(16);
        SUCCESS
    }

    fn cudaOccupancyMaxPotentialClusterSize(size: Out<c_int>, _function: usize, _configuration: *const c_void) -> Status {
        size.set(8);
        SUCCESS
    }

    fn cudaLibraryGetKernel(kernel: Out<Handle>, _library: Handle, _name: *const c_char) -> Status {
        kernel.set(new_handle());
        SUCCESS
    }
}

/// `cudaFuncAttributes` since version 12, in words; 11 ends after the carve-out.
fn function_attributes((ptx, binary): (u32, u32)) -> [c_int; 36] {
    let gpu = &config().gpu;
    let mut words = [0; 36];
    // Before these are the sizes of shared, constant and local memory, behind them cluster sizes: all zero.
    words[6..13].copy_from_slice(&[
        1024, // threads of a block
        32,   // registers of a thread
        ptx.cast_signed(),
        binary.cast_signed(),
        0,
        gpu.shared_per_block.cast_signed(),
        -1, // carve-out: as the driver likes
    ]);
    words
}

#[cfg(test)]
mod tests;
