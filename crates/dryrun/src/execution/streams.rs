//! Streams: lines of the clock, and properties that programs ask for.

use super::{Execution, Handle, durations::LAUNCH, new_handle, order};
use crate::errors::{INVALID_HANDLE, Status};

/// The streams that always exist: the default one, by its three names.
pub const LEGACY: [Handle; 3] = [0, 1, 2];

/// The flag of streams that take no turns with the default one.
const NON_BLOCKING: u32 = 1;

/// A CUDA stream of the stand-in: its device, priority and flags, and the capture that it is in.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamState {
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
            self.timeline.take_turns(handle, device);
        }
        let stream = StreamState { device, priority, flags, capture: None };
        self.streams.insert(handle, stream);
        handle
    }

    /// Destroys a stream.
    pub fn destroy_stream(&mut self, handle: Handle) -> Result<(), Status> {
        self.streams.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.timeline.end(handle);
        Ok(())
    }

    /// A stream; the default one takes part in no capture.
    pub fn stream(&self, handle: Handle) -> Result<StreamState, Status> {
        if LEGACY.contains(&handle) {
            return Ok(StreamState { device: crate::runtime_api::current_device(), ..StreamState::default() });
        }
        self.streams.get(&handle).copied().ok_or(INVALID_HANDLE)
    }

    /// A stream's line of the clock.
    pub(super) fn line(stream: Handle) -> Handle {
        order::name(stream, if LEGACY.contains(&stream) { crate::runtime_api::current_device() } else { 0 })
    }

    /// The host puts work on a stream that takes so long, nanoseconds.
    pub(super) fn launch(&mut self, stream: Handle, nanoseconds: u64) {
        self.timeline.spend(LAUNCH);
        if !self.takes_in_capture(stream, nanoseconds) {
            self.timeline.run(Self::line(stream), nanoseconds);
        }
    }

    /// A copy is put on a stream, which one way of a link to the host does after those before it.
    pub(super) fn copy(&mut self, stream: Handle, link: u64, nanoseconds: u64) {
        self.timeline.spend(LAUNCH);
        if !self.takes_in_capture(stream, nanoseconds) {
            self.timeline.copy(Self::line(stream), link, nanoseconds);
        }
    }

    /// A stream's last work takes so much longer, nanoseconds.
    pub(super) fn lengthen(&mut self, stream: Handle, nanoseconds: u64) {
        if !self.takes_in_capture(stream, nanoseconds) {
            self.timeline.lengthen(Self::line(stream), nanoseconds);
        }
    }

    /// When a stream is done with all that it was given.
    pub(super) fn done(&mut self, stream: Handle) -> u64 {
        let line = Self::line(stream);
        self.timeline.moment(line)
    }

    pub(super) fn stream_mut(&mut self, handle: Handle) -> Option<&mut StreamState> {
        self.streams.get_mut(&handle)
    }
}
