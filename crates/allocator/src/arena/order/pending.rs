//! Blocks that were given back while other streams may still use them.

use std::collections::VecDeque;

use stalloc_device::{Device, Stream};

use super::Order;

/// What blocks wait for on one stream, in the order in which it will be done.
#[derive(Debug)]
pub(super) struct Pending<E> {
    stream: Stream,
    /// First granules of blocks, and the events behind their last uses on this stream.
    blocks: VecDeque<(u32, E)>,
}

impl<D: Device> Order<D> {
    /// Notes that another stream uses a block, too.
    pub fn record_stream(&mut self, start: u32, stream: Stream) {
        let recorded = self.recorded.entry(start).or_default();
        if !recorded.contains(&stream) {
            recorded.push(stream);
        }
    }

    /// A block was given back that other streams use: it waits for them, from after a capture on while there is one.
    pub fn wait_for_others(&mut self, device: &mut D, start: u32) {
        if self.capturing {
            self.deferred.push(start);
        } else {
            self.wait_for_streams(device, start);
        }
    }

    /// Records an event on every stream that a block was recorded on. If the device refuses one, the block is never
    /// used again: memory is lost, correctness is not.
    pub(super) fn wait_for_streams(&mut self, device: &mut D, start: u32) {
        let streams = self.recorded.remove(&start).unwrap_or_default();
        self.waits.insert(start, streams.len() as u32);
        for stream in streams {
            let Ok(event) = device.record(stream) else { continue };
            let known = self.pending.iter_mut().find(|pending| pending.stream == stream);
            match known {
                Some(pending) => pending.blocks.push_back((start, event)),
                None => self.pending.push(Pending { stream, blocks: VecDeque::from([(start, event)]) }),
            }
        }
    }

    /// How many streams blocks wait for.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// A block whose streams are done; of the first so many pending ones `left` are to be asked still. One question for each stream that
    /// is not done, whatever waits for it.
    pub fn next_done(&mut self, device: &mut D, left: &mut usize) -> Option<u32> {
        while let Some(index) = left.checked_sub(1) {
            // An event that cannot be asked is not complete.
            while let Some((start, event)) = self.pending[index].blocks.front()
                && device.completed(event).unwrap_or(false)
            {
                let start = *start;
                self.pending[index].blocks.pop_front();
                if self.is_last(start) {
                    return Some(start);
                }
            }
            if self.pending[index].blocks.is_empty() {
                self.pending.swap_remove(index);
            }
            *left = index;
        }
        None
    }

    /// One stream less uses a block that was given back; whether it was the last.
    fn is_last(&mut self, start: u32) -> bool {
        let Some(waits) = self.waits.get_mut(&start) else { return false };
        *waits -= 1;
        let is_last = *waits == 0;
        if is_last {
            self.waits.remove(&start);
        }
        is_last
    }
}
