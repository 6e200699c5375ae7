//! One entry of a device's trace.

use super::stacks::Callers;
use crate::error::{Fault, FilePosition, Result};
use crate::pickle::{Fields, Pickled, Value};

/// What the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    OutOfMemory,
    Snapshot,
    /// An action that some later version added.
    Other,
}

/// An entry of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotEntry {
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) device_free: u64,
    pub(super) time_us: Option<u64>,
    pub(super) frames: Callers,
}

/// Reads the entries of one device.
pub(super) struct EntryReader<'a> {
    arena: &'a Pickled,
    device: u32,
    fields: Fields<8>,
    unknown: usize,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(arena: &'a Pickled, device: u32) -> Self {
        let names = ["action", "addr", "size", "stream", "time_us", "frames", "device_free", "forward_frames"];
        EntryReader { arena, device, fields: Fields::new(names), unknown: 0 }
    }

    /// Entries of unknown kinds read so far. Each is read twice, backwards and forwards.
    pub(super) fn unknown(&self) -> usize {
        self.unknown / 2
    }

    /// Reads the entry at `index` of the device's trace.
    pub(super) fn read(&mut self, index: usize, entry: Value) -> Result<SnapshotEntry> {
        let arena = self.arena;
        let device = self.device;
        let position = |field: &str| FilePosition::Path(format!("device_traces[{device}][{index}]{field}"));
        if !entry.is_dict() {
            return Err(Fault::damaged(position(""), format!("is {}, not a dict", arena.describe(entry))));
        }
        let [action, address, size, stream, time_us, own, device_free, forward] = self.fields.of(arena, entry);
        let action = match arena.as_bytes(action) {
            Some(b"alloc") => Action::Alloc,
            Some(b"free_requested") => Action::FreeRequested,
            Some(b"free_completed") => Action::FreeCompleted,
            Some(b"segment_alloc") => Action::SegmentAlloc,
            Some(b"segment_free") => Action::SegmentFree,
            Some(b"segment_map") => Action::SegmentMap,
            Some(b"segment_unmap") => Action::SegmentUnmap,
            Some(b"oom") => Action::OutOfMemory,
            Some(b"snapshot") => Action::Snapshot,
            // Versions before 2.1 wrote one entry for both.
            Some(b"free") => Action::FreeCompleted,
            Some(_) => {
                self.unknown += 1;
                Action::Other
            }
            None => return Err(Fault::damaged(position(".action"), "is missing or not a text")),
        };
        let number = |value: Value, field: &str, needed: bool| number(arena, value, needed, || position(field));
        let moves_memory = !matches!(action, Action::OutOfMemory | Action::Snapshot | Action::Other);
        let entry = SnapshotEntry {
            action,
            address: number(address, ".addr", moves_memory)?,
            size: number(size, ".size", moves_memory || action == Action::OutOfMemory)?,
            stream: number(stream, ".stream", false)?,
            device_free: number(device_free, ".device_free", false)?,
            time_us: arena.as_int(time_us).and_then(|time| u64::try_from(time).ok()),
            frames: Callers { own, forward },
        };
        if moves_memory && entry.address.checked_add(entry.size).is_none() {
            return Err(Fault::damaged(position(".size"), format!("is {}: beyond any address space", entry.size)));
        }
        Ok(entry)
    }
}

/// A whole number from 0 to 2^64 - 1; 0 for one that is absent and not needed.
pub(super) fn number(
    arena: &Pickled,
    value: Value,
    needed: bool,
    position: impl FnOnce() -> FilePosition,
) -> Result<u64> {
    match arena.as_int(value) {
        Some(int) => match u64::try_from(int) {
            Ok(number) => Ok(number),
            Err(_) => Err(Fault::damaged(position(), format!("is {int}, not a number of 64 bits from 0 up"))),
        },
        None if value.is_absent() && !needed => Ok(0),
        None if value.is_absent() => Err(Fault::damaged(position(), "is missing")),
        None => Err(Fault::damaged(position(), format!("is {}, not a whole number", arena.describe(value)))),
    }
}
