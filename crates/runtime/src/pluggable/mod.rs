//! What `torch.cuda.memory.CUDAPluggableAllocator` takes by name: two functions, for programs that give PyTorch an allocator
//! themselves. The environment says what they serve.
//!
//! PyTorch tells such an allocator of no `record_stream`, no `empty_cache` and no capture, and keeps no statistics. What the
//! arena does not serve comes from the model of PyTorch's allocator (`stalloc-caching`); failures leave as PyTorch's exceptions.
//!
//! Lock order: a fallback's, then an arena's.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use stalloc_allocator::{Allocator, Error};
use stalloc_caching::{Caching, Settings};
use stalloc_common::figures::bytes;
use stalloc_device::{Address, Device, Error as DeviceError, Host, Stream};

use crate::arenas::{self, HOST_BYTES};
use crate::devices::{self, HOST};
use crate::fault::contained;
use crate::fork;
use crate::messages::say;

mod environment;
mod exception;

pub use exception::Refusal;

/// Larger requests PyTorch's own allocator refuses without a look at the device, bytes.
const LARGEST: u64 = 1 << 60;

/// What serves the requests that the arena of a device does not.
type Fallback = Box<dyn Allocator + Send>;

static FALLBACKS: [Mutex<Option<Fallback>>; devices::MOST] = [const { Mutex::new(None) }; devices::MOST];

fn open(device: i32) -> Result<Fallback, Error> {
    fork::in_use();
    if device == HOST {
        return Ok(Box::new(Caching::new(Host::new(HOST_BYTES), Settings::default())));
    }
    Ok(Box::new(Caching::new(arenas::gpu(device)?, Settings::default())))
}

/// Does something with the fallback of a device. A panic in it costs its memory, which is not used again.
fn with<T>(device: i32, act: impl FnOnce(&mut Option<Fallback>) -> Result<T, Error>) -> Result<T, Error> {
    let Some(fallback) = devices::index(device).map(|index| &FALLBACKS[index]) else {
        return Err(DeviceError::Unsupported("be found: there is none of this number").into());
    };
    let mut fallback = fallback.lock().unwrap_or_else(PoisonError::into_inner);
    let done = catch_unwind(AssertUnwindSafe(|| act(&mut fallback)));
    if let (Ok(_), Some(allocator)) = (&done, &*fallback) {
        arenas::fallback_holds(device, allocator.reserved(), allocator.allocated());
    }
    done.unwrap_or_else(|_| {
        say("internal error in the fallback; its memory is not used again");
        std::mem::forget(fallback.take());
        Err(DeviceError::Unsupported("serve this after an internal error; it is safe to retry").into())
    })
}

/// Serves `size` bytes on a stream of a device ([`HOST`]: host memory); address 0 for 0 bytes.
///
/// # Errors
/// If there is no memory left after everything cached was given back, or the device failed.
pub fn malloc(device: i32, size: u64, stream: Stream) -> Result<Address, Refusal> {
    environment::prepare();
    if size == 0 {
        return Ok(0);
    }
    if fork::is_child() {
        let text = "stalloc: a process that was forked from one that uses a GPU cannot use it; start it afresh (spawn)";
        return Err(Refusal::Other(text.to_owned()));
    }
    if size >= LARGEST {
        let text = "CUDA out of memory. Tried to allocate more than 1EB memory.";
        return Err(Refusal::OutOfMemory(text.to_owned()));
    }
    if let Some(served) = arenas::serve(device, size, stream) {
        return Ok(served.address);
    }
    let mut held = 0;
    let served = with(device, |fallback| {
        if fallback.is_none() {
            *fallback = Some(open(device)?);
        }
        let Some(allocator) = fallback else { return Err(Error::UnknownAddress(0)) };
        let mut served = allocator.malloc(size, stream);
        if matches!(served, Err(Error::OutOfMemory { .. })) && arenas::trim(device) > 0 {
            served = allocator.malloc(size, stream);
        }
        held = allocator.reserved();
        served
    });
    served.map_err(|error| match error {
        Error::OutOfMemory { .. } => {
            let held = held + arenas::arena(device).map_or(0, |(_, reserved)| reserved);
            let free = || Ok::<_, DeviceError>(arenas::gpu(device)?.memory_info()?.free);
            let free = if device == HOST { HOST_BYTES } else { free().unwrap_or(0) };
            Refusal::OutOfMemory(format!(
                "CUDA out of memory. Tried to allocate {}. GPU {device} has {} free; stalloc holds {}, all of it needed by \
                 tensors or too scattered to be given back.",
                bytes(size),
                bytes(free),
                bytes(held)
            ))
        }
        error => Refusal::Other(format!("stalloc: GPU {device}: {error}")),
    })
}

/// Takes a block back that was handed out on a device; other addresses are left alone.
fn free(device: i32, address: Address) {
    if address == 0 || fork::is_child() || arenas::free(address).is_some() {
        return;
    }
    // What it does not know was not handed out.
    let _ = with(device, |fallback| fallback.as_mut().map_or(Ok(()), |allocator| allocator.free(address)));
}

fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// `void* alloc(ssize_t size, int device, cudaStream_t stream)` of `CUDAPluggableAllocator`. Null for 0 bytes.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn stalloc_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let serve = || malloc(device, size as u64, address(stream));
    // After a fault the arena serves nothing any more, and the fallback is asked.
    let from_fallback = || {
        catch_unwind(AssertUnwindSafe(serve))
            .unwrap_or_else(|_| Err(Refusal::Other("stalloc: internal error; it is safe to retry".to_owned())))
    };
    match contained("stalloc_malloc", serve, from_fallback) {
        Ok(address) => ptr::with_exposed_provenance_mut(address as usize),
        // SAFETY: PyTorch's wrapper, which called this, expects exceptions; nothing here is left to drop.
        Err(refusal) => unsafe { exception::throw(refusal) },
    }
}

/// `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)` of `CUDAPluggableAllocator`. An address that
/// is not live is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn stalloc_free(freed: *mut c_void, _size: isize, device: c_int, _stream: *mut c_void) {
    // A block that is lost is memory lost, no more.
    contained("stalloc_free", || free(device, address(freed)), || ());
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
