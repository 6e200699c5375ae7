//! Blocks that were given back while other streams may still use them.

use std::collections::VecDeque;

use stalloc_device::{Address, Device, Stream};

use super::{Arena, Block};
use crate::Error;

/// What blocks wait for on one stream, in the order in which it will be done.
#[derive(Debug)]
pub(super) struct Pending<E> {
    stream: Stream,
    /// First granules of blocks, and the events behind their last uses on this stream.
    blocks: VecDeque<(u32, E)>,
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
        self.waits.insert(start, streams.len() as u32);
        for stream in streams {
            let Ok(event) = self.device.record(stream) else { continue };
            let known = self.pending.iter_mut().find(|pending| pending.stream == stream);
            match known {
                Some(pending) => pending.blocks.push_back((start, event)),
                None => self.pending.push(Pending { stream, blocks: VecDeque::from([(start, event)]) }),
            }
        }
    }

    /// Records what was put off during a capture.
    pub(super) fn record_deferred(&mut self) {
        for start in std::mem::take(&mut self.deferred) {
            self.wait_for_streams(start);
        }
    }

    /// Frees the blocks whose streams are done. One question for each stream that is not, whatever waits for it.
    pub(super) fn poll(&mut self) {
        for index in (0..self.pending.len()).rev() {
            // An event that cannot be asked is not complete.
            while let Some((start, event)) = self.pending[index].blocks.front()
                && self.device.completed(event).unwrap_or(false)
            {
                let start = *start;
                self.pending[index].blocks.pop_front();
                self.finish(start);
            }
            if self.pending[index].blocks.is_empty() {
                self.pending.swap_remove(index);
            }
        }
    }

    /// One stream less uses a block that was given back.
    fn finish(&mut self, start: u32) {
        let Some(waits) = self.waits.get_mut(&start) else { return };
        *waits -= 1;
        if *waits == 0 {
            self.waits.remove(&start);
            if let Some(block) = self.blocks.remove(&start) {
                self.make_free(start, block);
            }
        }
    }
}
