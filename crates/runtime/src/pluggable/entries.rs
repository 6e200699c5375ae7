//! The functions that PyTorch calls: two by name, the others as hooks by their addresses.
//!
//! Requests may come from any thread. Those that fail leave as PyTorch's own exceptions.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::exception;
use super::side::Refusal;
use crate::fault::contained;
use crate::pluggable;

fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Does what must not be left undone, for the function `name` that C calls: after a panic once more, and if that panics
/// too, no memory of before is used again.
fn done(name: &'static str, act: impl Fn()) {
    contained(name, &act, || {
        if catch_unwind(AssertUnwindSafe(&act)).is_err() {
            pluggable::give_up();
        }
    });
}

/// `void* alloc(ssize_t size, int device, cudaStream_t stream)` of `CUDAPluggableAllocator`. Null for 0 bytes.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn stalloc_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let malloc = || pluggable::malloc(device, size as u64, address(stream));
    // After a fault the arena serves nothing any more, and the fallback is asked.
    let from_fallback = || {
        catch_unwind(AssertUnwindSafe(malloc))
            .unwrap_or_else(|_| Err(Refusal::other("stalloc: internal error; it is safe to retry".to_owned())))
    };
    match contained("stalloc_malloc", malloc, from_fallback) {
        Ok(address) => pointer(address),
        // SAFETY: PyTorch's wrapper, which called this, expects exceptions; nothing here is left to drop.
        Err(refusal) => unsafe { exception::throw(refusal.kind, refusal.text) },
    }
}

/// `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)` of `CUDAPluggableAllocator`. An address that
/// is not live is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn stalloc_free(freed: *mut c_void, _size: isize, device: c_int, _stream: *mut c_void) {
    // A block that is lost is memory lost, no more.
    contained("stalloc_free", || pluggable::free(device, address(freed)), || ());
}

/// [`stalloc_malloc`] by the name that the STAlloc artifact gives it.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn my_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    stalloc_malloc(size, device, stream)
}

/// [`stalloc_free`] by the name that the STAlloc artifact gives it.
#[unsafe(no_mangle)]
pub extern "C" fn my_free(freed: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    stalloc_free(freed, size, device, stream);
}

extern "C" fn record_stream(used: *mut c_void, stream: *mut c_void) {
    done("record_stream", || pluggable::record_stream(address(used), address(stream)));
}

extern "C" fn reset() {
    contained("reset", pluggable::empty_cache, || ());
}

extern "C" fn memory_fraction(fraction: f64, device: c_int) {
    done("memory_fraction", || pluggable::set_memory_fraction(device, fraction));
}

/// # Safety
/// `size` is null or may be written.
unsafe extern "C" fn base_alloc(inside: *mut c_void, size: *mut usize) -> *mut c_void {
    let block = contained("base_alloc", || pluggable::block_around(address(inside)), || None);
    let (start, length) = block.unwrap_or((address(inside), 0));
    if !size.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *size = length as usize };
    }
    pointer(start)
}

// `MempoolId_t` is a pair of 64-bit integers, which the C++ ABI passes like two arguments, and the filter, a
// `std::function`, like a pointer. It is not asked: while a pool is allocated to, all requests go there.
extern "C" fn begin_allocate_to_pool(device: c_int, pool: u64, pool_too: u64, _filter: *const c_void) {
    done("begin_allocate_to_pool", || pluggable::begin_pool(device, (pool, pool_too)));
}

extern "C" fn end_allocate_to_pool(device: c_int, pool: u64, pool_too: u64) {
    done("end_allocate_to_pool", || pluggable::end_pool(device, (pool, pool_too)));
}

extern "C" fn release_pool(device: c_int, pool: u64, pool_too: u64) {
    contained("release_pool", || pluggable::release_pool(device, (pool, pool_too)), || ());
}

/// The functions by what PyTorch calls them: `malloc`, `free` and the setters of its hooks, with their addresses.
pub fn hooks() -> [(&'static str, usize); 9] {
    let address = |function: *const ()| function.expose_provenance();
    [
        ("malloc", address(stalloc_malloc as *const ())),
        ("free", address(stalloc_free as *const ())),
        ("set_record_stream_fn", address(record_stream as *const ())),
        ("set_reset_fn", address(reset as *const ())),
        ("set_memory_fraction_fn", address(memory_fraction as *const ())),
        ("set_base_alloc_fn", address(base_alloc as *const ())),
        ("set_begin_allocate_to_pool", address(begin_allocate_to_pool as *const ())),
        ("set_end_allocate_to_pool_fn", address(end_allocate_to_pool as *const ())),
        ("set_release_pool", address(release_pool as *const ())),
    ]
}
