//! A driver for the conformance tests of the GPU backends: CUDA's and HIP's entry points over [`Counting`].
//!
//! It is strict where a real driver is: calls need a current device, events and memory handles must be alive. What is
//! left over when all is done is asked by `standin_left_over`.
#![allow(clippy::missing_safety_doc, clippy::unwrap_used, clippy::undocumented_unsafe_blocks, missing_docs)]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use stalloc_device::{Counting, Device, Error};

const INVALID: c_int = 1;
/// The ordinal of the only other device, which can reach device 0.
const PEER: c_int = 1;
const NO_CONTEXT: c_int = 201;
const NOT_PERMITTED: c_int = 800;
const CAPACITY: u64 = 64 << 20;

struct State {
    device: Counting,
    /// Memory handles and their sizes.
    handles: HashMap<u64, usize>,
    /// Those of memory that was created for other processes too.
    exportable: HashSet<u64>,
    /// The handle of each mapping's memory.
    mapped: HashMap<u64, u64>,
    events: HashMap<usize, ()>,
    /// Devices that may use a mapping, by its first address.
    access: HashMap<u64, HashSet<c_int>>,
    next: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let device = Counting::new(CAPACITY);
    Mutex::new(State {
        device,
        handles: HashMap::new(),
        exportable: HashSet::new(),
        mapped: HashMap::new(),
        events: HashMap::new(),
        access: HashMap::new(),
        next: 1,
    })
});

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<c_int> = const { Cell::new(0) };
}

fn with(body: impl FnOnce(&mut State) -> Result<(), c_int>) -> c_int {
    if CURRENT.get() == 0 {
        return NO_CONTEXT;
    }
    body(&mut STATE.lock().unwrap()).err().unwrap_or(0)
}

fn code(error: Error) -> c_int {
    if matches!(error, Error::OutOfMemory { .. }) { 2 } else { INVALID }
}

/// Defines a function under CUDA's and under HIP's name.
macro_rules! both {
    ($($cuda:ident, $hip:ident($($argument:ident: $type:ty),*) $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $cuda($($argument: $type),*) -> c_int { $body }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $hip($($argument: $type),*) -> c_int { $body }
        )*
    };
}

both! {
    cuInit, hipInit(flags: c_uint) if flags == 0 { 0 } else { INVALID };
    cuDeviceGet, hipDeviceGet(device: *mut c_int, ordinal: c_int) if ordinal == 0 || ordinal == PEER {
        unsafe { *device = ordinal };
        0
    } else {
        101
    };
    cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        let wanted = unsafe { *mode };
        if (0..=2).contains(&wanted) {
            unsafe { *mode = CAPTURE_MODE.replace(wanted) };
            0
        } else {
            INVALID
        }
    };
    cuMemGetInfo_v2, hipMemGetInfo(free: *mut usize, total: *mut usize) with(|state| {
        let info = state.device.memory_info().map_err(code)?;
        unsafe { (*free, *total) = (info.free as usize, info.total as usize) };
        Ok(())
    });
    cuMemAlloc_v2, hipMalloc(address: *mut u64, bytes: usize) with(|state| {
        unsafe { *address = state.device.alloc(bytes as u64).map_err(code)? };
        Ok(())
    });
    cuMemFree_v2, hipFree(address: u64) with(|state| state.device.free(address).map_err(code));
    cuMemAddressReserve, hipMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _at: u64, _flags: u64)
    with(|state| {
        unsafe { *address = state.device.reserve(bytes as u64).map_err(code)? };
        Ok(())
    });
    cuMemAddressFree, hipMemAddressFree(address: u64, bytes: usize)
    with(|state| state.device.release(address, bytes as u64).map_err(code));
    cuMemCreate, hipMemCreate(handle: *mut u64, bytes: usize, properties: *const [c_int; 8], _flags: u64) with(|state| {
        // Pinned memory of device 0.
        let [kind, handle_types, location, device, ..] = unsafe { *properties };
        if (kind, location, device) != (1, 1, 0) {
            return Err(INVALID);
        }
        if handle_types != 0 && (handle_types != 1 || KEEPS_ALL.load(Ordering::SeqCst)) {
            return Err(NOT_PERMITTED);
        }
        if state.device.memory_info().map_err(code)?.free < bytes as u64 {
            return Err(2);
        }
        state.next += 1;
        if handle_types != 0 {
            state.exportable.insert(state.next);
        }
        state.handles.insert(state.next, bytes);
        unsafe { *handle = state.next };
        Ok(())
    });
    cuMemRelease, hipMemRelease(handle: u64) with(|state| state.handles.remove(&handle).map(drop).ok_or(INVALID));
    cuMemExportToShareableHandle, hipMemExportToShareableHandle(
        descriptor: *mut c_int, handle: u64, kind: c_int, flags: u64
    ) with(|state| {
        if (kind, flags) != (1, 0) || !state.handles.contains_key(&handle) || !state.exportable.contains(&handle) {
            return Err(INVALID);
        }
        unsafe { *descriptor = File::open("/dev/null").map_err(|_| INVALID)?.into_raw_fd() };
        Ok(())
    });
    cuMemMap, hipMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) with(|state| {
        if offset != 0 || state.handles.get(&handle) != Some(&bytes) {
            return Err(INVALID);
        }
        let other = state.mapped.iter().find(|(_, other)| **other == handle).map(|(&other, _)| other);
        match other {
            Some(other) => state.device.alias(other, address, bytes as u64),
            None => state.device.map(address, bytes as u64),
        }
        .map_err(code)?;
        state.mapped.insert(address, handle);
        Ok(())
    });
    cuMemUnmap, hipMemUnmap(address: u64, bytes: usize)
    with(|state| {
        state.device.unmap(address, bytes as u64).map_err(code)?;
        let range = address..address + bytes as u64;
        state.access.retain(|start, _| !range.contains(start));
        state.mapped.retain(|start, _| !range.contains(start));
        Ok(())
    });
    cuMemGetAllocationGranularity, hipMemGetAllocationGranularity(
        bytes: *mut usize, _properties: *const c_void, _option: c_int
    ) with(|_| {
        unsafe { *bytes = 2 << 20 };
        Ok(())
    });
    cuEventCreate, hipEventCreateWithFlags(event: *mut usize, flags: c_uint) with(|state| {
        if flags != 2 {
            return Err(INVALID);
        }
        state.next += 1;
        state.events.insert(state.next as usize, ());
        unsafe { *event = state.next as usize };
        Ok(())
    });
    cuEventRecord, hipEventRecord(event: usize, _stream: usize) with(|state| alive(state, event));
    cuEventQuery, hipEventQuery(event: usize) with(|state| alive(state, event));
    cuEventSynchronize, hipEventSynchronize(event: usize) with(|state| alive(state, event));
    cuEventDestroy_v2, hipEventDestroy(event: usize) with(|state| state.events.remove(&event).ok_or(INVALID));
    cuStreamWaitEvent, hipStreamWaitEvent(_stream: usize, event: usize, _flags: c_uint)
    with(|state| alive(state, event));
    cuCtxSynchronize, hipDeviceSynchronize() with(|_| Ok(()));
}

/// Opens a range that is made up of whole mappings, no more than `most`.
unsafe fn set_access(address: u64, bytes: usize, access: *const [c_int; 3], count: usize, most: usize) -> c_int {
    with(|state| {
        let range = address..address + bytes as u64;
        let inside: Vec<_> = state.mapped.iter().filter(|(start, _)| range.contains(start)).collect();
        let covered: usize = inside.iter().map(|(_, handle)| state.handles[handle]).sum();
        if covered != bytes || inside.len() > most {
            return Err(INVALID);
        }
        for &[location, device, flags] in unsafe { std::slice::from_raw_parts(access, count) } {
            if (location, flags) != (1, 3) || !(0..=PEER).contains(&device) {
                return Err(INVALID);
            }
            for &(&start, _) in &inside {
                state.access.entry(start).or_default().insert(device);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(address: u64, bytes: usize, access: *const [c_int; 3], count: usize) -> c_int {
    unsafe { set_access(address, bytes, access, count, usize::MAX) }
}

/// Its documentation does not say that a range may be more than one mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemSetAccess(address: u64, bytes: usize, access: *const [c_int; 3], count: usize) -> c_int {
    unsafe { set_access(address, bytes, access, count, 1) }
}

fn alive(state: &State, event: usize) -> Result<(), c_int> {
    state.events.get(&event).copied().ok_or(INVALID)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> c_int {
    unsafe { *context = 77 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    0
}

/// Its attributes are that it maps pages, and that other processes get descriptors of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> c_int {
    unsafe { *value = c_int::from([102, 103].contains(&attribute)) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    CURRENT.set(CURRENT.get() + 1);
    if context == 77 { 0 } else { INVALID }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    CURRENT.set(CURRENT.get() - 1);
    unsafe { *context = 77 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> c_int {
    unsafe { *device = CURRENT.get() - 1 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipSetDevice(device: c_int) -> c_int {
    CURRENT.set(device + 1);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    let known = code == NO_CONTEXT;
    unsafe { *text = if known { c"no context is current".as_ptr() } else { std::ptr::null() } };
    if known { 0 } else { INVALID }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetErrorString(_code: c_int) -> *const c_char {
    c"some error".as_ptr()
}

/// From now on no memory is created for other processes, as in some containers.
static KEEPS_ALL: AtomicBool = AtomicBool::new(false);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_keeps_all() {
    KEEPS_ALL.store(true, Ordering::SeqCst);
}

/// How many devices may use the mapping that begins at an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_may_use(address: u64) -> u64 {
    STATE.lock().unwrap().access.get(&address).map_or(0, HashSet::len) as u64
}

/// Bytes taken, memory handles and events that are still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_left_over() -> u64 {
    let state = STATE.lock().unwrap();
    state.device.used() + state.handles.len() as u64 + state.events.len() as u64
}
