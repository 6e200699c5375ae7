//! cuDNN's backend interface, loaded.

use crate::{Call, Reply};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io, mem,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

type Create = extern "C" fn(c_int, *mut *mut c_void) -> c_int;
type OfOne = extern "C" fn(*mut c_void) -> c_int;
type Set = extern "C" fn(*mut c_void, c_int, c_int, i64, *const c_void) -> c_int;
type Get = extern "C" fn(*mut c_void, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;

/// The functions that are called.
pub(crate) struct Library {
    create: Create,
    destroy: OfOne,
    finalize: OfOne,
    set: Set,
    get: Get,
}

impl Library {
    /// Loads `libcudnn_graph.so.9` of a folder.
    pub(crate) fn load(folder: &Path) -> io::Result<Self> {
        let path = CString::new(folder.join("libcudnn_graph.so.9").as_os_str().as_bytes())?;
        // SAFETY: the path ends with zero; the constructors of the user's own cuDNN run, in a process that serves nothing else.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: the loader's message, valid until the next call of the loader.
            let message = unsafe { libc::dlerror() };
            return Err(io::Error::other(if message.is_null() { "not loaded".into() } else { text(message) }));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is of a loaded library, the name ends with zero.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(io::Error::other(format!("no {}", name.to_string_lossy()))) } else { Ok(found) }
        };
        // SAFETY: the signatures are those of `cudnn_graph.h`, the same in every version 9.
        unsafe {
            Ok(Self {
                create: mem::transmute::<*mut c_void, Create>(symbol(c"cudnnBackendCreateDescriptor")?),
                destroy: mem::transmute::<*mut c_void, OfOne>(symbol(c"cudnnBackendDestroyDescriptor")?),
                finalize: mem::transmute::<*mut c_void, OfOne>(symbol(c"cudnnBackendFinalize")?),
                set: mem::transmute::<*mut c_void, Set>(symbol(c"cudnnBackendSetAttribute")?),
                get: mem::transmute::<*mut c_void, Get>(symbol(c"cudnnBackendGetAttribute")?),
            })
        }
    }

    /// Makes the call.
    pub(crate) fn call(&self, call: Call) -> Reply {
        let pointer = |descriptor: u64| ptr::with_exposed_provenance_mut::<c_void>(descriptor as usize);
        match call {
            Call::Create { kind } => {
                let mut descriptor = ptr::null_mut();
                let status = (self.create)(kind, &raw mut descriptor);
                let bytes = (descriptor.expose_provenance() as u64).to_ne_bytes().to_vec();
                Reply { status, count: 1, bytes }
            }
            Call::Set { descriptor, name, kind, count, bytes } => {
                Reply::status((self.set)(pointer(descriptor), name, kind, count, aligned(&bytes).as_ptr().cast()))
            }
            Call::Finalize { descriptor } => Reply::status((self.finalize)(pointer(descriptor))),
            Call::Get { descriptor, name, kind, count, bytes } => {
                let mut room = aligned(&bytes);
                let mut found = 0;
                let place = if bytes.is_empty() { ptr::null_mut() } else { room.as_mut_ptr().cast() };
                let status = (self.get)(pointer(descriptor), name, kind, count, &raw mut found, place);
                let mut filled: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
                filled.truncate(bytes.len());
                Reply { status, count: found, bytes: filled }
            }
            Call::Destroy { descriptor } => Reply::status((self.destroy)(pointer(descriptor))),
        }
    }
}

/// The bytes where any element may lie.
fn aligned(bytes: &[u8]) -> Vec<u128> {
    let words = bytes.chunks(16).map(|chunk| {
        let mut word = [0; 16];
        word[..chunk.len()].copy_from_slice(chunk);
        u128::from_ne_bytes(word)
    });
    // One more, so that an empty attribute has an address too.
    words.chain([0]).collect()
}

fn text(message: *const c_char) -> String {
    // SAFETY: the loader's message ends with zero.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
