//! Device memory behind the blocks, and the searches that depend on it: mapped where blocks are, remapped only under pressure,
//! given back.

use std::ops::Range;
use std::time::Duration;

use stalloc_device::Device;

use super::Arena;
use super::budget::{Budget, Time};
use crate::Error;
use crate::frames::{FrameSet, Handle};
use crate::journal::Event;
use crate::script::{GRANULE, Key, Script};
use crate::streams::Owners;
use crate::tuning::{idle_share, remap_share, slack_handles, spared_share};

/// Gaps that one search looks at.
pub(super) const SEARCH_LIMIT: usize = 256;

/// How much may be remapped where mapping would go beyond the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaps {
    /// No more than the last remap allowed: there may be a place on mapped memory.
    Few,
    /// Any memory where no block is.
    Any,
}

impl<D: Device> Arena<D> {
    /// Where a request fits on memory that is mapped; only where no other stream was last, unless `allow_others`.
    /// O(gaps) if there is no place below the first hole in what is mapped.
    #[cold]
    pub(super) fn fit_on_mapped(&mut self, window: Range<u32>, key: Key, allow_others: bool) -> Option<u32> {
        let mapped_until = self.frames.backed_until().clamp(window.start, window.end);
        if let Some(start) = self.tightest(window.start..mapped_until, key, allow_others) {
            return Some(start);
        }
        let (frames, owners) = (&self.frames, &mut self.owners);
        let within = |gap: Range<u32>| gap.start.max(window.start)..gap.end.min(window.end);
        let wide = self.gaps.of_width(key.granules());
        let gaps = wide.filter(|gap| gap.end > mapped_until && gap.start < window.end).map(within);
        let mut parts =
            gaps.flat_map(|gap| frames.mapped_parts(gap)).filter(|part| part.end - part.start >= key.granules());
        if allow_others {
            return parts.next().map(|part| part.start);
        }
        parts.find_map(|part| own_part(owners, part, key))
    }

    /// Where a request fits so that the fewest pages have to be remapped for it, of equals in the tightest gap; only where no other
    /// stream was last, unless `allow_others`. O(gaps that are wide enough, and their frames).
    #[cold]
    pub(super) fn fit_cheapest(&mut self, window: Range<u32>, key: Key, allow_others: bool) -> Option<u32> {
        let width = key.granules();
        let (frames, owners) = (&self.frames, &mut self.owners);
        let mut best: Option<(u64, u32)> = None;
        for gap in self.gaps.fits(window, width).take(SEARCH_LIMIT) {
            let last = gap.end - width;
            let parts = frames.mapped_parts(gap.clone());
            let starts =
                parts.flat_map(|part| [part.start.min(last), part.end.saturating_sub(width).clamp(gap.start, last)]);
            for start in starts.chain([gap.start]) {
                let missing = frames.missing(&(start..start + width));
                let is_better = best.is_none_or(|(least, _)| missing < least);
                if is_better && (allow_others || own_part(owners, start..start + width, key) == Some(start)) {
                    best = Some((missing, start));
                }
            }
        }
        best.map(|(_, start)| start)
    }

    /// Puts memory behind a range, for a stream to use.
    #[inline]
    pub(super) fn ensure_mapped(
        &mut self,
        range: &Range<u32>,
        stream: u16,
        remaps: Remaps,
    ) -> Result<(), stalloc_device::Error> {
        if self.packs {
            self.break_up(range)?;
        }
        if self.frames.is_backed(range) { Ok(()) } else { self.map(range, stream, remaps) }
    }

    /// Gives back handles that reach beyond a range that is going to be used, if nobody uses them yet: the rest could not be remapped.
    /// Where all handles are to be pages, any larger one.
    fn break_up(&mut self, range: &Range<u32>) -> Result<(), stalloc_device::Error> {
        let large = self.frames.large(range, self.only_pages);
        // Nothing is collected, and nothing allocated, where no handle has to go.
        let mut large: Vec<Handle> = large.filter(|handle| self.is_empty(&self.frames.granules_of(handle))).collect();
        large.dedup();
        if large.is_empty() {
            return Ok(());
        }
        self.timed(|arena| arena.take_away(&large))?;
        // In pages at once: what comes next would go past a hole.
        for handle in large {
            let pages = self.frames.granules_of(&handle);
            self.frames.map(&mut self.device, &pages, 0)?;
        }
        self.note_reserved();
        Ok(())
    }

    /// Whether no block lies on some granules.
    fn is_empty(&self, granules: &Range<u32>) -> bool {
        self.taken.is_free(granules.start as usize, granules.end as usize)
    }

    /// Bytes of the largest handle to take for a range: the slack has room for some of which blocks use a part. Where blocks keep no
    /// part, only at addresses that nobody has used: others would be broken up again.
    pub(super) fn largest(&self, range: &Range<u32>) -> u64 {
        let mut regions = self.untouched.iter().zip(self.regions.windows(2));
        let is_new = regions.any(|(&untouched, region)| (untouched..region[1]).contains(&range.start));
        if self.only_pages || self.packs && !is_new {
            0
        } else {
            self.slack(self.statistics.peak_allocated) / slack_handles()
        }
    }

    /// Bytes that may be held beyond a peak of live bytes.
    fn slack(&self, peak: u64) -> u64 {
        self.budget.of(peak, self.rivals.held())
    }

    /// Bytes that may be mapped outside of pools, with a block of so many granules more alive than now: what blocks needed at most,
    /// and a slack.
    fn limit(&self, granules: u32, expected: u64) -> u64 {
        let live = self.statistics.allocated + u64::from(granules) * GRANULE + self.statistics.pools;
        let peak = live.max(self.statistics.peak_allocated).max(expected);
        self.limit_with(peak, self.slack(peak))
    }

    /// Bytes that may be mapped outside of pools where blocks need so many and a slack.
    fn limit_with(&self, peak: u64, slack: u64) -> u64 {
        let pools = self.statistics.pools;
        let slack = slack.min(self.may_hold.saturating_sub(peak));
        let page = self.frames.frame().unwrap_or(1);
        let needed = (peak + slack).saturating_sub(pools);
        if self.is_scarce() {
            return needed.div_ceil(page) * page;
        }
        // With no page more than blocks need, a block that lies a little higher than the last one did would remap a page.
        (needed / page * page).max((peak.saturating_sub(pools).div_ceil(page) + 1) * page)
    }

    /// Whether the device, and not the slack, is what memory is short of. Then blocks are packed, whatever is remapped for it.
    pub(super) fn is_scarce(&self) -> bool {
        let peak = self.statistics.peak_allocated;
        self.may_hold.saturating_sub(peak) < self.budget.least(peak)
    }

    /// Asks how much the arena may hold so that other libraries find what they need.
    pub(super) fn look_around(&mut self) {
        self.looked_in_step = self.statistics.steps;
        if let Ok(info) = self.device.memory_info() {
            let ours = self.frames.mapped() + self.statistics.pools;
            self.device_bytes = info.free + ours;
            self.budget.set_device(info.total);
            self.may_hold = self.device_bytes.saturating_sub(info.total / spared_share());
        }
    }

    /// Whether the device has too little memory for a block, whatever is remapped: then no page is mapped for it in vain.
    fn is_beyond_device(&mut self, granules: u32) -> bool {
        let live = self.statistics.allocated + u64::from(granules) * GRANULE;
        if live > self.device_bytes {
            // Others may have given memory back since.
            self.look_around();
        }
        live > self.device_bytes
    }

    /// Time that the program has run: by the device's clock, or by its steps.
    pub(super) fn now(&self) -> Duration {
        let before = if self.statistics.steps == 0 { self.statistics.requests } else { self.unmarked };
        self.device.elapsed().unwrap_or_else(|| Budget::modelled(self.statistics.steps, before))
    }

    /// Gives a plan up under which remapping is dear, or more than without one. Without one the arena may hold more.
    pub(super) fn review(&mut self) {
        let has_plan = self.script.granules > 0;
        let (now, peak, rivals) = (self.now(), self.statistics.peak_allocated, self.rivals.held());
        let is_dear = self.budget.review(now, peak, rivals) == Time::Dear;
        let is_worse = self.worth.loss() > self.frames.mapped() / remap_share();
        if has_plan && (is_dear || is_worse) {
            self.statistics.withdrawn += 1;
            self.switch_to(Script::default());
        }
    }

    #[cold]
    fn map(&mut self, range: &Range<u32>, stream: u16, remaps: Remaps) -> Result<(), stalloc_device::Error> {
        if self.looked_in_step != self.statistics.steps {
            self.look_around();
        }
        let live = self.statistics.allocated + u64::from(range.end - range.start) * GRANULE;
        self.packs = self.only_pages || live.max(self.statistics.peak_allocated) > self.may_hold / 2;
        let missing = self.frames.missing(range);
        let may_remap = remaps == Remaps::Any || missing <= self.allowance;
        let limit = self.limit(range.end - range.start, self.script.expected_peak);
        let excess = (self.frames.mapped() + missing).saturating_sub(limit);
        let is_beyond = self.is_beyond_device(range.end - range.start);
        if excess > 0 || is_beyond {
            let full = stalloc_device::Error::OutOfMemory {
                requested: missing,
                free: missing - excess.min(missing),
                total: limit,
            };
            if !may_remap || is_beyond {
                return Err(full);
            }
            // The budget may have become smaller.
            self.timed(|arena| arena.give_back_empty(excess.saturating_sub(missing), range))?;
            self.remap(range, excess.min(missing), stream)?;
            self.allow(remaps, missing);
        }
        let mut result = self.map_more(range);
        if may_remap && matches!(result, Err(stalloc_device::Error::OutOfMemory { .. })) {
            self.remap(range, u64::MAX, stream)?;
            self.allow(remaps, missing);
            result = self.map_more(range);
        }
        self.note_reserved();
        result
    }

    /// Says how much may be remapped from now on before places on mapped memory are preferred. There blocks lie where they happen to
    /// fit, so that fewer and fewer pages are without one.
    fn allow(&mut self, remaps: Remaps, remapped: u64) {
        self.allowance = match remaps {
            Remaps::Any if self.script.is_empty() && self.is_scarce() => self.frames.mapped() / remap_share(),
            Remaps::Any => 0,
            Remaps::Few => self.allowance.saturating_sub(remapped),
        };
    }

    /// Takes memory of the device for what has none of a range.
    fn map_more(&mut self, range: &Range<u32>) -> Result<(), stalloc_device::Error> {
        if !self.old_mappings.is_empty() {
            let pieces = self.frames.pieces(range, u64::MAX);
            self.timed(|arena| pieces.iter().try_for_each(|piece| arena.unmap_old(piece)))?;
        }
        let largest = self.largest(range);
        self.frames.map(&mut self.device, range, largest)
    }

    pub(super) fn note_reserved(&mut self) {
        self.statistics.reserved = self.frames.mapped();
        self.statistics.peak_reserved = self.statistics.peak_reserved.max(self.frames.mapped());
    }

    /// Handles of so many bytes without a block, those of `spared` excepted: those of no plan first, small blocks' last of them.
    pub(super) fn empty_handles(&self, bytes: u64, spared: &Range<u32>) -> Vec<Handle> {
        let planned = self.script.granules.min(self.regions[1]);
        let order = [planned..self.regions[1], self.regions[1]..u32::MAX, 0..planned];
        self.frames.empty_handles(bytes, &order, |handle| {
            let is_spared = handle.start < spared.end && spared.start < handle.end;
            !is_spared && self.is_empty(&handle)
        })
    }

    /// Takes the memory away from handles without a block, those of `spared` excepted. Waits for the device.
    fn give_back_empty(&mut self, bytes: u64, spared: &Range<u32>) -> Result<u64, stalloc_device::Error> {
        let empty = self.empty_handles(bytes, spared);
        if empty.is_empty() { Ok(0) } else { self.take_away(&empty) }
    }

    /// Gives handles without a block back to the device. Waits for it.
    pub(super) fn take_away(&mut self, handles: &[Handle]) -> Result<u64, stalloc_device::Error> {
        // Freed blocks may still be in use by what the device has been given.
        self.wait_for_device()?;
        self.unmap_all_old()?;
        let given = self.frames.unmap(&mut self.device, handles);
        handles.iter().for_each(|handle| self.owners.forget(self.frames.granules_of(handle)));
        self.note_reserved();
        given
    }

    /// Gives memory that no block uses back to the device, until `bytes` are given back or there is no more. Returns
    /// how many were. While a graph is captured nothing is given back, since the device must not be waited for.
    pub fn give_back(&mut self, bytes: u64) -> Result<u64, Error> {
        if self.capturing || self.sleep.is_asleep() {
            return Ok(0);
        }
        self.journal.push(Event::GivenBack);
        self.rivals.give_back();
        self.wait_for_device()?;
        self.poll();
        Ok(self.give_back_pools() + self.give_back_empty(bytes, &(0..0))?)
    }

    /// See [`Device::allow_peer`].
    pub fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        Ok(self.device.allow_peer(peer)?)
    }

    /// In tight mode, gives back what no block needed since this was asked last, if it is much. To be asked now and then, between two
    /// steps, for a GPU that others use too. Returns the bytes. O(frames); waits for the device if anything is given back.
    ///
    /// # Errors
    /// [`Error::Device`] if the device refuses.
    pub fn give_back_idle(&mut self) -> Result<u64, Error> {
        let most = std::mem::replace(&mut self.most_lately, self.statistics.allocated);
        let idle = self.frames.mapped().saturating_sub(most + self.slack(most));
        let is_much = idle > 0 && idle >= self.frames.mapped() / idle_share();
        if !self.budget.is_tight() || !is_much || self.capturing || self.is_solid() || self.sleep.is_asleep() {
            return Ok(0);
        }
        Ok(self.give_back_empty(idle, &(0..0))?)
    }

    /// Whether there is memory for a plan and what stays. What is mapped elsewhere is remapped for it once, if remaps without it
    /// take as much soon. O(frames of the plan / 64).
    fn has_memory_for(&mut self, script: &Script, frames: &FrameSet) -> bool {
        if script.granules > self.regions[1] {
            return false;
        }
        if self.sleep.is_asleep() {
            return true;
        }
        let (Some(size), missing) = (self.frames.frame(), self.frames.missing_of(frames)) else { return true };
        // What was granted for other requests is not for a plan: it must not hold more than there was without.
        let peak = self.statistics.peak_allocated.max(script.expected_peak);
        let limit = self.limit_with(peak, self.budget.least(peak)).max(self.frames.mapped());
        let elsewhere = (self.frames.mapped() + missing).saturating_sub(limit);
        frames.len() * size <= limit && self.worth.pays(elsewhere, self.statistics.withdrawn)
    }

    /// Has a plan followed from the next step on (at once, where the program marks no steps), if there is memory for it: false
    /// if there is not. What lives stays where it is. `frames`: those of its offsets, by [`Script::frames`], and of what lives now
    /// and stays. O(1), and so is the step's beginning itself.
    pub fn propose(&mut self, script: Script, frames: &FrameSet) -> bool {
        let fits = script.is_empty() || self.has_memory_for(&script, frames);
        if fits {
            self.switch_to(script);
        }
        fits
    }

    fn switch_to(&mut self, script: Script) {
        if self.statistics.steps == 0 {
            self.adopt(Box::new(script));
        } else {
            self.next = Some(Box::new(script));
        }
    }

    /// The plan before, once it was replaced: whoever proposes plans drops it, so that no request has to.
    pub fn take_retired(&mut self) -> Option<Box<Script>> {
        self.retired.take()
    }

    /// Whether it is one allocation.
    pub fn is_solid(&self) -> bool {
        self.frames.frame().is_none()
    }

    /// Bytes of a piece of memory, for [`Script::frames`]; `None` if the device maps no pages.
    pub fn frame_bytes(&self) -> Option<u64> {
        self.frames.frame()
    }

    /// Whether it holds next to nothing but what blocks needed at most, however dear remapping is: for a GPU that others use too. What is
    /// above that goes when the next request needs memory.
    pub fn set_tight(&mut self, tight: bool) {
        self.budget.set_tight(tight);
    }
}

/// The beginning of the first part of a free range in which a request fits and which no other stream may still use.
pub(super) fn own_part(owners: &mut Owners, range: Range<u32>, key: Key) -> Option<u32> {
    owners.own(range, key.granules(), key.stream()).ok()
}
