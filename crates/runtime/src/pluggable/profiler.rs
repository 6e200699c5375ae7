//! Memory events for PyTorch's profiler (`profile_memory=True`), which only C++ can be told of.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use stalloc_device::Address;

use super::exception::Library;

/// `c10::Device`: the type of device and its number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

type IsProfiling = unsafe extern "C" fn() -> bool;
type Report = unsafe extern "C" fn(*mut c_void, i64, usize, usize, Device);

struct Profiler {
    is_profiling: IsProfiling,
    report: Report,
}

static PROFILER: OnceLock<Option<Profiler>> = OnceLock::new();

/// Looks for PyTorch's profiler in this process; without it nobody is told.
pub fn find() {
    PROFILER.get_or_init(|| {
        let library = Library::find(c"libc10.so")?;
        let is_profiling = library.symbol(c"_ZN3c1022memoryProfilingEnabledEv")?;
        let report = library.symbol(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")?;
        // SAFETY: the mangled names fix these signatures; `c10::Device` is two bytes that are passed like ours.
        unsafe {
            Some(Profiler {
                is_profiling: transmute::<*mut c_void, IsProfiling>(is_profiling),
                report: transmute::<*mut c_void, Report>(report),
            })
        }
    });
}

/// Whether this thread's memory is looked at.
#[inline]
pub fn is_listening() -> bool {
    // SAFETY: the function reads the thread's state, and may be called at any time.
    PROFILER.get().and_then(Option::as_ref).is_some_and(|profiler| unsafe { (profiler.is_profiling)() })
}

/// Tells that `bytes` came (or went, below 0) at an address, so that `allocated` and `reserved` bytes are in use and held.
pub fn report(device: i32, address: Address, bytes: i64, allocated: u64, reserved: u64) {
    let (Some(Some(profiler)), Ok(index)) = (PROFILER.get(), i8::try_from(device)) else { return };
    let device = Device { kind: CUDA, index };
    let pointer = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the address is only written down.
    unsafe { (profiler.report)(pointer, bytes, allocated as usize, reserved as usize, device) };
}
