//! PyTorch's allocator, asked to report every event.
//!
//! `CUDAAllocator::attachAllocatorTraceTracker(std::function<void(const TraceEntry&)>)` is a virtual C++ method with
//! no Python entry. Compiling a caller would take a compiler and PyTorch's headers on every user's machine. It can be
//! called without: `CUDAPluggableAllocator` overrides the method and exports both its vtable and the override, so the
//! place of the override in that vtable is the method's slot in every `CUDAAllocator`, whatever the version. The rest
//! is the Itanium C++ ABI (Linux on x86-64 and aarch64) and libstdc++'s `std::function`, neither of which ever changes.
//! The start of `TraceEntry` has been the same since PyTorch 2.1; the recorder compares the first events with PyTorch's
//! own history and drops the tracker if they differ.

use std::ffi::c_void;
use std::path::Path;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY};
use stalloc_runtime::contained;
use stalloc_trace::{RawEvent, SegmentAction, StackId};

/// Loads nothing: finds a library that the process has loaded already. The value is the same in glibc and musl.
const RTLD_NOLOAD: i32 = 4;
/// A vtable with the method has fewer slots than this.
const MOST_SLOTS: usize = 256;
/// Offset to top and type information come before the first slot.
const SLOTS_BEFORE_FIRST: usize = 2;

const ALLOCATOR: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
const PLUGGABLE_VTABLE: &str = "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";
/// The override's name, by the namespace that `TraceEntry` lives in: today's, and that of PyTorch before 2.9.
const OVERRIDES: [&str; 2] = [
    "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator27attachAllocatorTraceTracker\
     ESt8functionIFvRKN3c1022CachingDeviceAllocator10TraceEntryEEE",
    "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator27attachAllocatorTraceTracker\
     ESt8functionIFvRKN3c104cuda20CUDACachingAllocator10TraceEntryEEE",
];

/// What to call at each event, with its device.
pub type EventCallback = fn(device: u32, event: RawEvent);

static CALLBACK: OnceLock<EventCallback> = OnceLock::new();

/// The fields of `c10::CachingDeviceAllocator::TraceEntry` that are read.
#[repr(C)]
struct TraceEntry {
    action: i32,
    device: i8,
    /// Of an out-of-memory event: the device's free bytes.
    address: usize,
    /// A `std::shared_ptr`, not looked at.
    context: [usize; 2],
    stream: usize,
    size: usize,
}

/// libstdc++'s `std::function`.
#[repr(C)]
struct StdFunction {
    functor: [usize; 2],
    manager: unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], i32) -> bool,
    invoker: unsafe extern "C" fn(*const [usize; 2], *const TraceEntry),
}

/// Copies, moves and destroys a function object that has no state: nothing to do.
unsafe extern "C" fn manage(_to: *mut [usize; 2], _from: *const [usize; 2], _operation: i32) -> bool {
    false
}

unsafe extern "C" fn on_entry(_functor: *const [usize; 2], entry: *const TraceEntry) {
    // SAFETY: PyTorch passes a reference to an entry that lives until we return.
    let entry = unsafe { &*entry };
    let tell = || {
        let device = u32::try_from(entry.device);
        if let (Some(event), Ok(device), Some(callback)) = (translate(entry), device, CALLBACK.get()) {
            callback(device, event);
        }
    };
    contained("on_entry", tell, || ());
}

fn translate(entry: &TraceEntry) -> Option<RawEvent> {
    let (address, size, stream) = (entry.address as u64, entry.size as u64, entry.stream as u64);
    let segment = |action| RawEvent::Segment { action, address, size, stream };
    Some(match entry.action {
        0 => RawEvent::Alloc { address, size, stream, stack: StackId::NONE },
        1 => RawEvent::FreeRequested { address, size, stream },
        2 => RawEvent::FreeCompleted { address, size, stream },
        3 => segment(SegmentAction::Alloc),
        4 => segment(SegmentAction::Free),
        5 => segment(SegmentAction::Map),
        6 => segment(SegmentAction::Unmap),
        8 => RawEvent::OutOfMemory { size, device_free: address, stack: StackId::NONE },
        // 7 is a snapshot being taken, usually by the recorder itself.
        _ => return None,
    })
}

/// Has PyTorch call `callback` at each event of its native allocator, under that allocator's lock, for as long as the
/// process lives. `libraries` is the folder of libtorch_cuda.so and libc10_cuda.so.
///
/// # Errors
/// In a sentence, if this PyTorch does not have what is needed.
///
/// # Safety
/// PyTorch's CUDA side must have been initialised with its native allocator; others throw.
pub unsafe fn attach(libraries: &Path, callback: EventCallback) -> Result<(), String> {
    if CALLBACK.set(callback).is_err() {
        return Err("a tracker is attached already".to_owned());
    }
    let torch = open(&libraries.join("libtorch_cuda.so"))?;
    let c10 = open(&libraries.join("libc10_cuda.so"))?;
    let vtable = symbol(&torch, PLUGGABLE_VTABLE)?.cast::<*const c_void>();
    let method = OVERRIDES.iter().find_map(|name| symbol(&torch, name).ok());
    let method = method.ok_or("this PyTorch has no attachAllocatorTraceTracker")?;
    // SAFETY: the vtable holds its class's override of the method, so the search ends within the vtable.
    let slot = (0..MOST_SLOTS).find(|&slot| unsafe { *vtable.add(SLOTS_BEFORE_FIRST + slot) } == method);
    let slot = slot.ok_or("this PyTorch's allocator has an unknown layout")?;
    let allocator = symbol(&c10, ALLOCATOR)?.cast::<*const *const *const c_void>();
    // SAFETY: the symbol is a `std::atomic<CUDAAllocator*>`, a plain pointer in memory, set when libc10_cuda was loaded.
    let allocator = unsafe { allocator.read_volatile() };
    if allocator.is_null() {
        return Err("PyTorch has no CUDA allocator yet".to_owned());
    }
    let mut function = StdFunction { functor: [0; 2], manager: manage, invoker: on_entry };
    // SAFETY: a C++ object starts with the pointer to its vtable's first slot; `slot` is this method's in every
    // CUDAAllocator. A `std::function` parameter is passed by address and stays the caller's to destroy: nothing to do.
    unsafe {
        let method = *(*allocator).add(slot);
        let method: unsafe extern "C" fn(*const c_void, *mut StdFunction) = std::mem::transmute(method);
        method(allocator.cast(), &raw mut function);
    }
    Ok(())
}

/// A library that the process has loaded.
pub fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: nothing is loaded, so no initialiser runs.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_NOLOAD) }.map_err(|error| error.to_string())
}

/// The address of a symbol.
pub fn symbol(library: &Library, name: &str) -> Result<*const c_void, String> {
    // SAFETY: only the symbol's address is taken.
    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) }.map_err(|error| error.to_string())?;
    Ok(symbol.as_raw_ptr().cast_const().cast())
}
