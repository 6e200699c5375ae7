//! Raises PyTorch's own exceptions from Rust, where no C++ was compiled.
//!
//! `CUDAPluggableAllocator` does not check what an allocator returns, so a failure must leave it as the C++ exception
//! that PyTorch turns into `torch.OutOfMemoryError` or `RuntimeError`. Constructors and types are exported by the
//! libraries that the process has loaded; this module looks them up, builds the exception in place and throws it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;

use crate::messages::say;

/// Which exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionKind {
    /// `c10::OutOfMemoryError`.
    OutOfMemory,
    /// `c10::Error`.
    Other,
}

/// `c10::SourceLocation`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// `std::string` of libstdc++'s C++11 ABI.
#[repr(C)]
struct CxxString {
    bytes: *const u8,
    length: usize,
    /// Capacity, or the bytes themselves when they are short.
    storage: [usize; 2],
}

type Destructor = unsafe extern "C" fn(*mut c_void);
type MakeString = unsafe extern "C-unwind" fn(*mut CxxString, *const c_char, *const u8);
type Construct = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut CxxString);
type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, Destructor) -> !;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_LAZY | RTLD_NOLOAD`: find the library only if the process has loaded it.
const LOADED: c_int = 0x1 | 0x4;

/// More than any version's exception takes; what is left over is never looked at.
const EXCEPTION_BYTES: usize = 4096;

/// Offset of the first virtual function in a vtable of the Itanium C++ ABI.
const FIRST_VIRTUAL: usize = 2 * size_of::<usize>();

/// Names under which a build of PyTorch exports its constructors, which depend on its `std::string`.
struct SymbolNames {
    make_string: &'static CStr,
    error: &'static CStr,
    out_of_memory: &'static CStr,
}

const BUILDS: [SymbolNames; 2] = [
    SymbolNames {
        make_string: c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
        error: c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        out_of_memory:
            c"_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    },
    // Before 2.6 with the string of before C++11: a pointer, for which there is room in ours.
    SymbolNames {
        make_string: c"_ZNSsC1EPKcRKSaIcE",
        error: c"_ZN3c105ErrorC1ENS_14SourceLocationESs",
        out_of_memory: c"_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationESs",
    },
];

/// PyTorch's libraries, which Python loads for nobody else to see; what they depend on, `libc10.so` above all, is found
/// through them. Older versions have the exception's type in the first ones alone.
const LIBRARIES: [&CStr; 3] = [c"libc10_cuda.so", c"libc10_hip.so", c"libc10.so"];

/// A library of the process.
struct LoadedLibrary(*mut c_void);

impl LoadedLibrary {
    fn find(name: &CStr) -> Option<LoadedLibrary> {
        // SAFETY: the name ends in NUL; nothing is loaded, so no code runs.
        let handle = unsafe { dlopen(name.as_ptr(), LOADED) };
        (!handle.is_null()).then_some(LoadedLibrary(handle))
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is dlopen's, and `name` ends in NUL.
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// What an exception is made from.
struct Parts {
    allocate: Allocate,
    throw: Throw,
    make_string: MakeString,
    construct: Construct,
    type_info: *mut c_void,
    vtable: *mut c_void,
}

impl Parts {
    fn find(kind: ExceptionKind) -> Option<Parts> {
        let mut libraries = LIBRARIES.into_iter().filter_map(LoadedLibrary::find);
        libraries.find_map(|library| BUILDS.iter().find_map(|names| Parts::in_library(&library, names, kind)))
    }

    fn in_library(library: &LoadedLibrary, names: &SymbolNames, kind: ExceptionKind) -> Option<Parts> {
        let find = |name: &CStr| library.symbol(name);
        let (construct, type_info, vtable) = match kind {
            ExceptionKind::OutOfMemory => (
                // Where the class inherits its base's constructor, the object becomes ours by its vtable.
                find(names.out_of_memory).or_else(|| find(names.error))?,
                find(c"_ZTIN3c1016OutOfMemoryErrorE")?,
                find(c"_ZTVN3c1016OutOfMemoryErrorE")?,
            ),
            ExceptionKind::Other => (find(names.error)?, find(c"_ZTIN3c105ErrorE")?, find(c"_ZTVN3c105ErrorE")?),
        };
        let (make_string, allocate) = (find(names.make_string)?, find(c"__cxa_allocate_exception")?);
        let throw = find(c"__cxa_throw")?;
        // SAFETY: the mangled names and the C++ ABI fix these signatures.
        unsafe {
            Some(Parts {
                allocate: transmute::<*mut c_void, Allocate>(allocate),
                throw: transmute::<*mut c_void, Throw>(throw),
                make_string: transmute::<*mut c_void, MakeString>(make_string),
                construct: transmute::<*mut c_void, Construct>(construct),
                type_info,
                vtable,
            })
        }
    }
}

/// Calls the exception's own destructor, the first of its virtual functions.
unsafe extern "C" fn destroy(exception: *mut c_void) {
    // SAFETY: the runtime calls this with the object that `throw` built, whose first word is its vtable.
    unsafe {
        let vtable = *exception.cast::<*const Destructor>();
        (*vtable)(exception);
    }
}

/// Throws an exception with a message. Where PyTorch's library is not loaded, the process is ended with the message.
///
/// # Safety
/// Only C++ frames that expect exceptions, and Rust frames of the "C-unwind" ABI without anything left to drop, may lie
/// between here and PyTorch.
pub unsafe fn throw(kind: ExceptionKind, message: String) -> ! {
    let Some(parts) = Parts::find(kind) else {
        say(&message);
        std::process::abort();
    };
    let mut text = CxxString { bytes: ptr::null(), length: 0, storage: [0; 2] };
    let place = SourceLocation { function: c"malloc".as_ptr(), file: c"stalloc".as_ptr(), line: 0 };
    let stateless_allocator = 0u8;
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the functions are what their names say; `text` and the exception's storage are large enough for what is
    // built in them. The C++ string's buffer is left to the exception or leaked: some bytes, once per failure.
    unsafe {
        (parts.make_string)(&mut text, message.as_ptr(), &stateless_allocator);
        drop(message);
        let exception = (parts.allocate)(EXCEPTION_BYTES);
        (parts.construct)(exception, place, &mut text);
        *exception.cast::<*mut c_void>() = parts.vtable.byte_add(FIRST_VIRTUAL);
        (parts.throw)(exception, parts.type_info, destroy)
    }
}
