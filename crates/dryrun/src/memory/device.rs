//! The memory of one device: capacity and `cudaMalloc`.
//!
//! As the driver does, an allocation of a mebibyte or more takes whole granules of 2 MiB, smaller ones share a granule.

use stalloc_common::DriverPlaces;

use super::{DEVICE_SPAN, ranges::Ranges, reserve};
use crate::errors::{INVALID_VALUE, OUT_OF_MEMORY, Status};

/// The unit in which a device gives out memory, in bytes.
pub const GRANULE: u64 = 2 << 20;
const SMALL: u64 = 1 << 20;
const SMALL_ALIGNMENT: u64 = 512;

/// The memory of a stand-in GPU: allocations by address, what was opened of other processes, bytes in use and at most.
pub struct DeviceMemory {
    base: u64,
    total: u64,
    /// What can be used: `total`, unless memory is ample.
    limit: u64,
    used: u64,
    peak: u64,
    /// Allocations as the program sees them.
    allocations: Ranges<()>,
    /// Memory of other processes.
    opened: Ranges<()>,
    /// What is taken from the device, in granules: how many bytes of it are allocated.
    granules: Ranges<u64>,
    /// Where they lie.
    places: DriverPlaces,
}

impl DeviceMemory {
    /// A device whose addresses begin at `base`.
    pub fn new(base: u64, total: u64, context: u64) -> Self {
        Self {
            base,
            total,
            limit: total,
            used: context,
            peak: context,
            allocations: Ranges::default(),
            opened: Ranges::default(),
            granules: Ranges::default(),
            places: DriverPlaces::below(base + DEVICE_SPAN),
        }
    }

    /// Lets memory never run out, whatever the capacity says.
    pub fn make_ample(&mut self) {
        self.limit = DEVICE_SPAN;
    }

    /// Capacity in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that cannot be had any more.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that a program is told are free: none when more is used than the capacity.
    pub fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    /// The most that was ever used.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Takes `bytes` of the capacity.
    pub fn charge(&mut self, bytes: u64) -> Result<(), Status> {
        let used = self.used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used = used.ok_or(OUT_OF_MEMORY)?;
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    /// Gives `bytes` of the capacity back.
    pub fn credit(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// `cudaMalloc`: the address of `bytes`, which are not zero.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, Status> {
        if bytes >= SMALL {
            let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(OUT_OF_MEMORY)?;
            let start = self.take(rounded)?;
            self.occupy(start, rounded);
            self.allocations.insert(start, rounded, ());
            return Ok(start);
        }
        let rounded = bytes.max(1).next_multiple_of(SMALL_ALIGNMENT);
        let shared = self.granules.iter().find_map(|(start, length, _)| {
            (length == GRANULE)
                .then(|| self.allocations.gap(start, start + GRANULE, rounded, SMALL_ALIGNMENT))
                .flatten()
                .map(|place| (start, place))
        });
        let (granule, place) = match shared {
            Some(found) => found,
            None => {
                let start = self.take(GRANULE)?;
                (start, start)
            }
        };
        self.occupy(granule, rounded);
        self.allocations.insert(place, rounded, ());
        Ok(place)
    }

    /// Counts `bytes` as allocated in the granules that begin at `start`.
    fn occupy(&mut self, start: u64, bytes: u64) {
        if let Some(live) = self.granules.note_mut(start) {
            *live += bytes;
        }
    }

    /// Takes whole granules from the device.
    fn take(&mut self, bytes: u64) -> Result<u64, Status> {
        self.charge(bytes)?;
        while let Some(start) = self.places.take(bytes).filter(|&start| start >= self.base) {
            match reserve::reserve(start, bytes) {
                Ok(()) => {
                    self.granules.insert(start, bytes, 0);
                    return Ok(start);
                }
                // Something of the host lies there: go on elsewhere.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    crate::log::complain(&format!("cannot reserve {bytes} bytes of address space: {error}"));
                    break;
                }
            }
        }
        self.credit(bytes);
        Err(OUT_OF_MEMORY)
    }

    /// Frees the allocation that begins at `address`; its length as allocated.
    pub fn free(&mut self, address: u64) -> Result<u64, Status> {
        let (bytes, ()) = self.allocations.remove(address).ok_or(INVALID_VALUE)?;
        if let Some((start, length, _)) = self.granules.find(address) {
            let live = self.granules.note_mut(start).map_or(0, |live| {
                *live -= bytes;
                *live
            });
            if live == 0 {
                self.granules.remove(start);
                reserve::release(start, length);
                self.places.give(start, length);
                self.credit(length);
            }
        }
        Ok(bytes)
    }

    /// Addresses for memory of another process, which counts there.
    pub fn open(&mut self, bytes: u64) -> Result<u64, Status> {
        let bytes = bytes.checked_next_multiple_of(GRANULE).ok_or(OUT_OF_MEMORY)?;
        let start = self.opened.gap(self.base, self.base + DEVICE_SPAN / 2, bytes, GRANULE).ok_or(OUT_OF_MEMORY)?;
        reserve::reserve(start, bytes).map_err(|_| OUT_OF_MEMORY)?;
        self.opened.insert(start, bytes, ());
        Ok(start)
    }

    /// Gives back what [`Self::open`] gave out.
    pub fn close(&mut self, address: u64) -> Option<()> {
        let (bytes, ()) = self.opened.remove(address)?;
        reserve::release(address, bytes);
        Some(())
    }

    /// The allocation of this process that holds `address`: start and length.
    pub fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        self.allocations.find(address).map(|(start, bytes, ())| (start, bytes))
    }

    /// The allocation that holds `address`, this process's or another's: start and length.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.allocation(address).or_else(|| self.opened.find(address).map(|(start, bytes, ())| (start, bytes)))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let granules = self.granules.iter().map(|(start, bytes, _)| (start, bytes));
        for (start, bytes) in granules.chain(self.opened.iter().map(|(start, bytes, ())| (start, bytes))) {
            reserve::release(start, bytes);
        }
    }
}
