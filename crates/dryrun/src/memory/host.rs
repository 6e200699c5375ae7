//! Memory of the host that CUDA knows: page-locked, registered, managed. It is real memory.

use super::{ranges::Ranges, reserve};
use crate::errors::{ALREADY_REGISTERED, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY, Status};

const PAGE: u64 = 4096;

/// How CUDA came to know a range of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// `cudaHostAlloc`.
    Locked,
    /// The same, and only copies between it and devices use it, says who took it.
    Kept,
    /// `cudaHostRegister`.
    Registered,
    /// `cudaMallocManaged`: both sides use it.
    Managed,
}

/// The ranges of the host that CUDA knows.
#[derive(Debug, Default)]
pub struct HostBlocks {
    ranges: Ranges<HostKind>,
}

impl HostBlocks {
    /// New memory; takes room where it is written.
    pub fn allocate(&mut self, bytes: u64, kind: HostKind) -> Result<u64, Status> {
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
        let start = reserve::host_memory(rounded).map_err(|_| OUT_OF_MEMORY)?;
        self.ranges.insert(start, rounded, kind);
        Ok(start)
    }

    /// Frees what [`Self::allocate`] gave out.
    pub fn free(&mut self, start: u64, kind: HostKind) -> Result<(), Status> {
        let is_of_kind = |found| found == kind || (found, kind) == (HostKind::Kept, HostKind::Locked);
        if !self.ranges.at(start).is_some_and(|(_, found)| is_of_kind(*found)) {
            return Err(INVALID_VALUE);
        }
        if let Some((bytes, _)) = self.ranges.remove(start) {
            reserve::release(start, bytes);
        }
        Ok(())
    }

    /// Only copies use this page-locked memory from now on.
    pub fn keep(&mut self, start: u64) {
        if let Some(kind) = self.ranges.note_mut(start).filter(|kind| **kind == HostKind::Locked) {
            *kind = HostKind::Kept;
        }
    }

    /// Remembers memory that the program had already.
    pub fn register(&mut self, start: u64, bytes: u64) -> Result<(), Status> {
        if start == 0 || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if self.ranges.insert(start, bytes, HostKind::Registered) { Ok(()) } else { Err(ALREADY_REGISTERED) }
    }

    /// Forgets what [`Self::register`] remembered.
    pub fn unregister(&mut self, start: u64) -> Result<(), Status> {
        if self.ranges.at(start).is_none_or(|(_, kind)| *kind != HostKind::Registered) {
            return Err(NOT_REGISTERED);
        }
        self.ranges.remove(start);
        Ok(())
    }

    /// The range that holds `address`.
    pub fn find(&self, address: u64) -> Option<(HostKind, u64, u64)> {
        self.ranges.find(address).map(|(start, bytes, kind)| (*kind, start, bytes))
    }
}
