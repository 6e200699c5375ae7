//! Allocation, copies, pointers.

use super::{current_device, end};
use crate::{
    errors::{INVALID_VALUE, NOT_READY, SUCCESS, Status},
    execution::{self, CopyWay, Handle, accessed, cuda_major, execution, unmapped},
    ffi::Out,
    memory::{HostKind, IpcHandle, Owner, Rows, copy, count_call, fill, is_device, is_kept, memory, plain},
};
use stalloc_common::driver_prices;
use std::ffi::{c_int, c_uint};

/// Bytes of device memory on the current device; none for zero.
pub fn allocate(bytes: usize) -> Result<u64, Status> {
    count_call(driver_prices::ALLOC);
    if bytes == 0 {
        return Ok(0);
    }
    memory().device(current_device())?.allocate(bytes as u64)
}

/// Gives memory of the current device back, after all that was started is done.
pub fn free(address: u64) -> Result<(), Status> {
    count_call(driver_prices::FREE);
    execution().synchronize()?;
    let owner = memory().owner(address);
    if let Owner::Device { start, bytes, .. } = owner {
        unmapped(start, bytes);
    }
    memory().free(address)
}

/// Gives page-locked memory of the host back.
pub fn free_host(address: u64) -> Result<(), Status> {
    let owner = memory().owner(address);
    if let Owner::Host { start, bytes, .. } = owner {
        execution::spend((bytes >> 20) * execution::UNPIN);
        unmapped(start, bytes);
    }
    memory().host().free(address, HostKind::Locked)
}

/// Tells which memory a copy uses.
fn uses(rows: Rows, stream: Handle) {
    let bytes = |pitch: usize| pitch.saturating_mul(rows.height.saturating_sub(1)).saturating_add(rows.width) as u64;
    accessed(rows.destination, bytes(rows.destination_pitch), stream);
    accessed(rows.source, bytes(rows.source_pitch), stream);
}

/// Memory of the host.
pub fn allocate_host(bytes: usize, kind: HostKind) -> Result<u64, Status> {
    if bytes == 0 {
        return Ok(0);
    }
    execution::spend(driver_prices::ALLOC + (bytes as u64 >> 20) * execution::PIN);
    memory().host().allocate(bytes as u64, kind)
}

/// Bytes from the host that a copy takes along: "for transfers from pageable host memory to device memory of a memory block of 64 KB or less"
/// CUDA's functions return before it is done.
const WITH_COMMAND: u64 = 64 << 10;

/// The way that a copy takes.
fn way(rows: Rows) -> CopyWay {
    let host = [rows.destination, rows.source].into_iter().filter(|address| !is_device(*address));
    let owners: Vec<Owner> = host.map(|address| memory().owner(address)).collect();
    match owners[..] {
        [] => CopyWay::Device,
        _ if owners.contains(&Owner::Unknown) => CopyWay::Paged,
        _ => CopyWay::Pinned,
    }
}

/// A copy takes its time on a stream.
fn takes_time(stream: Handle, rows: Rows) {
    let way = way(rows);
    let bytes = (rows.width as u64).saturating_mul(rows.height as u64);
    // What is small goes to the device with the command, whatever memory it comes from.
    let to_device = is_device(rows.destination);
    let waits = way == CopyWay::Paged && !(to_device && bytes <= WITH_COMMAND);
    let link = || 2 * u64::from(current_device()) + u64::from(to_device);
    let link = (way != CopyWay::Device && bytes > WITH_COMMAND).then(link);
    execution::copied(stream, way, if way == CopyWay::Device { bytes.saturating_mul(2) } else { bytes }, link, waits);
}

/// A copy that the program does not wait for; in a capture it is only a node.
pub fn copy_on(stream: Handle, rows: Rows) -> Result<(), Status> {
    execution().stream(stream)?;
    if execution().is_capturing(stream) {
        crate::execution::launch(stream);
        return Ok(());
    }
    // Who keeps memory on the host copies ranges, whatever blocks lie there.
    if !is_kept(rows) {
        uses(rows, stream);
    }
    takes_time(stream, rows);
    copy(rows, stream, true)
}

/// A copy that the program waits for.
pub fn copy_now(rows: Rows) -> Result<(), Status> {
    execution().wait_for_all()?;
    uses(rows, 0);
    takes_time(0, rows);
    execution().synchronize_stream(0)?;
    copy(rows, 0, false)
}

/// A fill; in a capture it is only a node.
pub fn fill_on(stream: Handle, start: u64, value: u8, bytes: usize) -> Result<(), Status> {
    execution().stream(stream)?;
    if execution().is_capturing(stream) {
        crate::execution::launch(stream);
        return Ok(());
    }
    accessed(start, bytes as u64, stream);
    execution::copied(stream, CopyWay::Device, bytes as u64, None, false);
    fill(start, value, bytes)
}

fn rows(
    destination: u64,
    destination_pitch: usize,
    source: u64,
    source_pitch: usize,
    width: usize,
    height: usize,
) -> Result<Rows, Status> {
    if height > 1 && (destination_pitch < width || source_pitch < width) {
        return Err(INVALID_VALUE);
    }
    Ok(Rows { destination, destination_pitch, source, source_pitch, width, height })
}

/// `cudaPointerAttributes`; version 13 made it longer.
fn write_pointer_attributes(place: Out<u64>, address: u64) {
    const UNREGISTERED: u64 = 0;
    const HOST: u64 = 1;
    const DEVICE: u64 = 2;
    const MANAGED: u64 = 3;
    let current = current_device();
    let (kind, device, on_device, on_host) = match memory().owner(address) {
        Owner::Device { device, .. } => (DEVICE, device, address, 0),
        Owner::Host { kind: HostKind::Managed, .. } => (MANAGED, current, address, address),
        Owner::Host { .. } => (HOST, current, address, address),
        // Device -2 (cudaInvalidDeviceId) says that no device owns it.
        Owner::Unknown => (UNREGISTERED, u32::MAX - 1, 0, address),
    };
    let words = [kind | u64::from(device) << 32, on_device, on_host];
    let reserved = if cuda_major() >= 13 { 8 } else { 0 };
    for (index, word) in words.into_iter().chain(std::iter::repeat_n(0, reserved)).enumerate() {
        place.set_at(index, word);
    }
}

exports! {
    fn cudaMalloc(place: Out<u64>, bytes: usize) -> Status {
        let allowed = execution().wait_for_all();
        end(allowed.and_then(|()| allocate(bytes)).map(|address| place.set(address)))
    }

    fn cudaMallocPitch(place: Out<u64>, pitch: Out<usize>, width: usize, height: usize) -> Status {
        let row = width.checked_next_multiple_of(512).ok_or(INVALID_VALUE);
        let bytes = row.and_then(|row| Ok((row, row.checked_mul(height).ok_or(INVALID_VALUE)?)));
        end(bytes.and_then(|(row, bytes)| {
            place.set(allocate(bytes)?);
            pitch.set(row);
            Ok(())
        }))
    }

    fn cudaFree(address: u64) -> Status {
        if address == 0 {
            return SUCCESS;
        }
        end(free(address))
    }

    fn cudaMallocManaged(place: Out<u64>, bytes: usize, _flags: c_uint) -> Status {
        end(allocate_host(bytes, HostKind::Managed).map(|address| place.set(address)))
    }

    fn cudaHostAlloc(place: Out<u64>, bytes: usize, _flags: c_uint) -> Status {
        end(allocate_host(bytes, HostKind::Locked).map(|address| place.set(address)))
    }

    fn cudaMallocHost(place: Out<u64>, bytes: usize) -> Status {
        end(allocate_host(bytes, HostKind::Locked).map(|address| place.set(address)))
    }

    fn cudaFreeHost(address: u64) -> Status {
        if address == 0 {
            return SUCCESS;
        }
        end(free_host(address))
    }

    fn cudaHostRegister(address: u64, bytes: usize, _flags: c_uint) -> Status {
        end(memory().host().register(address, bytes as u64))
    }

    fn cudaHostUnregister(address: u64) -> Status {
        end(memory().host().unregister(address))
    }

    fn cudaHostGetDevicePointer(place: Out<u64>, address: u64, _flags: c_uint) -> Status {
        place.set(address);
        SUCCESS
    }

    fn cudaHostGetFlags(flags: Out<c_uint>, address: u64) -> Status {
        end(memory().host().find(address).ok_or(INVALID_VALUE).map(|_| flags.set(0)))
    }

    fn cudaPointerGetAttributes(place: Out<u64>, address: u64) -> Status {
        write_pointer_attributes(place, address);
        SUCCESS
    }

    fn cudaMemcpy(to: u64, from: u64, bytes: usize, _kind: c_int) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, _kind: c_int, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cudaMemcpyPeer(to: u64, _to_device: c_int, from: u64, _from_device: c_int, bytes: usize) -> Status {
        end(copy_now(plain(to, from, bytes)))
    }

    fn cudaMemcpyPeerAsync(to: u64, _to_device: c_int, from: u64, _from_device: c_int, bytes: usize, stream: Handle) -> Status {
        end(copy_on(stream, plain(to, from, bytes)))
    }

    fn cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int) -> Status {
        end(rows(to, to_pitch, from, from_pitch, width, height).and_then(copy_now))
    }

    fn cudaMemcpy2DAsync(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int, stream: Handle) -> Status {
        end(rows(to, to_pitch, from, from_pitch, width, height).and_then(|rows| copy_on(stream, rows)))
    }

    fn cudaMemset(start: u64, value: c_int, bytes: usize) -> Status {
        end(fill(start, value.to_le_bytes()[0], bytes))
    }

    fn cudaMemsetAsync(start: u64, value: c_int, bytes: usize, stream: Handle) -> Status {
        end(fill_on(stream, start, value.to_le_bytes()[0], bytes))
    }

    fn cudaMemset2DAsync(start: u64, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle) -> Status {
        end((0..height).try_for_each(|row| {
            let row = start.wrapping_add(row.wrapping_mul(pitch) as u64);
            fill_on(stream, row, value.to_le_bytes()[0], width)
        }))
    }

    fn cudaIpcGetMemHandle(place: Out<IpcHandle>, address: u64) -> Status {
        end(memory().share(address).map(|handle| place.set(handle)))
    }

    fn cudaIpcOpenMemHandle(place: Out<u64>, handle: IpcHandle, _flags: c_uint) -> Status {
        end(memory().open_shared(current_device(), handle).map(|address| place.set(address)))
    }

    fn cudaIpcCloseMemHandle(address: u64) -> Status {
        end(execution().synchronize().and_then(|()| memory().close_shared(address)))
    }

    // Whatever an event of another process stands for is done: work takes no time here.
    fn cudaIpcGetEventHandle(place: Out<IpcHandle>, event: Handle) -> Status {
        end(execution().query_event(event).or_else(|status| if status == NOT_READY { Ok(()) } else { Err(status) }).map(|()| {
            place.set(IpcHandle::new([std::process::id().into(), event, 0, 0, 0]));
        }))
    }

    fn cudaIpcOpenEventHandle(place: Out<Handle>, _handle: IpcHandle) -> Status {
        place.set(execution().create_event());
        SUCCESS
    }
}
