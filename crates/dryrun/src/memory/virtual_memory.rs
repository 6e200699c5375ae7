//! Virtual memory management: addresses reserved, physical memory created, one mapped to the other (`cuMem*`).
//!
//! Physical memory is only counted. It is given back when its handle is released and its last mapping is gone, whichever comes last.

use super::{Device, VIRTUAL_BASE, VIRTUAL_SPAN, device::GRANULE, ranges::Ranges, reserve};
use crate::errors::{INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, Status};
use std::collections::HashMap;

/// Where memory lies that is behind addresses: beyond all of these.
const PHYSICAL_BASE: u64 = 1 << 60;

/// A handle of physical memory.
pub type PhysicalHandle = u64;

#[derive(Debug)]
struct Physical {
    device: u32,
    bytes: u64,
    handles: u32,
    mappings: u32,
    /// Where it begins if all memory that was ever created lay in a row.
    place: u64,
}

#[derive(Debug)]
struct Mapping {
    handle: PhysicalHandle,
    /// A device may use it.
    is_accessible: bool,
}

/// Reservations, physical memory and mappings.
#[derive(Debug, Default)]
pub struct VirtualMemory {
    reservations: Ranges<()>,
    mappings: Ranges<Mapping>,
    physical: HashMap<PhysicalHandle, Physical>,
    created: u64,
    created_bytes: u64,
}

impl VirtualMemory {
    /// Reserves addresses; `bytes` is a multiple of the granule.
    pub fn reserve(&mut self, bytes: u64, alignment: u64) -> Result<u64, Status> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULE);
        let mut from = VIRTUAL_BASE;
        while let Some(start) = self.reservations.gap(from, VIRTUAL_BASE + VIRTUAL_SPAN, bytes, alignment) {
            match reserve::reserve(start, bytes) {
                Ok(()) => {
                    self.reservations.insert(start, bytes, ());
                    return Ok(start);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => from = start + GRANULE,
                Err(_) => break,
            }
        }
        Err(OUT_OF_MEMORY)
    }

    /// Gives a reservation back, in which nothing may be mapped any more.
    pub fn unreserve(&mut self, start: u64, bytes: u64) -> Result<(), Status> {
        let whole = self.reservations.at(start).is_some_and(|(length, ())| length == bytes);
        if !whole || !self.mappings.within(start, bytes).is_empty() {
            return Err(INVALID_VALUE);
        }
        self.reservations.remove(start);
        reserve::release(start, bytes);
        Ok(())
    }

    /// Creates physical memory on a device.
    pub fn create(&mut self, devices: &mut [Device], device: u32, bytes: u64) -> Result<PhysicalHandle, Status> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(INVALID_VALUE);
        }
        devices.get_mut(device as usize).ok_or(INVALID_DEVICE)?.charge(bytes)?;
        self.created += 1;
        let physical = Physical { device, bytes, handles: 1, mappings: 0, place: self.created_bytes };
        self.created_bytes += bytes;
        self.physical.insert(self.created, physical);
        Ok(self.created)
    }

    /// Releases a handle.
    pub fn release(&mut self, devices: &mut [Device], handle: PhysicalHandle) -> Result<(), Status> {
        let physical = self.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
        physical.handles = physical.handles.checked_sub(1).ok_or(INVALID_VALUE)?;
        self.drop_unused(devices, handle);
        Ok(())
    }

    /// Maps the whole of a handle's memory at `start`, inside one reservation.
    pub fn map(&mut self, start: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Status> {
        let inside = self
            .reservations
            .find(start)
            .is_some_and(|(from, length, ())| start.checked_add(bytes).is_some_and(|end| end <= from + length));
        let physical =
            self.physical.get_mut(&handle).filter(|physical| physical.bytes == bytes).ok_or(INVALID_VALUE)?;
        if !inside || !self.mappings.insert(start, bytes, Mapping { handle, is_accessible: false }) {
            return Err(INVALID_VALUE);
        }
        physical.mappings += 1;
        Ok(())
    }

    /// The mappings that make up `[start, start + bytes)`; an error if some of it is not mapped, or a mapping is in it in part.
    fn whole_mappings(&self, start: u64, bytes: u64) -> Result<Vec<u64>, Status> {
        let inside = self.mappings.within(start, bytes);
        let covered: u64 = inside.iter().filter_map(|at| self.mappings.at(*at)).map(|(length, _)| length).sum();
        if covered == bytes && bytes > 0 { Ok(inside) } else { Err(INVALID_VALUE) }
    }

    /// Gives access to the mappings that make up `[start, start + bytes)`.
    pub fn set_access(&mut self, start: u64, bytes: u64) -> Result<(), Status> {
        for at in self.whole_mappings(start, bytes)? {
            if let Some(mapping) = self.mappings.note_mut(at) {
                mapping.is_accessible = true;
            }
        }
        Ok(())
    }

    /// Unmaps the mappings that make up `[start, start + bytes)`.
    pub fn unmap(&mut self, devices: &mut [Device], start: u64, bytes: u64) -> Result<(), Status> {
        for at in self.whole_mappings(start, bytes)? {
            if let Some((_, Mapping { handle, .. })) = self.mappings.remove(at) {
                if let Some(physical) = self.physical.get_mut(&handle) {
                    physical.mappings -= 1;
                }
                self.drop_unused(devices, handle);
            }
        }
        Ok(())
    }

    /// The handle that is mapped at `address`, retained once more.
    pub fn retain(&mut self, address: u64) -> Result<PhysicalHandle, Status> {
        let (_, _, &Mapping { handle, .. }) = self.mappings.find(address).ok_or(INVALID_VALUE)?;
        self.physical.get_mut(&handle).ok_or(INVALID_VALUE)?.handles += 1;
        Ok(handle)
    }

    /// The device of a handle's memory.
    pub fn device(&self, handle: PhysicalHandle) -> Option<u32> {
        self.physical.get(&handle).map(|physical| physical.device)
    }

    /// The mapping that holds `address` if a device may use it: device, start, length.
    pub fn mapped(&self, address: u64) -> Option<(u32, u64, u64)> {
        let (start, bytes, mapping) = self.mappings.find(address).filter(|(_, _, mapping)| mapping.is_accessible)?;
        Some((self.device(mapping.handle)?, start, bytes))
    }

    /// The memory behind a range, start and bytes of each piece; memory that is behind two addresses is the same piece.
    pub fn behind(&self, start: u64, bytes: u64) -> Vec<(u64, u64)> {
        let (mut at, end) = (start, start.saturating_add(bytes));
        let mut pieces = Vec::new();
        while at < end
            && let Some((from, length, mapping)) = self.mappings.find(at)
            && let Some(physical) = self.physical.get(&mapping.handle)
        {
            let until = end.min(from + length);
            pieces.push((PHYSICAL_BASE + physical.place + (at - from), until - at));
            at = until;
        }
        pieces
    }

    fn drop_unused(&mut self, devices: &mut [Device], handle: PhysicalHandle) {
        let unused = self.physical.get(&handle).is_some_and(|physical| physical.handles == 0 && physical.mappings == 0);
        if !unused {
            return;
        }
        if let Some(physical) = self.physical.remove(&handle)
            && let Some(device) = devices.get_mut(physical.device as usize)
        {
            device.credit(physical.bytes);
        }
    }
}

impl Drop for VirtualMemory {
    fn drop(&mut self) {
        for (start, bytes, ()) in self.reservations.iter() {
            reserve::release(start, bytes);
        }
    }
}
