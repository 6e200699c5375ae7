//! Page-locked memory of the host, by way of the driver of any GPU of the process.

use std::sync::{Arc, OnceLock};

use super::calls::{Calls, Failure};
use super::{GpuDevice, GpuEvent};
use crate::{Address, Error, PageLocked, Stream};

/// GPUs that a process can see, at most.
const MOST_GPUS: usize = 64;

/// Page-locked memory of the host. Each call may come from any thread, and none waits for a lock.
#[derive(Debug)]
pub struct HostMemory {
    gpus: [OnceLock<Arc<Calls>>; MOST_GPUS],
}

impl HostMemory {
    /// No GPU was used yet.
    pub const fn new() -> Self {
        HostMemory { gpus: [const { OnceLock::new() }; MOST_GPUS] }
    }

    fn gpu(&self, device: u32) -> Result<&Arc<Calls>, Error> {
        let slot = self.gpus.get(device as usize).ok_or(Error::Unsupported("count so many GPUs"))?;
        if let Some(calls) = slot.get() {
            return Ok(calls);
        }
        let gpu = GpuDevice::cuda(device).or_else(|cuda| GpuDevice::hip(device).map_err(|_| cuda))?;
        Ok(slot.get_or_init(|| gpu.calls))
    }
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory::new()
    }
}

impl PageLocked for HostMemory {
    type Event = GpuEvent;

    fn alloc(&self, device: u32, bytes: u64) -> Result<Address, Error> {
        self.gpu(device)?.alloc_host(bytes).map_err(|failure| match failure {
            // How much there would be no driver says.
            Failure::OutOfMemory => Error::OutOfMemory { requested: bytes, free: 0, total: 0 },
            Failure::Other(error) => error,
        })
    }

    fn free(&self, device: u32, address: Address) -> Result<(), Error> {
        self.gpu(device)?.free_host(address)
    }

    fn record(&self, device: u32, stream: Stream) -> Result<GpuEvent, Error> {
        let calls = self.gpu(device)?;
        // The event is owned from here on, so that it is destroyed if it cannot be recorded.
        let event = GpuEvent { raw: calls.create_event()?, calls: Arc::clone(calls) };
        calls.record(event.raw, stream)?;
        Ok(event)
    }

    fn completed(&self, event: &GpuEvent) -> Result<bool, Error> {
        event.calls.is_complete(event.raw)
    }
}
