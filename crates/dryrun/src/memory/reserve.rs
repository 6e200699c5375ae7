//! Address space from the operating system: the only unsafe part of memory.

use std::{io, ptr};

/// Reserves exactly `[start, start + bytes)`; nobody can read or write it. Fails when any of it is taken.
pub fn reserve(start: u64, bytes: u64) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let got = map(start, bytes, libc::PROT_NONE, flags)?;
    if got == start {
        return Ok(());
    }
    // A kernel that does not know MAP_FIXED_NOREPLACE takes the address as a hint.
    release(got, bytes);
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Memory of the host, zeroed, that takes room only where it is written.
pub fn host_memory(bytes: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags)
}

fn map(start: u64, bytes: u64, protection: i32, flags: i32) -> io::Result<u64> {
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new anonymous mapping; without MAP_FIXED it replaces nothing.
    let got = unsafe { libc::mmap(ptr::without_provenance_mut(start as usize), length, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(got.addr() as u64)
}

/// Gives a range back that [`reserve`] or [`host_memory`] made.
pub fn release(start: u64, bytes: u64) {
    // SAFETY: callers own the range, and drop it from their books before or after without using it again.
    unsafe { libc::munmap(ptr::without_provenance_mut(start as usize), bytes as usize) };
}
