//! Copies and fills, between the host and the devices.
//!
//! Between places of the host they are real. To a device, the bytes are remembered while they are exact ([`super::Known`]). From a
//! device come those bytes, or zeros, and the recorder is told.

use super::{HostKind, Owner, Provenance, is_device, memory};
use crate::{
    checks,
    errors::{INVALID_VALUE, Status},
    recorder::{self, Bytes},
};
use std::{ptr, slice};

/// Rows of bytes to copy from one place to another; a plain copy is one row.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Where the first row goes.
    pub destination: u64,
    /// From one row's start to the next, in bytes.
    pub destination_pitch: usize,
    /// Where the first row comes from.
    pub source: u64,
    /// From one row's start to the next, in bytes.
    pub source_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// A copy of `bytes` in one piece.
pub fn plain(destination: u64, source: u64, bytes: usize) -> Rows {
    Rows { destination, destination_pitch: bytes, source, source_pitch: bytes, width: bytes, height: 1 }
}

impl Rows {
    /// Start of each row: destination and source.
    fn starts(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.height).map(move |row| {
            let at = |start: u64, pitch: usize| start.wrapping_add(row.wrapping_mul(pitch) as u64);
            (at(self.destination, self.destination_pitch), at(self.source, self.source_pitch))
        })
    }

    /// Rows that follow each other without a gap are one row.
    fn joined(mut self) -> Self {
        let dense = self.destination_pitch == self.width && self.source_pitch == self.width;
        if let Some(bytes) = self.width.checked_mul(self.height).filter(|_| dense) {
            (self.width, self.height) = (bytes, 1);
        }
        self
    }
}

/// Copies `rows` on `stream`; `asynchronous` as the program asked for it.
pub fn copy(rows: Rows, stream: u64, asynchronous: bool) -> Result<(), Status> {
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let rows = rows.joined();
    for address in [rows.destination, rows.source] {
        if is_device(address) && memory().owner(address) == Owner::Unknown {
            return Err(INVALID_VALUE);
        }
    }
    if is_kept(rows) {
        memory().known().carry(rows.source, rows.destination, rows.width as u64);
        return Ok(());
    }
    match (is_device(rows.destination), is_device(rows.source)) {
        (true, true) => {
            let mut memory = memory();
            for (to, from) in rows.starts() {
                memory.known().moved(from, to, rows.width as u64);
            }
        }
        (true, false) => {
            recorder::host_write(rows.width.saturating_mul(rows.height));
            let mut memory = memory();
            for (to, from) in rows.starts() {
                memory.known().copied(to, host_bytes(from, rows.width));
            }
        }
        (false, true) => read(rows, stream, asynchronous),
        (false, false) => {
            for (to, from) in rows.starts() {
                // SAFETY: both are memory of the host, which the program says is as long; they may overlap.
                unsafe { ptr::copy(address(from), address(to), rows.width) }
            }
        }
    }
    Ok(())
}

/// Whether a copy is between a device and memory of the host that only such copies use: it takes neither time nor room.
pub fn is_kept(rows: Rows) -> bool {
    let memory = memory();
    let is_kept = |address| matches!(memory.owner(address), Owner::Host { kind: HostKind::Kept, .. });
    rows.height == 1 && (is_kept(rows.destination) || is_kept(rows.source))
}

/// Sets `bytes` at `start` to `value`.
pub fn fill(start: u64, value: u8, bytes: usize) -> Result<(), Status> {
    if bytes == 0 {
        return Ok(());
    }
    // Not in the `match`: the lock would be held through it.
    let owner = memory().owner(start);
    match owner {
        Owner::Unknown => return Err(INVALID_VALUE),
        Owner::Device { .. } => memory().known().filled(start, bytes as u64, value),
        // SAFETY: memory of the host, which the program says is as long.
        Owner::Host { .. } => unsafe { ptr::write_bytes(address(start), value, bytes) },
    }
    Ok(())
}

/// A copy from a device to the host: the known bytes, ones for a check, else zeros, unless the recorder has an answer.
fn read(rows: Rows, stream: u64, asynchronous: bool) {
    let (device, locked) = {
        let memory = memory();
        let device = match memory.owner(rows.source) {
            Owner::Device { device, .. } => device,
            _ => 0,
        };
        let target = memory.owner(rows.destination);
        let locked = matches!(target, Owner::Host { kind: HostKind::Locked | HostKind::Registered, .. });
        (device, locked)
    };
    let origin = recorder::ReadOrigin { source: rows.source, device, stream, offload: locked && asynchronous };
    if rows.height == 1 {
        let target = host_bytes_mut(rows.destination, rows.width);
        let known = memory().known().read(rows.source, target);
        let bytes = if let Some(source) = known {
            source.into()
        } else if checks::is_check(rows.width) {
            target.fill(1);
            Bytes::Check
        } else {
            clear(target);
            Bytes::Unknown
        };
        recorder::host_read(target, origin, bytes);
        return;
    }
    // The recorder sees the rows in one piece.
    let mut packed = vec![0; rows.width.saturating_mul(rows.height)];
    let mut known = Some(Provenance::Computed);
    for ((_, from), row) in rows.starts().zip(packed.chunks_exact_mut(rows.width)) {
        known = known.and_then(|source| Some(memory().known().read(from, row)?.max(source)));
    }
    if known.is_none() {
        packed.fill(0);
    }
    let bytes = known.map_or(Bytes::Unknown, Bytes::from);
    recorder::host_read(&mut packed, origin, bytes);
    for ((to, _), row) in rows.starts().zip(packed.chunks_exact(rows.width)) {
        host_bytes_mut(to, rows.width).copy_from_slice(row);
    }
}

/// Zeroes `target` without writing to pages that are zero already: memory that was never touched stays so, and an offload of a
/// hundred gibibytes takes no room.
fn clear(target: &mut [u8]) {
    const ZEROS: [u8; 4096] = [0; 4096];
    for chunk in target.chunks_mut(ZEROS.len()) {
        // A comparison of slices is much faster than of one byte after the other.
        if *chunk != ZEROS[..chunk.len()] {
            chunk.fill(0);
        }
    }
}

fn address(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// So many bytes of the host, which the program or a recorder says may be read there.
pub fn host_bytes<'a>(start: u64, bytes: usize) -> &'a [u8] {
    // SAFETY: the program says that so many bytes of the host may be read there; the slice does not outlive the call.
    unsafe { slice::from_raw_parts(address(start), bytes) }
}

/// So many bytes of the host, which the program or a recorder says may be written there.
pub fn host_bytes_mut<'a>(start: u64, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the program says that so many bytes of the host may be written there; the slice does not outlive the call.
    unsafe { slice::from_raw_parts_mut(address(start), bytes) }
}
