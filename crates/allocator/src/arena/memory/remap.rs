//! Remaps: memory of addresses without a block is mapped where it is needed, while the device runs.
//!
//! The pages stay mapped where they were until all that streams had been given by then is done, since it may use the old
//! addresses. Meanwhile one page is behind two addresses, of which the arena uses the new one only. A stream that gets it comes
//! after the streams that used it last, by events. So neither the host nor other streams wait, but where a driver maps
//! a page once only, or an old address is needed again too soon.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use stalloc_device::{Device, Error};

use super::{Mapper, Memory};
use crate::frames::FrameRange;
use crate::script::GRANULE;

/// Frames whose memory is behind other frames by now.
#[derive(Debug)]
pub(super) struct OldMappings<E> {
    handles: Vec<FrameRange>,
    /// With them, all that may use the old addresses is done.
    events: Vec<Arc<E>>,
}

impl<D: Device> Mapper<'_, D> {
    /// Puts memory from where no block is behind a range, for a stream to use: up to so many bytes, as far as there is any.
    pub(super) fn remap(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        self.timed(|mapper| mapper.remap_empty(range, bytes, stream))
    }

    fn remap_empty(&mut self, range: &Range<u32>, bytes: u64, stream: u16) -> Result<(), Error> {
        // Among sixteen times as much there is mostly a handle of each length (driver time 56 ms a step of 33 jobs; among all there is, 53).
        let empty = self.empty_handles(bytes.saturating_mul(16), range);
        if empty.is_empty() || bytes == 0 {
            return Ok(());
        }
        let pieces = self.memory.frames.pieces(range, self.memory.largest(self.ledger));
        let (pairs, unfit) = exchange(pieces, empty, bytes, self.memory.frames.frame());
        self.memory.unmap_done(self.device)?;
        let sources = pairs.iter().map(|(from, _)| self.memory.frames.granules_of(from));
        let events = self.order.come_after(self.device, sources, stream)?;
        let mut old = OldMappings { handles: Vec::with_capacity(pairs.len()), events };
        let mut result = Ok(());
        for (from, to) in pairs {
            let (before, after) = (self.memory.frames.granules_of(&from), self.memory.frames.granules_of(&to));
            result = self.remap_handle(from, &to, &mut old.handles);
            if result.is_err() {
                break;
            }
            // All that used the memory before comes before the stream.
            self.order.forget(before);
            self.ledger.count(u64::from(after.end - after.start) * GRANULE, |counted| &mut counted.remapped);
            self.order.give(after, stream);
        }
        if !old.handles.is_empty() {
            self.memory.old_mappings.push_back(old);
        }
        self.ledger.count(1, |counted| &mut counted.remaps);
        result?;
        if !unfit.is_empty() {
            let bytes = self.take_away(&unfit)?;
            self.ledger.count(bytes, |counted| &mut counted.remapped);
        }
        Ok(())
    }

    fn remap_handle(&mut self, from: FrameRange, to: &FrameRange, old: &mut Vec<FrameRange>) -> Result<(), Error> {
        self.memory.unmap_old(self.device, to)?;
        if self.memory.frames.alias(self.device, &from, to).is_ok() {
            old.push(from);
            return Ok(());
        }
        // The driver maps a page once only.
        self.order.wait_for_device(self.device)?;
        self.memory.frames.unmap(self.device, &[from])?;
        self.memory.frames.map(self.device, &self.memory.frames.granules_of(to), u64::MAX)
    }
}

impl<D: Device> Memory<D> {
    /// Unmaps frames as far as they have their old memory still. Waits for whoever may use it.
    pub(super) fn unmap_old(&mut self, device: &mut D, frames: &Range<usize>) -> Result<(), Error> {
        let overlap = |handle: &FrameRange| handle.start < frames.end && frames.start < handle.end;
        while let Some(place) = self.old_mappings.iter().position(|old| old.handles.iter().any(overlap)) {
            for event in &self.old_mappings[place].events {
                device.wait(event)?;
            }
            self.unmap_nth(device, place)?;
        }
        Ok(())
    }

    /// Unmaps what nobody uses any more.
    fn unmap_done(&mut self, device: &mut D) -> Result<(), Error> {
        while let Some(old) = self.old_mappings.front() {
            for event in &old.events {
                if !device.completed(event)? {
                    return Ok(());
                }
            }
            self.unmap_nth(device, 0)?;
        }
        Ok(())
    }

    /// Unmaps every old mapping. The device must be idle.
    pub fn unmap_all_old(&mut self, device: &mut D) -> Result<(), Error> {
        while !self.old_mappings.is_empty() {
            self.unmap_nth(device, 0)?;
        }
        Ok(())
    }

    fn unmap_nth(&mut self, device: &mut D, place: usize) -> Result<(), Error> {
        while let Some(handle) = self.old_mappings[place].handles.last() {
            self.frames.unmap_old(device, handle)?;
            self.old_mappings[place].handles.pop();
        }
        self.old_mappings.remove(place);
        Ok(())
    }
}

/// Which handle goes behind which piece, up to so many bytes; and where no handle has a piece's length, which larger ones have to be
/// given back so that there is memory for what is left of the bytes.
fn exchange(
    mut pieces: Vec<FrameRange>,
    empty: Vec<FrameRange>,
    bytes: u64,
    frame: Option<u64>,
) -> (Vec<(FrameRange, FrameRange)>, Vec<FrameRange>) {
    let mut left = usize::try_from(bytes.div_ceil(frame.unwrap_or(u64::MAX))).unwrap_or(usize::MAX);
    let mut by_length: BTreeMap<usize, VecDeque<FrameRange>> = BTreeMap::new();
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
