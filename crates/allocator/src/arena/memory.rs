//! Device memory behind the blocks: mapped where blocks are, remapped only under pressure, given back.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use stalloc_device::{Device, Error};

use super::MAX_GRANULES;
use super::ledger::Ledger;
use super::order::Order;
use super::place::Place;
use crate::frames::{FrameRange, FrameSet, Frames};
use crate::script::GRANULE;
use crate::tuning::{idle_share, remap_share, remap_time, slack_handles, spared_share};

mod budget;
mod remap;

use budget::{Expense, SlackBudget};
use remap::OldMappings;

/// The time by the device's clock, or by the number of requests where it has none.
fn now<D: Device>(device: &D, ledger: &Ledger) -> Duration {
    device.elapsed().unwrap_or_else(|| ledger.modelled())
}

/// What is done where mapping would go beyond the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverBudget {
    /// Nothing is mapped: there may be a place on mapped memory.
    Refuse,
    /// Memory where no block is, is taken from there.
    Remap,
    /// As much is mapped as PyTorch's allocators would hold: memory that is there has to be waited for.
    Raise,
}

/// The frames behind the addresses, and how many there may be.
#[derive(Debug)]
pub(super) struct Memory<D: Device> {
    frames: Frames,
    budget: SlackBudget,
    /// Old mappings of what was remapped, in the order of time.
    old_mappings: VecDeque<OldMappings<D::Event>>,
    /// Bytes that the device had for us when it was asked last: free, and ours.
    device_bytes: u64,
    /// Bytes that may be held so that other libraries find what they need.
    may_hold: u64,
    /// The step in which that was asked.
    looked_in_step: u64,
    /// The job needs more than half of the device: no block begins to use a part of a large handle.
    packs: bool,
    /// A block was shared with another process, which can map handles of one length only: no others are taken any more.
    only_pages: bool,
    /// Requests for which a stream waits for another though the device has room, since the last review; and all requests until then.
    waits: u64,
    requests: u64,
    /// How many waited of how many, without a plan; none until that is known.
    usual: Option<(u64, u64)>,
}

/// Memory at work, with what it needs of the others.
#[derive(Debug)]
pub(super) struct Mapper<'a, D: Device> {
    pub memory: &'a mut Memory<D>,
    pub device: &'a mut D,
    pub place: &'a Place,
    pub order: &'a mut Order<D>,
    pub ledger: &'a mut Ledger,
}

impl<D: Device> Memory<D> {
    /// Memory in an address range.
    pub fn new(frames: Frames) -> Self {
        Memory {
            frames,
            budget: SlackBudget::new(),
            old_mappings: VecDeque::new(),
            device_bytes: u64::MAX,
            may_hold: u64::MAX,
            looked_in_step: 0,
            packs: false,
            only_pages: false,
            waits: 0,
            requests: 0,
            usual: None,
        }
    }

    /// The address range, and what is mapped of it.
    #[inline]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// See [`super::Arena::set_tight`].
    pub fn set_tight(&mut self, tight: bool) {
        self.budget.set_tight(tight);
    }

    /// From now on all handles are pages.
    pub fn use_pages(&mut self) {
        (self.only_pages, self.packs) = (true, true);
    }

    /// Bytes of the largest handle to take: the slack has room for some of which blocks use a part.
    fn largest(&self, ledger: &Ledger) -> u64 {
        if self.only_pages { 0 } else { self.slack(ledger.statistics().peak_allocated, ledger) / slack_handles() }
    }

    /// Bytes that may be held beyond a peak of live bytes.
    fn slack(&self, peak: u64, ledger: &Ledger) -> u64 {
        self.budget.of(peak, ledger.rivals())
    }

    /// Bytes that may be mapped outside of pools, with so many bytes more alive than now: what blocks needed at most, and a slack.
    fn limit(&self, bytes: u64, expected: u64, ledger: &Ledger) -> u64 {
        let counted = ledger.statistics();
        let live = counted.allocated + bytes + counted.pools;
        let peak = live.max(counted.peak_allocated).max(expected);
        self.limit_with(peak, self.slack(peak, ledger), ledger)
    }

    /// Bytes that may be mapped outside of pools where blocks need so many and a slack.
    fn limit_with(&self, peak: u64, slack: u64, ledger: &Ledger) -> u64 {
        let pools = ledger.statistics().pools;
        let slack = slack.min(self.may_hold.saturating_sub(peak));
        let page = self.frames.frame().unwrap_or(1);
        let needed = (peak + slack).saturating_sub(pools);
        if self.is_scarce(ledger) {
            return needed.div_ceil(page) * page;
        }
        // With no page more than blocks need, a block that lies a little higher than the last one did would remap a page.
        (needed / page * page).max((peak.saturating_sub(pools).div_ceil(page) + 1) * page)
    }

    /// Whether the device, and not the slack, is what memory is short of. Then blocks are packed, whatever is remapped for it.
    #[inline]
    pub fn is_scarce(&self, ledger: &Ledger) -> bool {
        let peak = ledger.statistics().peak_allocated;
        self.may_hold.saturating_sub(peak) < self.budget.least(peak)
    }

    /// Asks how much the arena may hold so that other libraries find what they need.
    pub fn look_around(&mut self, device: &D, ledger: &Ledger) {
        self.looked_in_step = ledger.statistics().steps;
        if let Ok(info) = device.memory_info() {
            self.device_bytes = info.free + self.frames.mapped() + ledger.statistics().pools;
            // One without limit, as in a simulation, is no card of which a part goes unnoticed.
            self.budget.set_device(if info.total > MAX_GRANULES * GRANULE { 0 } else { info.total });
            self.may_hold = self.device_bytes.saturating_sub(info.total / spared_share()).min(device.allowed());
        }
    }

    /// Whether the device has too little memory for so many live bytes, or the program allows itself too little, whatever is
    /// remapped: then no page is mapped in vain.
    fn is_beyond_device(&mut self, live: u64, device: &D, ledger: &Ledger) -> bool {
        // What is held stays, and may be remapped.
        let pools = ledger.statistics().pools;
        if live + pools > device.allowed().max(self.frames.mapped() + pools) {
            return true;
        }
        if live > self.device_bytes {
            // Others may have given memory back since.
            self.look_around(device, ledger);
        }
        live > self.device_bytes
    }

    /// Whether remaps took time since the last review.
    #[inline]
    pub fn owes(&self) -> bool {
        self.budget.owes()
    }

    /// A step begins.
    pub fn begin_step(&mut self, device: &D, ledger: &Ledger) {
        self.budget.begin_step(now(device, ledger));
    }

    /// A stream waits for another, for memory.
    pub fn note_wait(&mut self, ledger: &Ledger) {
        self.waits += u64::from(!self.is_scarce(ledger));
    }

    /// Whether remapping is dear, more is remapped under a plan than without one, or more streams wait for others, so that a plan is to
    /// be given up. Without one the arena may hold more, and what is free late is in nobody's way.
    pub fn review(&mut self, device: &D, has_plan: bool, ledger: &Ledger) -> bool {
        let counted = ledger.statistics();
        let is_dear = self.budget.review(now(device, ledger), counted.peak_allocated, ledger.rivals()) == Expense::Dear;
        let has_waited = self.has_waited(counted.requests, has_plan);
        has_plan && (is_dear || has_waited || ledger.loss() > self.frames.mapped() / remap_share())
    }

    /// Whether one request in so many more waited under a plan than without one, of those since this was asked.
    fn has_waited(&mut self, requests: u64, has_plan: bool) -> bool {
        let asked = requests - std::mem::replace(&mut self.requests, requests);
        let waits = std::mem::take(&mut self.waits);
        if !has_plan {
            self.usual = Some((waits, asked)).filter(|_| asked > 0).or(self.usual);
            return false;
        }
        let usual = self.usual.map(|(waits, of)| waits * asked / of);
        usual.is_some_and(|usual| waits.saturating_sub(usual) * u64::from(remap_time()) > asked)
    }

    /// Whether there is memory for a plan and what stays. What is mapped elsewhere is remapped for it once, if remaps without it
    /// take as much soon. O(frames of the plan / 64).
    pub fn is_enough_for(&self, frames: &FrameSet, expected: u64, ledger: &Ledger) -> bool {
        let (Some(size), missing) = (self.frames.frame(), self.frames.missing_of(frames)) else { return true };
        // What was granted for other requests is not for a plan: it must not hold more than there was without.
        let peak = ledger.statistics().peak_allocated.max(expected);
        let limit = self.limit_with(peak, self.budget.least(peak), ledger).max(self.frames.mapped());
        let elsewhere = (self.frames.mapped() + missing).saturating_sub(limit);
        frames.len() * size <= limit && ledger.pays(elsewhere)
    }

    /// Bytes that no block needed since this was asked last, in tight mode and if they are many.
    pub fn idle(&self, ledger: &mut Ledger) -> u64 {
        let most = ledger.most_lately();
        let idle = self.frames.mapped().saturating_sub(most + self.slack(most, ledger));
        let is_much = idle >= self.frames.mapped() / idle_share();
        if self.budget.is_tight() && is_much && self.frames.frame().is_some() { idle } else { 0 }
    }

    /// Gives a handle back to the device, which must be idle. Nothing may use its addresses.
    pub fn unmap(&mut self, device: &mut D, handle: FrameRange, ledger: &mut Ledger) -> Result<(), Error> {
        let given = self.frames.unmap(device, &[handle]);
        ledger.note_reserved(self.frames.mapped());
        given.map(drop)
    }

    /// Puts memory behind handles that have none, each in one piece where the device has it.
    pub fn map_handles(&mut self, device: &mut D, handles: &[FrameRange], ledger: &mut Ledger) -> Result<(), Error> {
        let mut map = |handle| self.frames.map(device, &self.frames.granules_of(handle), u64::MAX);
        let mapped = handles.iter().try_for_each(&mut map);
        ledger.note_reserved(self.frames.mapped());
        mapped
    }

    /// Gives everything back to the device, which must be idle.
    pub fn release(&mut self, device: &mut D) -> Result<(), Error> {
        self.unmap_all_old(device)?;
        self.frames.release(device)
    }
}

impl<D: Device> Mapper<'_, D> {
    /// Puts memory behind a range, for a stream to use.
    #[inline]
    pub fn ensure_mapped(&mut self, range: &Range<u32>, stream: u16, over_budget: OverBudget) -> Result<(), Error> {
        if self.memory.packs {
            self.break_up(range)?;
        }
        if self.memory.frames.is_backed(range) { Ok(()) } else { self.map(range, stream, over_budget) }
    }

    /// Gives back handles that reach beyond a range that is going to be used, if nobody uses them yet: the rest could not be remapped.
    /// Where all handles are to be pages, any larger one.
    fn break_up(&mut self, range: &Range<u32>) -> Result<(), Error> {
        let large = self.memory.frames.large(range, self.memory.only_pages);
        // Nothing is collected, and nothing allocated, where no handle has to go.
        let mut large: Vec<FrameRange> =
            large.filter(|handle| self.place.is_free(&self.memory.frames.granules_of(handle))).collect();
        large.dedup();
        if large.is_empty() {
            return Ok(());
        }
        self.timed(|mapper| mapper.take_away(&large))?;
        // In pages at once: what comes next would go past a hole.
        for handle in large {
            let pages = self.memory.frames.granules_of(&handle);
            self.memory.frames.map(self.device, &pages, 0)?;
        }
        self.ledger.note_reserved(self.memory.frames.mapped());
        Ok(())
    }

    #[cold]
    fn map(&mut self, range: &Range<u32>, stream: u16, over_budget: OverBudget) -> Result<(), Error> {
        let counted = *self.ledger.statistics();
        if self.memory.looked_in_step != counted.steps {
            self.memory.look_around(self.device, self.ledger);
        }
        let bytes = u64::from(range.end - range.start) * GRANULE;
        let live = counted.allocated + bytes;
        self.memory.packs = self.memory.only_pages || live.max(counted.peak_allocated) > self.memory.may_hold / 2;
        let missing = self.memory.frames.missing(range);
        if over_budget == OverBudget::Raise {
            let beyond = (self.memory.frames.mapped() + counted.pools + missing)
                .saturating_sub(counted.peak_allocated.max(live));
            self.memory.budget.raise(beyond, counted.peak_allocated, self.ledger.rivals());
        }
        let may_remap = over_budget == OverBudget::Remap;
        let limit = self.memory.limit(bytes, self.place.expected_peak(), self.ledger);
        let excess = (self.memory.frames.mapped() + missing).saturating_sub(limit);
        let is_beyond = self.memory.is_beyond_device(live, self.device, self.ledger);
        if excess > 0 || is_beyond {
            if !may_remap || is_beyond {
                return Err(Error::OutOfMemory {
                    requested: missing,
                    free: missing - excess.min(missing),
                    total: limit,
                });
            }
            // The budget may have become smaller.
            self.timed(|mapper| mapper.give_back(excess.saturating_sub(missing), range))?;
            self.remap(range, excess.min(missing), stream)?;
        }
        let mut result = self.map_more(range);
        if may_remap && matches!(result, Err(Error::OutOfMemory { .. })) {
            self.remap(range, u64::MAX, stream)?;
            result = self.map_more(range);
        }
        self.ledger.note_reserved(self.memory.frames.mapped());
        result
    }

    /// Takes memory of the device for what has none of a range.
    fn map_more(&mut self, range: &Range<u32>) -> Result<(), Error> {
        if !self.memory.old_mappings.is_empty() {
            let pieces = self.memory.frames.pieces(range, u64::MAX);
            self.timed(|mapper| pieces.iter().try_for_each(|piece| mapper.memory.unmap_old(mapper.device, piece)))?;
        }
        let largest = self.memory.largest(self.ledger);
        if let Some(ahead) = self.ahead(range)
            && self.memory.frames.map(self.device, &ahead, largest.max(self.memory.budget.largest_unnoticed())).is_ok()
        {
            return Ok(());
        }
        self.memory.frames.map(self.device, range, largest)
    }

    /// A range with what follows it, to be mapped at once: a driver takes as long for much as for little. Only large blocks' addresses,
    /// where nobody has used anything, while the device has room; with a plan only the plan's.
    fn ahead(&self, range: &Range<u32>) -> Option<Range<u32>> {
        let memory = &self.memory;
        let end = if self.place.has_plan() { self.place.planned() } else { self.place.end_of_large() };
        if memory.packs || range.end >= end || !self.place.is_untouched(range.end) {
            return None;
        }
        let page = memory.frames.frame()?;
        let limit = memory.limit(u64::from(range.end - range.start) * GRANULE, self.place.expected_peak(), self.ledger);
        let until = |granules| range.end.checked_next_multiple_of(granules).map_or(end, |until| until.min(end));
        let at_once =
            std::iter::successors(Some(memory.budget.at_once(self.device.allowed())), |bytes| Some(bytes / 2));
        at_once
            .take_while(|&bytes| bytes > page)
            .map(|bytes| range.start..until((bytes / GRANULE) as u32))
            .find(|ahead| memory.frames.mapped() + memory.frames.missing(ahead) <= limit)
    }

    /// Handles of so many bytes without a block, those of `spared` excepted: those of no plan first, small blocks' last of them.
    fn empty_handles(&self, bytes: u64, spared: &Range<u32>) -> Vec<FrameRange> {
        self.memory.frames.empty_handles(bytes, &self.place.least_used_first(), |handle| {
            let is_spared = handle.start < spared.end && spared.start < handle.end;
            !is_spared && self.place.is_free(&handle)
        })
    }

    /// Gives so many bytes of handles without a block back to the device, those of `spared` excepted. Waits for the device.
    pub fn give_back(&mut self, bytes: u64, spared: &Range<u32>) -> Result<u64, Error> {
        let empty = self.empty_handles(bytes, spared);
        if empty.is_empty() { Ok(0) } else { self.take_away(&empty) }
    }

    /// Gives handles without a block back to the device. Waits for it.
    fn take_away(&mut self, handles: &[FrameRange]) -> Result<u64, Error> {
        // Freed blocks may still be in use by what the device has been given.
        self.order.wait_for_device(self.device)?;
        self.memory.unmap_all_old(self.device)?;
        let given = self.memory.frames.unmap(self.device, handles);
        handles.iter().for_each(|handle| self.order.forget(self.memory.frames.granules_of(handle)));
        self.ledger.note_reserved(self.memory.frames.mapped());
        given
    }

    /// Does what the program would not have had to wait for with more memory, and counts the time: the driver's and that of waits.
    fn timed<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        // A clock sees both; where time stands still for who waits, the driver's work has its price.
        let times =
            |device: &D| [Duration::from_nanos(device.driver_work().nanoseconds), device.elapsed().unwrap_or_default()];
        let (before, remapped) = (times(self.device), self.ledger.statistics().remapped);
        let result = work(self);
        if self.ledger.is_settled() {
            let took = times(self.device).into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
            let bytes = self.ledger.statistics().remapped - remapped;
            self.memory.budget.spend(took.max().unwrap_or_default(), bytes);
        }
        result
    }
}

#[cfg(test)]
mod tests;
