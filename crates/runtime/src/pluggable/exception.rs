//! Raises PyTorch's own exceptions from Rust, where no C++ was compiled.
//!
//! `CUDAPluggableAllocator` does not check what an allocator returns, so a failure must leave it as the C++ exception
//! that PyTorch turns into `torch.OutOfMemoryError` or `RuntimeError`. Constructors and types are exported by the
//! libraries that the process has loaded; this module looks them up, builds the exception in place and throws it.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::transmute;
use std::ptr;

use crate::messages::say;

/// Why a request was refused, in the words of the exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `c10::OutOfMemoryError`.
    OutOfMemory(String),
    /// `c10::Error`.
    Other(String),
}

/// `c10::SourceLocation`, passed by value.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

type MakeString = unsafe extern "C-unwind" fn(*mut [usize; 4], *const c_char, *const u8);
type MakeError = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut [usize; 4]);
type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, Destructor) -> !;
type Destructor = unsafe extern "C" fn(*mut c_void);

/// More than any version's exception takes; what is left over is never looked at.
const EXCEPTION_BYTES: usize = 4096;

/// Offset of the first virtual function in a vtable of the Itanium C++ ABI.
const FIRST_VIRTUAL: usize = 2 * size_of::<usize>();

/// The constructors of `std::string` and of `c10::Error`: of builds with C++11's string, and of those before 2.6 with the older one,
/// a pointer.
const BUILDS: [[&CStr; 2]; 2] = [
    [
        c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
        c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    ],
    [c"_ZNSsC1EPKcRKSaIcE", c"_ZN3c105ErrorC1ENS_14SourceLocationESs"],
];

/// PyTorch's libraries, which Python loads for nobody else to see; what they depend on, `libc10.so` above all, is found
/// through them. Older versions have the exception's type in the first ones alone.
const LIBRARIES: [&CStr; 3] = [c"libc10_cuda.so", c"libc10_hip.so", c"libc10.so"];

/// The constructors, and the other names, from the first library that has them all.
fn find(names: [&CStr; 4]) -> Option<([*mut c_void; 2], [*mut c_void; 4])> {
    LIBRARIES.into_iter().find_map(|library| {
        // SAFETY: the name ends in NUL; nothing is loaded, so no code runs.
        let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        // SAFETY: the handle is dlopen's, and `name` ends in NUL.
        let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        let all = |found: &[*mut c_void]| found.iter().all(|symbol| !symbol.is_null());
        let found = (!library.is_null()).then(|| names.map(symbol)).filter(|found| all(found))?;
        Some((BUILDS.into_iter().map(|build| build.map(symbol)).find(|build| all(build))?, found))
    })
}

/// Calls the exception's own destructor, the first of its virtual functions.
unsafe extern "C" fn destroy(exception: *mut c_void) {
    // SAFETY: the runtime calls this with the object that `throw` built, whose first word is its vtable.
    unsafe { (**exception.cast::<*const Destructor>())(exception) }
}

/// Throws PyTorch's exception. Where PyTorch's library is not loaded, the process is ended with the message.
///
/// # Safety
/// Only C++ frames that expect exceptions, and Rust frames of the "C-unwind" ABI without anything left to drop, may lie
/// between here and PyTorch.
pub unsafe fn throw(refusal: Refusal) -> ! {
    let (message, type_info, vtable) = match refusal {
        Refusal::OutOfMemory(text) => (text, c"_ZTIN3c1016OutOfMemoryErrorE", c"_ZTVN3c1016OutOfMemoryErrorE"),
        Refusal::Other(text) => (text, c"_ZTIN3c105ErrorE", c"_ZTVN3c105ErrorE"),
    };
    let names = [c"__cxa_allocate_exception", c"__cxa_throw", type_info, vtable];
    let Some(([make_string, make_error], [allocate, throw, type_info, vtable])) = find(names) else {
        say(&message);
        std::process::abort();
    };
    let place = SourceLocation { function: c"malloc".as_ptr(), file: c"stalloc".as_ptr(), line: 0 };
    let mut text = [0; 4];
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the mangled names and the C++ ABI fix these signatures; `text` and the exception's storage are large enough for what
    // is built in them. Both classes have the same members: the object becomes one of the other by its vtable. The C++ string's
    // buffer is left to the exception or leaked: some bytes, once per failure.
    unsafe {
        transmute::<*mut c_void, MakeString>(make_string)(&mut text, message.as_ptr(), ptr::from_ref(&0));
        drop(message);
        let exception = transmute::<*mut c_void, Allocate>(allocate)(EXCEPTION_BYTES);
        transmute::<*mut c_void, MakeError>(make_error)(exception, place, &mut text);
        *exception.cast::<*mut c_void>() = vtable.byte_add(FIRST_VIRTUAL);
        transmute::<*mut c_void, Throw>(throw)(exception, type_info, destroy)
    }
}
