//! Blocks that were given back while other streams may still use them.

use stalloc_device::{Address, Device};

use super::{Arena, Block};
use crate::Error;

/// A block that waits for other streams.
#[derive(Debug)]
pub(super) struct Pending<E> {
    start: u32,
    events: Vec<E>,
}

impl<D: Device> Arena<D> {
    /// Takes back a block that other streams used too; it has been taken from the blocks.
    pub(super) fn free_recorded(&mut self, start: u32, block: Block, address: Address) -> Result<(), Error> {
        self.blocks.insert(start, Block { pending: true, ..block });
        if block.pending {
            return Err(Error::UnknownAddress(address));
        }
        self.statistics.allocated -= block.bytes();
        if self.capturing {
            self.deferred.push(start);
        } else {
            self.wait_for_streams(start);
        }
        Ok(())
    }

    /// Records an event on every stream that a block was recorded on. If the device refuses one, the block is never
    /// used again: memory is lost, correctness is not.
    fn wait_for_streams(&mut self, start: u32) {
        let streams = self.recorded.remove(&start).unwrap_or_default();
        let events: Result<Vec<_>, _> = streams.iter().map(|&stream| self.device.record(stream)).collect();
        if let Ok(events) = events {
            self.pending.push_back(Pending { start, events });
        }
    }

    /// Records what was put off during a capture.
    pub(super) fn record_deferred(&mut self) {
        for start in std::mem::take(&mut self.deferred) {
            self.wait_for_streams(start);
        }
    }

    /// Frees the blocks at the head of the queue whose streams are done.
    pub(super) fn poll(&mut self) {
        while let Some(pending) = self.pending.front_mut()
            && is_done(&mut self.device, pending)
        {
            let start = pending.start;
            self.pending.pop_front();
            self.finish(start);
        }
    }

    /// Frees every block whose streams are done.
    pub(super) fn poll_all(&mut self) {
        for _ in 0..self.pending.len() {
            let Some(mut pending) = self.pending.pop_front() else { break };
            if is_done(&mut self.device, &mut pending) {
                self.finish(pending.start);
            } else {
                self.pending.push_back(pending);
            }
        }
    }

    fn finish(&mut self, start: u32) {
        if let Some(block) = self.blocks.remove(&start) {
            self.make_free(start, block);
        }
    }
}

/// Whether all events have completed; those that have are dropped. An event that cannot be asked has not.
fn is_done<D: Device>(device: &mut D, pending: &mut Pending<D::Event>) -> bool {
    while let Some(event) = pending.events.last() {
        if !device.completed(event).unwrap_or(false) {
            return false;
        }
        pending.events.pop();
    }
    true
}
