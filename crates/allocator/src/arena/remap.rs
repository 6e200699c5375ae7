//! Remaps: memory of addresses without a block is mapped where it is needed, while the device runs.
//!
//! The pages stay mapped where they were until all that streams had been given by then is done, since it may use the old
//! addresses. Meanwhile one page is behind two addresses, of which the arena uses the new one only. A stream that gets it comes
//! after the streams that used it last, by events. So neither the host nor other streams wait, but where a driver maps
//! a page once only, or an old address is needed again too soon.

use std::ops::Range;
use std::time::Duration;

use stalloc_device::{Device, Error};

use super::Arena;

/// Frames whose memory is behind other frames by now.
#[derive(Debug)]
pub(super) struct Left<E> {
    frames: Vec<usize>,
    /// With them, all that may use the old addresses is done.
    events: Vec<E>,
}

impl<D: Device> Arena<D> {
    /// Puts memory from where no block is behind a range, for a stream to use: up to so many bytes, as far as there is any.
    pub(super) fn remap(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        let before = self.device.driver_work().nanoseconds;
        let result = self.remap_cold(range, bytes, stream);
        if self.statistics.steps >= self.settled {
            let time = self.device.driver_work().nanoseconds.saturating_sub(before);
            self.budget.spend(Duration::from_nanos(time));
        }
        result
    }

    fn remap_cold(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        let mut wanted = self.frames.without_memory(range);
        let size = self.frames.frame().unwrap_or(u64::MAX);
        wanted.truncate(usize::try_from(bytes.div_ceil(size)).unwrap_or(usize::MAX));
        let cold = self.cold_frames(wanted.len() as u64 * size, range);
        if cold.is_empty() {
            return Ok(());
        }
        self.unmap_done()?;
        let events = self.come_after(&cold, stream)?;
        let mut left = Left { frames: Vec::with_capacity(cold.len()), events };
        let mut result = Ok(());
        for (&from, &to) in cold.iter().zip(&wanted) {
            result = self.remap_frame(from, to, &mut left.frames);
            if result.is_err() {
                break;
            }
            // All that used the memory before comes before the stream.
            self.owners.forget(self.frames.granules_of(from));
            self.owners.note(self.frames.granules_of(to), stream);
            self.statistics.remapped += size;
        }
        if !left.frames.is_empty() {
            self.left.push_back(left);
        }
        self.statistics.remaps += 1;
        result
    }

    fn remap_frame(&mut self, from: usize, to: usize, left: &mut Vec<usize>) -> Result<(), Error> {
        self.unmap_left(to)?;
        if self.frames.alias(&mut self.device, from, to).is_ok() {
            left.push(from);
            return Ok(());
        }
        // The driver maps a page once only.
        self.wait_for_device()?;
        self.frames.unmap(&mut self.device, &[from])?;
        self.frames.map(&mut self.device, &self.frames.granules_of(to))
    }

    /// Unmaps a frame that has its old memory still, if it does. Waits for whoever may use it.
    pub(super) fn unmap_left(&mut self, frame: usize) -> Result<(), Error> {
        let Some(place) = self.left.iter().position(|left| left.frames.contains(&frame)) else { return Ok(()) };
        for event in &self.left[place].events {
            self.device.wait(event)?;
        }
        self.unmap_nth(place)
    }

    /// Unmaps what nobody uses any more.
    fn unmap_done(&mut self) -> Result<(), Error> {
        while let Some(left) = self.left.front() {
            for event in &left.events {
                if !self.device.completed(event)? {
                    return Ok(());
                }
            }
            self.unmap_nth(0)?;
        }
        Ok(())
    }

    /// Unmaps every old mapping. The device must be idle.
    pub(super) fn unmap_all_left(&mut self) -> Result<(), Error> {
        while !self.left.is_empty() {
            self.unmap_nth(0)?;
        }
        Ok(())
    }

    fn unmap_nth(&mut self, place: usize) -> Result<(), Error> {
        while let Some(frame) = self.left[place].frames.last() {
            self.frames.unmap_left(&mut self.device, *frame)?;
            self.left[place].frames.pop();
        }
        self.left.remove(place);
        Ok(())
    }
}
