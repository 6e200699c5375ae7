//! Blocks that other streams use: freed by the program at once, reusable once those streams' events have completed.

use std::collections::VecDeque;

use stalloc_device::Device;

use crate::{BlockId, Cache, Outstanding};
use stalloc_allocator::Error;

impl<D: Device> Cache<D> {
    /// Records an event on every stream that uses a block. On failure the block stays as it was.
    pub(super) fn insert_events(&mut self, device: &mut D, id: BlockId) -> Result<(), Error> {
        let streams = self.uses.get(&id).map_or(&[][..], Vec::as_slice);
        let recorded = streams.iter().map(|&stream| Ok((stream, device.record(stream)?)));
        let recorded: Vec<_> = recorded.collect::<Result<_, Error>>()?;
        self.uses.remove(&id);
        let block = &mut self.blocks[id];
        block.shared = false;
        block.events += recorded.len() as u32;
        for (stream, event) in recorded {
            match self.events.iter_mut().find(|events| events.stream == stream) {
                Some(events) => events.queue.push_back((event, id)),
                None => self.events.push(Outstanding { stream, queue: VecDeque::from([(event, id)]) }),
            }
        }
        Ok(())
    }

    /// Frees the blocks whose events have completed. A stream's events complete in order.
    pub(super) fn process_events(&mut self, device: &mut D) -> Result<(), Error> {
        let mut at = 0;
        while at < self.events.len() {
            while let Some((event, _)) = self.events[at].queue.front() {
                if !device.completed(event)? {
                    break;
                }
                self.settle(at);
            }
            if self.events[at].queue.is_empty() {
                self.events.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Waits for every event and frees their blocks.
    pub(super) fn synchronize_events(&mut self, device: &mut D) -> Result<(), Error> {
        for at in 0..self.events.len() {
            while let Some((event, _)) = self.events[at].queue.front() {
                device.wait(event)?;
                self.settle(at);
            }
        }
        self.events.clear();
        Ok(())
    }

    /// The first event of a queue has completed.
    fn settle(&mut self, queue: usize) {
        let Some((_, id)) = self.events[queue].queue.pop_front() else { return };
        let block = &mut self.blocks[id];
        block.events -= 1;
        if block.events == 0 {
            self.make_free(id);
        }
    }
}
