//! Every function that a program may link to and that nothing else here defines.
//!
//! Such a function succeeds, having written zeros or new handles where its declaration says that it gives something back, and its name
//! is logged once. Where success would lie it answers that it is not supported.

use crate::{execution, log, memory::is_device};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The library that a function belongs to: each has its own numbers for errors.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StubLibrary {
    cublas,
    cuda,
    cudart,
    cudnn,
    cufft,
    cufile,
    cupti,
    curand,
    cusolver,
    cusparse,
    cusparselt,
    nccl,
}

impl StubLibrary {
    /// "Not supported", as this library says it.
    fn refusal(self) -> usize {
        match self {
            Self::cuda | Self::cudart => 801,
            Self::cublas => 15,
            Self::cudnn if execution::cuda_major() < 12 => 9,
            Self::cudnn => 3000,
            Self::cufft => 16,
            Self::cufile => 5008,
            Self::cupti => 27,
            Self::curand => 204,
            Self::cusolver => 9,
            Self::cusparse | Self::cusparselt => 10,
            Self::nccl => 5,
        }
    }

    /// Whether its functions start work on a device. The runtime and the driver do so by launches and copies, which are imitated.
    fn works(self) -> bool {
        !matches!(self, Self::cuda | Self::cudart | Self::cupti | Self::cufile)
    }
}

/// How a function ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StubOutcome {
    Succeed,
    Fail,
    Text,
}

/// What is written through a pointer argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Handle,
    Zero4,
    Zero8,
}

fn answer(
    library: StubLibrary,
    name: &'static str,
    logged: &AtomicBool,
    outcome: StubOutcome,
    writes: &[(Write, usize)],
) -> usize {
    let first = !logged.swap(true, Relaxed);
    if outcome == StubOutcome::Fail {
        if first {
            log::not_imitated(name, "answered that it is not supported");
        }
        return library.refusal();
    }
    if first {
        log::not_imitated(name, "answered success");
    }
    if library.works() {
        execution::work();
    }
    for (what, address) in writes {
        // Some results are wanted in device memory, which is never touched.
        if *address < 4096 || is_device(*address as u64) {
            continue;
        }
        let place: *mut u64 = std::ptr::with_exposed_provenance_mut(*address);
        // SAFETY: the declaration of the function says that this argument is a place for so many bytes.
        unsafe {
            match what {
                Write::Handle => place.write_unaligned(execution::new_handle()),
                Write::Zero8 => place.write_unaligned(0),
                Write::Zero4 => place.cast::<u32>().write_unaligned(0),
            }
        }
    }
    match outcome {
        StubOutcome::Text => c"not imitated by the stalloc dry run".as_ptr().addr(),
        _ => 0,
    }
}

/// Whether a function is only a stub.
pub fn is_stub(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok()
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
