//! Who owns which addresses, and what is known about their content.
//!
//! Device memory is address space that is reserved and cannot be touched: a program that follows a device pointer on the host fails
//! as it would on a GPU, and eighty gibibytes cost nothing. All of it is deterministic: the same calls get the same addresses.

mod copy;
mod device;
mod host;
mod known;
mod ranges;
mod reserve;
mod shared;
mod virtual_memory;

#[cfg(test)]
mod tests;

pub use copy::{Rows, copy, fill, host_bytes, host_bytes_mut, is_kept, plain};
pub use device::{DeviceMemory, GRANULE};
pub use host::HostKind;
pub use known::{KnownBytes, Provenance};
pub use shared::IpcHandle;
pub use virtual_memory::PhysicalHandle;

use crate::{
    config::config,
    errors::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, OPERATING_SYSTEM, OUT_OF_MEMORY, Status},
    execution, forks,
};
use host::HostBlocks;
use shared::SharedBytes;
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use virtual_memory::VirtualMemory;

/// Calls that took memory from a device, gave it back, mapped it, opened it to a device, or unmapped it.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Counts such a call, which takes the host so many nanoseconds.
pub fn count_call(price: u64) {
    execution::spend(price);
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// How many there were.
pub fn counted_calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Where device addresses begin; below are the host's program and heap when it is not relocated.
pub const DEVICE_BASE: u64 = 0x1000_0000_0000;
/// Addresses that each device has.
pub const DEVICE_SPAN: u64 = 0x0200_0000_0000;
/// Where reservations of virtual memory begin.
pub const VIRTUAL_BASE: u64 = 0x3000_0000_0000;
/// Addresses for reservations.
pub const VIRTUAL_SPAN: u64 = 0x2000_0000_0000;

/// Whether an address is one that only a device can use.
pub fn is_device(address: u64) -> bool {
    (DEVICE_BASE..VIRTUAL_BASE + VIRTUAL_SPAN).contains(&address)
}

/// What an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Memory of a device, allocated or mapped.
    Device {
        /// Which.
        device: u32,
        /// Start of the allocation.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Memory of the host that CUDA knows.
    Host {
        /// How CUDA came to know it.
        kind: HostKind,
        /// Start of the range.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Anything else.
    Unknown,
}

/// What the stand-in knows of memory in this process: each GPU's allocations, host ranges, mappings, values.
pub struct ProcessMemory {
    devices: Vec<DeviceMemory>,
    host: HostBlocks,
    virtual_memory: VirtualMemory,
    known: KnownBytes,
}

impl ProcessMemory {
    /// Devices of `total` bytes each, of which the context has taken `context`.
    pub fn new(devices: u32, total: u64, context: u64) -> Self {
        Self {
            devices: (0..devices)
                .map(|index| DeviceMemory::new(DEVICE_BASE + u64::from(index) * DEVICE_SPAN, total, context))
                .collect(),
            host: HostBlocks::default(),
            virtual_memory: VirtualMemory::default(),
            known: KnownBytes::default(),
        }
    }

    /// A device's memory.
    pub fn device(&mut self, index: u32) -> Result<&mut DeviceMemory, Status> {
        self.devices.get_mut(index as usize).ok_or(crate::errors::INVALID_DEVICE)
    }

    /// All devices, in order.
    pub fn devices(&self) -> &[DeviceMemory] {
        &self.devices
    }

    /// Page-locked and managed memory of the host.
    pub fn host(&mut self) -> &mut HostBlocks {
        &mut self.host
    }

    /// What is known about the content of device memory.
    pub fn known(&mut self) -> &mut KnownBytes {
        &mut self.known
    }

    /// Frees device memory at its first address.
    pub fn free(&mut self, address: u64) -> Result<(), Status> {
        let index = address
            .checked_sub(DEVICE_BASE)
            .map(|offset| offset / DEVICE_SPAN)
            .and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| self.devices.get_mut(index)) {
            Some(device) => {
                let bytes = device.free(address)?;
                self.known.unshare(address);
                self.known.forget(address, bytes);
                Ok(())
            }
            None => self.host.free(address, HostKind::Managed).map_err(|_| INVALID_VALUE),
        }
    }

    /// What other processes open the allocation by that begins at an address (`cudaIpcGetMemHandle`). What a program maps by pages has no
    /// such handle, and neither has memory of another process.
    pub fn share(&mut self, address: u64) -> Result<IpcHandle, Status> {
        let own = self.devices.iter().find_map(|device| device.allocation(address)).ok_or(INVALID_VALUE)?;
        self.known.share(own.0, own.1).map_err(|error| {
            crate::log::complain(&format!("cannot share {} bytes with another process: {error}", own.1));
            OUT_OF_MEMORY
        })
    }

    /// Opens the allocation of another process on a device; its address here (`cudaIpcOpenMemHandle`).
    pub fn open_shared(&mut self, device: u32, handle: IpcHandle) -> Result<u64, Status> {
        if handle.fields()[0] == u64::from(std::process::id()) {
            return Err(INVALID_CONTEXT); // a process knows its own memory already
        }
        let shared = SharedBytes::open(handle).map_err(|_| INVALID_HANDLE)?;
        let address = self.device(device)?.open(shared.bytes())?;
        self.known.open(address, Arc::new(shared));
        Ok(address)
    }

    /// Closes what [`Self::open_shared`] opened.
    pub fn close_shared(&mut self, address: u64) -> Result<(), Status> {
        self.devices.iter_mut().find_map(|device| device.close(address)).ok_or(INVALID_VALUE)?;
        self.known.unshare(address);
        Ok(())
    }

    /// A descriptor of a handle's memory, by which other processes get it.
    pub fn export(&mut self, handle: PhysicalHandle) -> Result<OwnedFd, Status> {
        let (content, mappings) = self.virtual_memory.export(handle)?;
        for start in mappings {
            self.known.hand_over(start, Arc::clone(&content));
        }
        content.descriptor().map_err(|_| OPERATING_SYSTEM)
    }

    /// A handle of the memory that another process exported.
    pub fn import(&mut self, descriptor: BorrowedFd<'_>) -> Result<PhysicalHandle, Status> {
        let (content, device) = SharedBytes::import(descriptor).map_err(|_| INVALID_VALUE)?;
        self.device(device)?;
        Ok(self.virtual_memory.import(device, content))
    }

    /// Maps the whole of a handle's memory at `start`.
    pub fn map(&mut self, start: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Status> {
        self.virtual_memory.map(start, bytes, handle)?;
        if let Some(content) = self.virtual_memory.content(handle) {
            self.known.open(start, content);
        }
        Ok(())
    }

    /// Unmaps the mappings that make up `[start, start + bytes)`.
    pub fn unmap(&mut self, start: u64, bytes: u64) -> Result<(), Status> {
        for mapping in self.virtual_memory.unmap(&mut self.devices, start, bytes)? {
            self.known.unshare(mapping);
        }
        self.known.forget(start, bytes);
        Ok(())
    }

    /// What an address belongs to.
    pub fn owner(&self, address: u64) -> Owner {
        if let Some((kind, start, bytes)) = self.host.find(address) {
            return Owner::Host { kind, start, bytes };
        }
        for (device, memory) in (0..).zip(&self.devices) {
            if let Some((start, bytes)) = memory.find(address) {
                return Owner::Device { device, start, bytes };
            }
        }
        match self.virtual_memory.mapped(address) {
            Some((device, start, bytes)) => Owner::Device { device, start, bytes },
            None => Owner::Unknown,
        }
    }

    /// Virtual memory with the devices that it takes its physical memory from.
    pub fn virtual_memory(&mut self) -> (&mut VirtualMemory, &mut [DeviceMemory]) {
        (&mut self.virtual_memory, &mut self.devices)
    }
}

static MEMORY: LazyLock<Mutex<ProcessMemory>> = LazyLock::new(|| {
    let config = config();
    let mut memory = ProcessMemory::new(config.devices, config.gpu.total, config.gpu.context);
    if config.ample {
        memory.devices.iter_mut().for_each(DeviceMemory::make_ample);
    }
    forks::wait_for(|| forks::taken(MEMORY.try_lock()));
    Mutex::new(memory)
});

/// The memory of this process.
pub fn memory() -> MutexGuard<'static, ProcessMemory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}
