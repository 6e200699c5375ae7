//! The driver's functions as they are, found by name at run time.
//!
//! CUDA's and HIP's calls for memory, events and waits have the same shapes, codes and structures, so one table of
//! pointers serves both; only names and the way to make a device current differ.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

use super::Error;

/// What a call returns: 0 is success.
pub type Code = c_int;

/// Out of memory, in both interfaces.
pub const OUT_OF_MEMORY: Code = 2;

/// An event has not completed, in both interfaces.
pub const NOT_READY: Code = 600;

/// An event without timing (`CU_EVENT_DISABLE_TIMING`), which is cheaper.
pub const EVENT_DISABLE_TIMING: c_uint = 2;

/// A stream that waits for no other (`CU_STREAM_NON_BLOCKING`).
pub const NON_BLOCKING: c_uint = 1;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const READ_WRITE: c_int = 3;

/// `CUmemLocation`: a device by its ordinal.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE` is 1.
    pub kind: c_int,
    pub id: c_int,
}

/// `CUmemAllocationProp`: pinned memory of one device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED` is 1.
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: Location,
    pub win32: *mut c_void,
    /// Of these, the second says that network cards may use the memory (`gpuDirectRDMACapable`).
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccessDescription {
    pub location: Location,
    pub flags: c_int,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this thread may take and give back memory while another captures a graph.
pub const RELAXED: c_int = 2;

/// Which of two names a function goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// NVIDIA's driver interface.
    Cuda,
    /// AMD's runtime interface.
    Hip,
}

/// Declares a structure of function pointers and how it is filled: field, CUDA's name, HIP's name, type.
macro_rules! functions {
    ($(#[$attribute:meta])* $table:ident { $($field:ident: $cuda:literal, $hip:literal, fn($($argument:ty),*);)* }) => {
        $(#[$attribute])*
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl $table {
            fn load(library: &Library, flavour: Flavour) -> Result<Self, Error> {
                Ok($table {
                    $($field: {
                        let name = if flavour == Flavour::Cuda { $cuda } else { $hip };
                        // SAFETY: the type is the one that the vendor's header gives for this name.
                        *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> Code>(name) }
                            .map_err(not_loaded)?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// What every driver has.
    Basic {
        init: "cuInit", "hipInit", fn(c_uint);
        device_get: "cuDeviceGet", "hipDeviceGet", fn(*mut c_int, c_int);
        mem_get_info: "cuMemGetInfo_v2", "hipMemGetInfo", fn(*mut usize, *mut usize);
        mem_alloc: "cuMemAlloc_v2", "hipMalloc", fn(*mut u64, usize);
        mem_free: "cuMemFree_v2", "hipFree", fn(u64);
        event_create: "cuEventCreate", "hipEventCreateWithFlags", fn(*mut *mut c_void, c_uint);
        event_record: "cuEventRecord", "hipEventRecord", fn(*mut c_void, *mut c_void);
        event_query: "cuEventQuery", "hipEventQuery", fn(*mut c_void);
        event_synchronize: "cuEventSynchronize", "hipEventSynchronize", fn(*mut c_void);
        event_destroy: "cuEventDestroy_v2", "hipEventDestroy", fn(*mut c_void);
        stream_wait_event: "cuStreamWaitEvent", "hipStreamWaitEvent", fn(*mut c_void, *mut c_void, c_uint);
        synchronize: "cuCtxSynchronize", "hipDeviceSynchronize", fn();
        exchange_capture_mode: "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode",
            fn(*mut c_int);
    }
}

functions! {
    /// Virtual memory management, which old drivers lack.
    Virtual {
        granularity: "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity",
            fn(*mut usize, *const AllocationProperties, c_int);
        reserve: "cuMemAddressReserve", "hipMemAddressReserve", fn(*mut u64, usize, usize, u64, u64);
        release_range: "cuMemAddressFree", "hipMemAddressFree", fn(u64, usize);
        create: "cuMemCreate", "hipMemCreate", fn(*mut u64, usize, *const AllocationProperties, u64);
        release: "cuMemRelease", "hipMemRelease", fn(u64);
        map: "cuMemMap", "hipMemMap", fn(u64, usize, usize, u64, u64);
        unmap: "cuMemUnmap", "hipMemUnmap", fn(u64, usize);
        set_access: "cuMemSetAccess", "hipMemSetAccess", fn(u64, usize, *const AccessDescription, usize);
    }
}

functions! {
    /// Memory for other processes.
    Sharing {
        export: "cuMemExportToShareableHandle", "hipMemExportToShareableHandle", fn(*mut c_int, u64, c_int, u64);
    }
}

functions! {
    /// Page-locked memory of the host.
    HostMemory {
        alloc: "cuMemHostAlloc", "hipHostMalloc", fn(*mut u64, usize, c_uint);
        free: "cuMemFreeHost", "hipHostFree", fn(u64);
    }
}

functions! {
    /// Copies to and from the host. HIP's arenas, which are one allocation, make none.
    Copies {
        copy: "cuMemcpyAsync", "", fn(u64, u64, usize, *mut c_void);
        create_stream: "cuStreamCreate", "", fn(*mut *mut c_void, c_uint);
        destroy_stream: "cuStreamDestroy_v2", "", fn(*mut c_void);
    }
}

functions! {
    /// How a CUDA device is made current: by its primary context, which PyTorch uses too.
    Contexts {
        retain: "cuDevicePrimaryCtxRetain", "", fn(*mut *mut c_void, c_int);
        release: "cuDevicePrimaryCtxRelease_v2", "", fn(c_int);
        push: "cuCtxPushCurrent_v2", "", fn(*mut c_void);
        pop: "cuCtxPopCurrent_v2", "", fn(*mut *mut c_void);
        attribute: "cuDeviceGetAttribute", "", fn(*mut c_int, c_int, c_int);
    }
}

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
pub const MAPS_PAGES: c_int = 102;

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
pub const EXPORTS_PAGES: c_int = 103;

/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
pub const RDMA_OF_PAGES: c_int = 110;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: memory of which other processes may get a descriptor.
pub const DESCRIPTOR: c_int = 1;

functions! {
    /// How a HIP device is made current.
    Current {
        get: "", "hipGetDevice", fn(*mut c_int);
        set: "", "hipSetDevice", fn(c_int);
    }
}

/// How a device is made current.
pub enum Binding {
    /// By pushing a context.
    Contexts(Contexts),
    /// By setting the thread's device.
    Current(Current),
}

/// The functions of a loaded CUDA or HIP driver, in groups; a group that the driver lacks is none.
pub struct Driver {
    pub basic: Basic,
    pub virtual_memory: Option<Virtual>,
    pub sharing: Option<Sharing>,
    pub host_memory: Option<HostMemory>,
    pub copies: Option<Copies>,
    /// The stand-in's `stalloc_dryrun_keep`.
    pub keep: Option<unsafe extern "C" fn(u64)>,
    pub binding: Binding,
    /// It is the stand-in of a dry run, which takes no time as a driver does.
    pub is_stand_in: bool,
    /// The stand-in's clock: of 0 the host's time, nanoseconds.
    pub clock: Option<unsafe extern "C" fn(std::ffi::c_int) -> u64>,
    error_string: ErrorString,
}

enum ErrorString {
    Cuda(unsafe extern "C" fn(Code, *mut *const c_char) -> Code),
    Hip(unsafe extern "C" fn(Code) -> *const c_char),
}

/// Why a library or a function of it could not be loaded, in the loader's own words, which name it.
fn not_loaded(error: libloading::Error) -> Error {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    Error::Driver { call: "loading the driver", message: cause.unwrap_or_else(|| error.to_string()) }
}

impl Driver {
    /// Loads a driver's library, for as long as the process lives: a driver leaves work behind that its threads do when
    /// they end, so its code must still be there then.
    pub fn load(path: &std::ffi::OsStr, flavour: Flavour) -> Result<Self, Error> {
        // SAFETY: loading a GPU driver runs its initialisers, which its vendor made for that.
        let library = ManuallyDrop::new(unsafe { Library::new(path) }.map_err(not_loaded)?);
        let error_string = match flavour {
            // SAFETY: the type is the one that the vendor's header gives for this name.
            Flavour::Cuda => ErrorString::Cuda(*unsafe { library.get(c"cuGetErrorString") }.map_err(not_loaded)?),
            // SAFETY: as above.
            Flavour::Hip => ErrorString::Hip(*unsafe { library.get(c"hipGetErrorString") }.map_err(not_loaded)?),
        };
        Ok(Driver {
            basic: Basic::load(&library, flavour)?,
            virtual_memory: Virtual::load(&library, flavour).ok(),
            sharing: Sharing::load(&library, flavour).ok(),
            host_memory: HostMemory::load(&library, flavour).ok(),
            copies: Copies::load(&library, flavour).ok(),
            // SAFETY: the type is the one that the stand-in has for this name.
            keep: unsafe { library.get(c"stalloc_dryrun_keep") }.ok().map(|keep| *keep),
            binding: match flavour {
                Flavour::Cuda => Binding::Contexts(Contexts::load(&library, flavour)?),
                Flavour::Hip => Binding::Current(Current::load(&library, flavour)?),
            },
            // SAFETY: only whether there is such a function is asked.
            is_stand_in: unsafe { library.get::<unsafe extern "C" fn()>(c"stalloc_dryrun_block") }.is_ok(),
            // SAFETY: the stand-in declares the function so.
            clock: unsafe { library.get(c"stalloc_dryrun_clock") }.map(|clock| *clock).ok(),
            error_string,
        })
    }

    /// What a code means, in the driver's words.
    pub fn message(&self, code: Code) -> String {
        let mut text = std::ptr::null();
        match self.error_string {
            ErrorString::Cuda(function) => {
                // SAFETY: `text` is a place for the pointer; an unknown code leaves or makes it null.
                unsafe { function(code, &mut text) };
            }
            // SAFETY: it takes any code.
            ErrorString::Hip(function) => text = unsafe { function(code) },
        }
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: drivers answer with strings that end in 0 and live as long as they do.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        format!("{} (error {code})", text.to_string_lossy())
    }
}
