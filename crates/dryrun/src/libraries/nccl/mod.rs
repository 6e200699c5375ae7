//! NCCL: communicators know their rank and size.

mod collectives;

use crate::{
    execution::{Handle, new_handle},
    ffi::{In, Out, text},
    loaded,
    memory::{Owner, memory},
    runtime_api::{allocate, current_device},
};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::{c_char, c_int, c_void},
    sync::{Mutex, PoisonError},
};

const SUCCESS: c_int = 0;
const UNHANDLED_CUDA_ERROR: c_int = 1;
const INVALID_ARGUMENT: c_int = 4;

#[derive(Clone, Copy)]
struct Communicator {
    ranks: c_int,
    rank: c_int,
    device: u32,
}

/// Those that exist.
static COMMUNICATORS: Mutex<Option<HashMap<Handle, Communicator>>> = Mutex::new(None);

/// Ranges that are registered: address and bytes of each, by handle.
static REGISTERED: Mutex<BTreeMap<Handle, [u64; 2]>> = Mutex::new(BTreeMap::new());

/// Address and bytes of each range that is registered with a communicator.
pub fn registered() -> Vec<[u64; 2]> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
}

fn add(place: Out<Handle>, ranks: c_int, rank: c_int, device: u32) -> c_int {
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let handle = new_handle();
    let mut communicators = COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner);
    communicators.get_or_insert_default().insert(handle, Communicator { ranks, rank, device });
    place.set(handle);
    SUCCESS
}

fn find(handle: Handle) -> Option<Communicator> {
    let communicators = COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner);
    communicators.as_ref()?.get(&handle).copied()
}

fn forget(handle: Handle) -> c_int {
    let mut communicators = COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = communicators.get_or_insert_default().remove(&handle);
    if known.is_some() { SUCCESS } else { INVALID_ARGUMENT }
}

fn tell(handle: Handle, place: Out<c_int>, what: impl Fn(Communicator) -> c_int) -> c_int {
    find(handle).map_or(INVALID_ARGUMENT, |communicator| {
        place.set(what(communicator));
        SUCCESS
    })
}

/// `ncclUniqueId`, passed in memory.
type UniqueId = [u64; 16];

exports! {
    fn ncclGetVersion(version: Out<c_int>) -> c_int {
        let known = loaded::reported("libnccl", c"ncclGetVersion").unwrap_or(21_800);
        version.set(known.cast_signed());
        SUCCESS
    }

    fn ncclGetUniqueId(place: Out<UniqueId>) -> c_int {
        place.set([new_handle(); 16]);
        SUCCESS
    }

    fn ncclGetErrorString(status: c_int) -> *const c_char {
        text(if status == 0 { c"no error" } else { c"NCCL error (stalloc dry run)" })
    }

    fn ncclGetLastError(_communicator: Handle) -> *const c_char {
        text(c"")
    }

    fn ncclCommInitRank(place: Out<Handle>, ranks: c_int, _id: Wide, rank: c_int) -> c_int {
        add(place, ranks, rank, current_device())
    }

    fn ncclCommInitRankConfig(place: Out<Handle>, ranks: c_int, _id: Wide, rank: c_int, _configuration: *const c_void) -> c_int {
        add(place, ranks, rank, current_device())
    }

    fn ncclCommInitRankScalable(place: Out<Handle>, ranks: c_int, rank: c_int, _ids: c_int, _id: *const c_void, _configuration: *const c_void) -> c_int {
        add(place, ranks, rank, current_device())
    }

    fn ncclCommInitAll(places: Out<Handle>, ranks: c_int, devices: In<c_int>) -> c_int {
        (0..ranks).fold(SUCCESS, |status, rank| {
            let index = rank.cast_unsigned() as usize;
            let device = devices.at(index).unwrap_or(rank);
            let place = places.offset(index);
            status.max(add(place, ranks, rank, u32::try_from(device).unwrap_or(0)))
        })
    }

    // Who else has which colour is not known: the new communicator is as large as its parent.
    fn ncclCommSplit(parent: Handle, color: c_int, _key: c_int, place: Out<Handle>, _configuration: *const c_void) -> c_int {
        match find(parent) {
            _ if color < 0 => {
                place.set(0);
                SUCCESS
            }
            Some(Communicator { ranks, rank, device }) => add(place, ranks, rank, device),
            None => INVALID_ARGUMENT,
        }
    }

    fn ncclCommDestroy(communicator: Handle) -> c_int {
        forget(communicator)
    }

    fn ncclCommAbort(communicator: Handle) -> c_int {
        forget(communicator)
    }

    fn ncclCommCount(communicator: Handle, count: Out<c_int>) -> c_int {
        tell(communicator, count, |communicator| communicator.ranks)
    }

    fn ncclCommUserRank(communicator: Handle, rank: Out<c_int>) -> c_int {
        tell(communicator, rank, |communicator| communicator.rank)
    }

    fn ncclCommCuDevice(communicator: Handle, device: Out<c_int>) -> c_int {
        tell(communicator, device, |communicator| communicator.device.cast_signed())
    }

    fn ncclCommGetAsyncError(_communicator: Handle, status: Out<c_int>) -> c_int {
        status.set(SUCCESS);
        SUCCESS
    }

    fn ncclMemAlloc(place: Out<u64>, bytes: usize) -> c_int {
        allocate(bytes).map_or(UNHANDLED_CUDA_ERROR, |address| {
            place.set(address);
            SUCCESS
        })
    }

    fn ncclMemFree(address: u64) -> c_int {
        if address == 0 || memory().free(address).is_ok() { SUCCESS } else { UNHANDLED_CUDA_ERROR }
    }

    // Registers what lies in one allocation or mapping, as the library does.
    fn ncclCommRegister(communicator: Handle, address: u64, bytes: usize, handle: Out<Handle>) -> c_int {
        let Owner::Device { start, bytes: length, .. } = memory().owner(address) else { return INVALID_ARGUMENT };
        if find(communicator).is_none() || address.saturating_add(bytes as u64) > start + length {
            return INVALID_ARGUMENT;
        }
        let new = new_handle();
        REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).insert(new, [address, bytes as u64]);
        handle.set(new);
        SUCCESS
    }

    fn ncclCommDeregister(communicator: Handle, handle: Handle) -> c_int {
        let known = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        if known.is_some() && find(communicator).is_some() { SUCCESS } else { INVALID_ARGUMENT }
    }

    fn ncclRedOpCreatePreMulSum(operation: Out<c_int>) -> c_int {
        // The first number after the built-in operations.
        operation.set(5);
        SUCCESS
    }
}

/// `ncclUniqueId` by value: C passes a structure of this size on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wide {
    words: UniqueId,
}
