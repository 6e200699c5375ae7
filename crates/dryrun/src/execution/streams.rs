//! Streams: an order that means nothing here, and properties that programs ask for.

use super::{Execution, Handle, new_handle};
use crate::errors::{INVALID_HANDLE, Status};

/// The streams that always exist: the default one, by its three names.
pub const LEGACY: [Handle; 3] = [0, 1, 2];

/// The flag of streams that take no turns with the default one.
const NON_BLOCKING: u32 = 1;

/// A stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stream {
    /// Its device.
    pub device: u32,
    /// Lower is more urgent.
    pub priority: i32,
    /// As created.
    pub flags: u32,
    /// Number of the capture that it takes part in.
    pub capture: Option<u64>,
}

impl Execution {
    /// A new stream.
    pub fn create_stream(&mut self, device: u32, priority: i32, flags: u32) -> Handle {
        let handle = new_handle();
        if flags & NON_BLOCKING == 0 {
            self.order_stream(handle, device);
        }
        let stream = Stream { device, priority, flags, capture: None };
        self.streams.insert(handle, stream);
        handle
    }

    /// Destroys a stream.
    pub fn destroy_stream(&mut self, handle: Handle) -> Result<(), Status> {
        self.streams.remove(&handle).map(drop).ok_or(INVALID_HANDLE)
    }

    /// A stream; the default one takes part in no capture.
    pub fn stream(&self, handle: Handle) -> Result<Stream, Status> {
        if LEGACY.contains(&handle) {
            return Ok(Stream { device: crate::runtime_api::current_device(), ..Stream::default() });
        }
        self.streams.get(&handle).copied().ok_or(INVALID_HANDLE)
    }

    pub(super) fn stream_mut(&mut self, handle: Handle) -> Option<&mut Stream> {
        self.streams.get_mut(&handle)
    }
}
