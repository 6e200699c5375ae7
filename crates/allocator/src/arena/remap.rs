//! Remaps: memory of addresses without a block is mapped where it is needed, while the device runs.
//!
//! The pages stay mapped where they were until all that streams had been given by then is done, since it may use the old
//! addresses. Meanwhile one page is behind two addresses, of which the arena uses the new one only. A stream that gets it comes
//! after the streams that used it last, by events. So neither the host nor other streams wait, but where a driver maps
//! a page once only, or an old address is needed again too soon.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stalloc_device::{Device, Error};

use super::Arena;
use crate::frames::Handle;
use crate::script::GRANULE;

/// Frames whose memory is behind other frames by now.
#[derive(Debug)]
pub(super) struct OldMappings<E> {
    handles: Vec<Handle>,
    /// With them, all that may use the old addresses is done.
    events: Vec<Arc<E>>,
}

impl<D: Device> Arena<D> {
    /// Puts memory from where no block is behind a range, for a stream to use: up to so many bytes, as far as there is any.
    pub(super) fn remap(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        self.timed(|arena| arena.remap_empty(range, bytes, stream))
    }

    /// Does what the program would not have had to wait for with more memory, and counts the time: the driver's and that of waits.
    pub(super) fn timed<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        // A clock sees both; where time stands still for who waits, the driver's work has its price.
        let times = |arena: &Self| {
            let driver = Duration::from_nanos(arena.device.driver_work().nanoseconds);
            [driver, arena.device.elapsed().unwrap_or_default()]
        };
        let before = times(self);
        let result = work(self);
        if self.statistics.steps >= self.counts_from {
            let took = times(self).into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
            self.budget.spend(took.max().unwrap_or_default());
        }
        result
    }

    fn remap_empty(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        // Among sixteen times as much there is mostly a handle of each length (driver time 56 ms a step of 33 jobs; among all there is, 53).
        let empty = self.empty_handles(bytes.saturating_mul(16), range);
        if empty.is_empty() || bytes == 0 {
            return Ok(());
        }
        let pieces = self.frames.pieces(range, self.largest(range));
        let (pairs, unfit) = exchange(pieces, empty, bytes, self.frames.frame());
        self.unmap_done()?;
        let events = self.come_after(pairs.iter().map(|(from, _)| from), stream)?;
        let mut old = OldMappings { handles: Vec::with_capacity(pairs.len()), events };
        let mut result = Ok(());
        for (from, to) in pairs {
            let (before, after) = (self.frames.granules_of(&from), self.frames.granules_of(&to));
            result = self.remap_handle(from, &to, &mut old.handles);
            if result.is_err() {
                break;
            }
            // All that used the memory before comes before the stream.
            self.owners.forget(before);
            self.statistics.remapped += u64::from(after.end - after.start) * GRANULE;
            self.owners.note(after, stream);
        }
        if !old.handles.is_empty() {
            self.old_mappings.push_back(old);
        }
        self.statistics.remaps += 1;
        result?;
        if !unfit.is_empty() {
            self.statistics.remapped += self.take_away(&unfit)?;
        }
        Ok(())
    }

    fn remap_handle(&mut self, from: Handle, to: &Handle, old: &mut Vec<Handle>) -> Result<(), Error> {
        self.unmap_old(to)?;
        if self.frames.alias(&mut self.device, &from, to).is_ok() {
            old.push(from);
            return Ok(());
        }
        // The driver maps a page once only.
        self.wait_for_device()?;
        self.frames.unmap(&mut self.device, &[from])?;
        self.frames.map(&mut self.device, &self.frames.granules_of(to), u64::MAX)
    }

    /// Unmaps frames as far as they have their old memory still. Waits for whoever may use it.
    pub(super) fn unmap_old(&mut self, frames: &Range<usize>) -> Result<(), Error> {
        let overlap = |handle: &Handle| handle.start < frames.end && frames.start < handle.end;
        while let Some(place) = self.old_mappings.iter().position(|old| old.handles.iter().any(overlap)) {
            for event in &self.old_mappings[place].events {
                self.device.wait(event)?;
            }
            self.unmap_nth(place)?;
        }
        Ok(())
    }

    /// Unmaps what nobody uses any more.
    fn unmap_done(&mut self) -> Result<(), Error> {
        while let Some(old) = self.old_mappings.front() {
            for event in &old.events {
                if !self.device.completed(event)? {
                    return Ok(());
                }
            }
            self.unmap_nth(0)?;
        }
        Ok(())
    }

    /// Unmaps every old mapping. The device must be idle.
    pub(super) fn unmap_all_old(&mut self) -> Result<(), Error> {
        while !self.old_mappings.is_empty() {
            self.unmap_nth(0)?;
        }
        Ok(())
    }

    fn unmap_nth(&mut self, place: usize) -> Result<(), Error> {
        while let Some(handle) = self.old_mappings[place].handles.last() {
            self.frames.unmap_old(&mut self.device, handle)?;
            self.old_mappings[place].handles.pop();
        }
        self.old_mappings.remove(place);
        Ok(())
    }
}

/// Which handle goes behind which piece, up to so many bytes; and where no handle has a piece's length, which larger ones have to be
/// given back so that there is memory for what is left of the bytes.
fn exchange(
    mut pieces: Vec<Handle>,
    empty: Vec<Handle>,
    bytes: u64,
    frame: Option<u64>,
) -> (Vec<(Handle, Handle)>, Vec<Handle>) {
    let mut left = usize::try_from(bytes.div_ceil(frame.unwrap_or(u64::MAX))).unwrap_or(usize::MAX);
    let mut by_length: BTreeMap<usize, VecDeque<Handle>> = BTreeMap::new();
    empty.into_iter().for_each(|handle| by_length.entry(handle.len()).or_default().push_back(handle));
    pieces.reverse();
    let mut pairs = Vec::new();
    while left > 0
        && let Some(piece) = pieces.pop()
    {
        if let Some(handle) = by_length.get_mut(&piece.len()).and_then(VecDeque::pop_front) {
            left = left.saturating_sub(piece.len());
            pairs.push((handle, piece));
        } else if piece.len() > 1 {
            let middle = piece.start + piece.len() / 2;
            pieces.extend([middle..piece.end, piece.start..middle]);
        }
    }
    let mut unfit = Vec::new();
    for handle in by_length.into_values().flatten().filter(|handle| handle.len() > 1) {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(handle.len());
        unfit.push(handle);
    }
    (pairs, unfit)
}

#[cfg(test)]
mod tests;
