//! The real CUDA libraries, which are loaded along with the stand-in because programs are linked to them.
//!
//! Nothing of them runs except the functions that only tell a version: frameworks compare it with the one that they were built for.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem, ptr,
};

/// Major and minor version of the CUDA runtime that the program is linked to, if it is loaded yet.
pub fn runtime_version() -> Option<(u32, u32)> {
    let path = path("libcudart")?;
    let text = path.to_str().ok()?;
    let (_, version) = text.rsplit_once(".so.")?;
    let major = version.split('.').next()?.parse().ok()?;
    // Before version 12 the question starts the whole runtime; the last of those versions is the answer.
    let minor = match major {
        ..12 => 8,
        _ => reported("libcudart", c"cudaRuntimeGetVersion").map_or(0, |version| version % 1000 / 10),
    };
    Some((major, minor))
}

/// What a function that takes a place for an `int` says its library's version is.
pub fn reported(library: &str, function: &CStr) -> Option<u32> {
    let symbol = symbol(library, function)?;
    // SAFETY: callers name functions that are declared `status function(int *)` in every version.
    let function: extern "C" fn(&mut c_int) -> c_int = unsafe { mem::transmute(symbol) };
    let mut version = 0;
    (function(&mut version) == 0).then_some(u32::try_from(version).ok()?)
}

/// What a function without parameters says its library's version is.
pub fn returned(library: &str, function: &CStr) -> Option<usize> {
    let symbol = symbol(library, function)?;
    // SAFETY: callers name functions that are declared `size_t function(void)` in every version.
    let function: extern "C" fn() -> usize = unsafe { mem::transmute(symbol) };
    Some(function())
}

/// The real function of a loaded library.
fn symbol(library: &str, function: &CStr) -> Option<*mut c_void> {
    let path = path(library)?;
    // SAFETY: the strings end with zero; the library stays loaded, as RTLD_NOLOAD only finds what is, so the symbol stays valid.
    let symbol = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        libc::dlsym(handle, function.as_ptr())
    };
    (!symbol.is_null()).then_some(symbol)
}

/// The path of the loaded library whose file name begins with `prefix` (`libcudart.so.13`, `libcudart-e409450e.so.11.0`).
pub fn path(prefix: &str) -> Option<CString> {
    struct PrefixSearch<'a> {
        prefix: &'a str,
        found: Option<CString>,
    }
    extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid `info`; `search` is the one below, which outlives the walk.
        let (name, search) = unsafe {
            let name: *const c_char = (*info).dlpi_name;
            if name.is_null() {
                return 0;
            }
            (CStr::from_ptr(name), &mut *search.cast::<PrefixSearch>())
        };
        let file = name.to_str().unwrap_or("").rsplit('/').next().unwrap_or("");
        let rest = file.strip_prefix(search.prefix).unwrap_or("");
        if rest.starts_with(['.', '-']) {
            search.found = Some(name.to_owned());
            return 1;
        }
        0
    }
    let mut search = PrefixSearch { prefix, found: None };
    // SAFETY: `look` keeps to the signature, and only uses `search` during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut search).cast()) };
    search.found
}
