//! Virtual memory management: addresses reserved, physical memory created, one mapped to the other (`cuMem*`).
//!
//! Physical memory is only counted. It is given back when its handle is released and its last mapping is gone, whichever comes last.

use super::{DeviceMemory, VIRTUAL_BASE, VIRTUAL_SPAN, device::GRANULE, ranges::Ranges, reserve, shared::SharedBytes};
use crate::errors::{INVALID_DEVICE, INVALID_VALUE, OPERATING_SYSTEM, OUT_OF_MEMORY, Status};
use std::{collections::HashMap, sync::Arc};

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
    /// Other processes may get a descriptor of it.
    is_exportable: bool,
    /// It is another process's, which pays for it.
    is_foreign: bool,
    /// What is known of it, once other processes may have it.
    content: Option<Arc<SharedBytes>>,
}

#[derive(Debug)]
struct HandleMapping {
    handle: PhysicalHandle,
    /// What each device may do with it: "all mappings start with no accessibility setup".
    access: Vec<(u32, u64)>,
}

/// Reservations, physical memory and mappings.
#[derive(Debug, Default)]
pub struct VirtualMemory {
    reservations: Ranges<()>,
    mappings: Ranges<HandleMapping>,
    physical: HashMap<PhysicalHandle, Physical>,
    created: u64,
    created_bytes: u64,
}

impl VirtualMemory {
    /// Reserves addresses. "The size and address parameters must be a multiple of the host page size and the alignment must be a power
    /// of two or zero for default alignment": stricter, as what is mapped there is a multiple of the granule.
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

    /// Creates physical memory on a device, of which other processes may get a descriptor or not.
    pub fn create(
        &mut self,
        devices: &mut [DeviceMemory],
        device: u32,
        bytes: u64,
        is_exportable: bool,
    ) -> Result<PhysicalHandle, Status> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(INVALID_VALUE);
        }
        devices.get_mut(device as usize).ok_or(INVALID_DEVICE)?.charge(bytes)?;
        let (place, content) = (self.created_bytes, None);
        Ok(self.add(Physical {
            device,
            bytes,
            handles: 1,
            mappings: 0,
            place,
            is_exportable,
            is_foreign: false,
            content,
        }))
    }

    fn add(&mut self, physical: Physical) -> PhysicalHandle {
        self.created += 1;
        self.created_bytes += physical.bytes;
        self.physical.insert(self.created, physical);
        self.created
    }

    /// A handle of memory that another process created on a device.
    pub fn import(&mut self, device: u32, content: SharedBytes) -> PhysicalHandle {
        let (bytes, place, content) = (content.bytes(), self.created_bytes, Some(Arc::new(content)));
        let (is_exportable, is_foreign) = (true, true);
        self.add(Physical { device, bytes, handles: 1, mappings: 0, place, is_exportable, is_foreign, content })
    }

    /// What is known of a handle's memory, from now on shared with other processes; and where it is mapped if it was not shared before.
    pub fn export(&mut self, handle: PhysicalHandle) -> Result<(Arc<SharedBytes>, Vec<u64>), Status> {
        let physical = self.physical.get_mut(&handle).filter(|physical| physical.is_exportable && physical.handles > 0);
        let physical = physical.ok_or(INVALID_VALUE)?;
        if let Some(content) = &physical.content {
            return Ok((Arc::clone(content), Vec::new()));
        }
        let content = SharedBytes::page(physical.bytes, physical.device).map_err(|_| OPERATING_SYSTEM)?;
        let content = physical.content.insert(Arc::new(content));
        let mappings = self.mappings.iter().filter(|(_, _, mapping)| mapping.handle == handle);
        Ok((Arc::clone(content), mappings.map(|(start, _, _)| start).collect()))
    }

    /// See [`Self::export`]: `None` as long as no other process may have it.
    pub fn content(&self, handle: PhysicalHandle) -> Option<Arc<SharedBytes>> {
        self.physical.get(&handle)?.content.clone()
    }

    /// Whether other processes may get a descriptor of a handle's memory.
    pub fn is_exportable(&self, handle: PhysicalHandle) -> bool {
        self.physical.get(&handle).is_some_and(|physical| physical.is_exportable)
    }

    /// Releases a handle.
    pub fn release(&mut self, devices: &mut [DeviceMemory], handle: PhysicalHandle) -> Result<(), Status> {
        let physical = self.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
        physical.handles = physical.handles.checked_sub(1).ok_or(INVALID_VALUE)?;
        self.drop_unused(devices, handle);
        Ok(())
    }

    /// Maps the whole of a handle's memory at `start`, inside one reservation. "Both ptr, size, and offset must be a multiple of the value
    /// given via ::cuMemGetAllocationGranularity"; "can only create mappings on VA range reservations that are not currently mapped". A
    /// handle that was released is none any more, even while its memory is mapped.
    pub fn map(&mut self, start: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Status> {
        let inside = self
            .reservations
            .find(start)
            .is_some_and(|(from, length, ())| start.checked_add(bytes).is_some_and(|end| end <= from + length));
        let physical =
            self.physical.get_mut(&handle).filter(|physical| physical.bytes == bytes && physical.handles > 0);
        let physical = physical.ok_or(INVALID_VALUE)?;
        let mapping = HandleMapping { handle, access: Vec::new() };
        if !inside || !start.is_multiple_of(GRANULE) || !self.mappings.insert(start, bytes, mapping) {
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

    /// Whether `[start, start + bytes)` is made up of whole mappings.
    pub fn is_whole(&self, start: u64, bytes: u64) -> bool {
        self.whole_mappings(start, bytes).is_ok()
    }

    /// Sets what devices may do with the mappings that make up `[start, start + bytes)`: "the range must be a fully mapped address range
    /// containing all allocations created by ::cuMemMap / ::cuMemCreate".
    pub fn set_access(&mut self, start: u64, bytes: u64, wanted: &[(u32, u64)]) -> Result<(), Status> {
        for at in self.whole_mappings(start, bytes)? {
            if let Some(mapping) = self.mappings.note_mut(at) {
                for &(device, flags) in wanted {
                    mapping.access.retain(|(other, _)| *other != device);
                    if flags != 0 {
                        mapping.access.push((device, flags));
                    }
                }
            }
        }
        Ok(())
    }

    /// What a device may do with what is mapped at `address`.
    pub fn access(&self, address: u64, device: u32) -> Result<u64, Status> {
        let (_, _, mapping) = self.mappings.find(address).ok_or(INVALID_VALUE)?;
        Ok(mapping.access.iter().find(|(other, _)| *other == device).map_or(0, |(_, flags)| *flags))
    }

    /// Unmaps the mappings that make up `[start, start + bytes)`: where each began. "::cuMemUnmap cannot unmap a sub-range of an address
    /// range mapped by ::cuMemCreate / ::cuMemMap."
    pub fn unmap(&mut self, devices: &mut [DeviceMemory], start: u64, bytes: u64) -> Result<Vec<u64>, Status> {
        let mappings = self.whole_mappings(start, bytes)?;
        for &at in &mappings {
            if let Some((_, HandleMapping { handle, .. })) = self.mappings.remove(at) {
                if let Some(physical) = self.physical.get_mut(&handle) {
                    physical.mappings -= 1;
                }
                self.drop_unused(devices, handle);
            }
        }
        Ok(mappings)
    }

    /// The handle that is mapped at `address`, retained once more.
    pub fn retain(&mut self, address: u64) -> Result<PhysicalHandle, Status> {
        let (_, _, &HandleMapping { handle, .. }) = self.mappings.find(address).ok_or(INVALID_VALUE)?;
        self.physical.get_mut(&handle).ok_or(INVALID_VALUE)?.handles += 1;
        Ok(handle)
    }

    /// The device of a handle's memory.
    pub fn device(&self, handle: PhysicalHandle) -> Option<u32> {
        self.physical.get(&handle).map(|physical| physical.device)
    }

    /// The mapping that holds `address` if a device may use it: device, start, length.
    pub fn mapped(&self, address: u64) -> Option<(u32, u64, u64)> {
        let (start, bytes, mapping) =
            self.mappings.find(address).filter(|(_, _, mapping)| !mapping.access.is_empty())?;
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

    fn drop_unused(&mut self, devices: &mut [DeviceMemory], handle: PhysicalHandle) {
        let unused = self.physical.get(&handle).is_some_and(|physical| physical.handles == 0 && physical.mappings == 0);
        if !unused {
            return;
        }
        if let Some(physical) = self.physical.remove(&handle)
            && !physical.is_foreign
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
