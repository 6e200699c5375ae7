//! Device memory behind the blocks: taken as they need it, moved from where no block is, given back.

use std::ops::Range;

use stalloc_device::Device;

use super::Arena;
use super::search::MAX_OBSTACLES;
use crate::Error;
use crate::script::{GRANULE, Key};

/// The part of the live bytes that memory without a block may amount to before it is moved to where it is needed.
pub(super) const SLACK: u64 = 64;

/// So often memory may be moved without regard to cost, and beyond that once in [`REQUESTS_PER_MOVE`] requests: each
/// move waits for the device.
const FREE_MOVES: u64 = 256;

/// See [`FREE_MOVES`].
pub(super) const REQUESTS_PER_MOVE: u64 = 128;

/// A move takes at least this part of the live bytes: what is moved now need not be moved at the next request.
pub(super) const SHARE_OF_A_MOVE: u64 = 16;

impl<D: Device> Arena<D> {
    /// A place where no memory need be mapped: the tightest, so that wide ones are left for large blocks. That it looks
    /// at every gap is what it costs when memory may not be moved any more.
    #[cold]
    pub(super) fn place_with_memory(&mut self, key: Key) -> Option<u32> {
        for _ in 0..MAX_OBSTACLES {
            let piece = self.tightest(key, false).or_else(|| self.tightest(key, true))?;
            if self.is_free(&piece) {
                let range = piece.start..piece.start + key.granules();
                let place = self.gaps.first_fit(range.clone(), key.granules())?;
                return self.claim(&range, key.stream(), Some(place)).then_some(range.start);
            }
            self.avoid(&piece);
        }
        None
    }

    /// The tightest piece of a gap that has memory; only one that no other stream used last, unless `after_others`.
    fn tightest(&mut self, key: Key, after_others: bool) -> Option<Range<u32>> {
        let (frames, owners) = (&self.frames, &mut self.owners);
        let width = |piece: &Range<u32>| piece.end - piece.start;
        let mut best: Option<Range<u32>> = None;
        for gap in self.gaps.of_width(key.granules()) {
            for piece in frames.backed(gap) {
                let is_better =
                    width(&piece) >= key.granules() && best.as_ref().is_none_or(|best| width(&piece) < width(best));
                if is_better && (after_others || owners.foreign(piece.clone(), key.stream()).is_none()) {
                    best = Some(piece);
                }
            }
        }
        best
    }

    /// Puts memory behind a range. Beyond what live blocks need and a small share more, memory is not taken from the
    /// device but from where no block is: what the plan does not need now serves what is not planned, and back.
    #[inline]
    pub(super) fn back_with_memory(&mut self, range: &Range<u32>) -> Result<(), stalloc_device::Error> {
        if self.frames.is_backed(range) { Ok(()) } else { self.map(range) }
    }

    /// The most live bytes so far, a block of so many granules included.
    fn live_with(&self, granules: u32) -> u64 {
        let live = self.statistics.allocated + u64::from(granules) * GRANULE;
        live.max(self.statistics.peak_allocated)
    }

    fn may_move(&self) -> bool {
        self.statistics.moves < FREE_MOVES + self.statistics.requests / REQUESTS_PER_MOVE
    }

    /// Whether memory for one more block would have to be more than live blocks need, since none may be moved any
    /// more. Then a place that has memory is worth more than the right one.
    pub(super) fn is_short(&self, key: Key) -> bool {
        let live = self.live_with(key.granules());
        let wanted = self.frames.mapped() + u64::from(key.granules()) * GRANULE;
        wanted > live + live / SLACK && !self.may_move() && !self.planned_only
    }

    #[cold]
    fn map(&mut self, range: &Range<u32>) -> Result<(), stalloc_device::Error> {
        let missing = self.frames.missing(range);
        let live = self.live_with(range.end - range.start);
        let excess = (self.frames.mapped() + missing).saturating_sub(live + live / SLACK);
        if excess > 0 && self.may_move() {
            // More than is needed, so that few moves will do.
            self.unmap_cold(excess.max(live / SHARE_OF_A_MOVE), range.clone())?;
        }
        let mut result = self.frames.map(&mut self.device, range);
        if matches!(result, Err(stalloc_device::Error::OutOfMemory { .. })) {
            // More than is needed, so that the next requests need not do the same.
            self.unmap_cold(missing.max(self.frames.mapped() / SHARE_OF_A_MOVE), range.clone())?;
            result = self.frames.map(&mut self.device, range);
        }
        self.statistics.reserved = self.frames.mapped();
        self.statistics.peak_reserved = self.statistics.peak_reserved.max(self.frames.mapped());
        result
    }

    /// Takes the memory away from frames without a block, those in `spared` excepted.
    pub(super) fn unmap_cold(&mut self, bytes: u64, spared: Range<u32>) -> Result<u64, stalloc_device::Error> {
        let taken = &self.taken;
        let is_cold = |frame: Range<u32>| {
            let is_spared = frame.start < spared.end && spared.start < frame.end;
            !is_spared && taken.is_free(frame.start as usize, frame.end as usize)
        };
        if !self.frames.has_cold(is_cold) {
            return Ok(0);
        }
        // Freed blocks may still be in use by what the device has been given.
        self.device.synchronize()?;
        let given = self.frames.unmap(&mut self.device, bytes, is_cold);
        self.statistics.reserved = self.frames.mapped();
        self.statistics.moved += given.as_ref().unwrap_or(&0);
        self.statistics.moves += 1;
        given
    }

    /// Gives memory that no block uses back to the device, until `bytes` are given back or there is no more. Returns
    /// how many were. While a graph is captured nothing is given back, since the device must not be waited for.
    pub fn give_back(&mut self, bytes: u64) -> Result<u64, Error> {
        if self.capturing {
            return Ok(0);
        }
        self.device.synchronize()?;
        self.poll_all();
        Ok(self.unmap_cold(bytes, 0..0)?)
    }
}
