//! One address range per device, in which planned requests have their places and others find theirs.
//!
//! A request's place is a proposal, from the plan or from the search; [`RangeSet`] decides whether it is free. So no
//! two live blocks overlap, whatever the program does and whatever the plan says.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_device::{Address, Device, Stream};
use stalloc_plan::Plan;

use crate::Error;
use crate::cursor::{Cursor, Guess};
use crate::frames::Frames;
use crate::gaps::{Gaps, Place};
use crate::ranges::RangeSet;
use crate::script::{GRANULE, Key, Script};
use crate::statistics::{Source, Statistics};
use crate::streams::{Owners, Streams};

mod blocks;
mod memory;
mod pending;
mod search;

pub use blocks::LiveBlock;
use pending::Pending;

/// Largest address range of an arena in granules, bytes 2 TiB.
const MAX_GRANULES: u64 = u32::MAX as u64;

/// A block in the arena.
#[derive(Clone, Copy, Debug)]
struct Block {
    granules: u32,
    /// What rounding added to the bytes that were asked for.
    slack: u16,
    /// Ordinal of the stream that it was allocated on.
    stream: u8,
    /// It is cut out of the gaps that the search looks at.
    in_gaps: bool,
    /// Other streams use it too: see [`Arena::recorded`].
    recorded: bool,
    /// The program gave it back, but another stream may still use it.
    pending: bool,
}

impl Block {
    fn range(&self, start: u32) -> Range<u32> {
        start..start + self.granules
    }

    fn bytes(&self) -> u64 {
        u64::from(self.granules) * GRANULE
    }
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Where.
    pub address: Address,
    /// How the place was found.
    pub source: Source,
}

/// Serves what it can from a plan and says `None` to the rest.
#[derive(Debug)]
pub struct Arena<D: Device> {
    device: D,
    script: Script,
    cursor: Cursor,
    frames: Frames,
    taken: RangeSet,
    /// First granule of each block, so that the block around any granule is found.
    starts: RangeSet,
    blocks: FxHashMap<u32, Block>,
    gaps: Gaps,
    streams: Streams,
    owners: Owners,
    /// Streams that blocks were recorded on, by the block's first granule.
    recorded: FxHashMap<u32, Vec<Stream>>,
    pending: VecDeque<Pending<D::Event>>,
    /// Blocks that were given back during a capture: their events are recorded after it.
    deferred: Vec<u32>,
    capturing: bool,
    /// What has no place of its own, or not now, is left to the fallback.
    planned_only: bool,
    /// Live bytes when memory was last given back after the plan was switched off.
    left_over: u64,
    /// What rounding added to the request that is being served.
    slack: u16,
    /// Requests in a row that fit the plan while it is switched off.
    fits_in_a_row: u64,
    statistics: Statistics,
}

impl<D: Device> Arena<D> {
    /// An arena for a plan. Where the device can map pages nothing is taken from it yet, and the address range goes on
    /// beyond the plan, for what is not planned.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan cannot be followed or is larger than the device; [`Error::Device`] if the device
    /// refuses the range.
    pub fn new(mut device: D, plan: &Plan) -> Result<Self, Error> {
        let script = Script::new(plan)?;
        let planned = u64::from(script.granules) * GRANULE;
        let total = device.memory_info()?.total;
        if planned > total {
            return Err(Error::Plan(format!("its arena of {planned} bytes is larger than the device ({total} bytes)")));
        }
        // The range is rounded up to frames: leave room for that.
        let growth = total.min((MAX_GRANULES * GRANULE).saturating_sub(planned) / 2);
        let frames = Frames::new(&mut device, planned, growth)?;
        let granules = (frames.bytes() / GRANULE) as u32;
        let statistics = Statistics { arena: planned, reserved: frames.mapped(), ..Statistics::default() };
        let mut blocks = FxHashMap::default();
        blocks.reserve(script.slots.min(1 << 16) * 2);
        Ok(Arena {
            cursor: Cursor::new(&script),
            taken: RangeSet::new(granules as usize),
            starts: RangeSet::new(granules as usize),
            blocks,
            gaps: Gaps::new(granules),
            streams: Streams::default(),
            owners: Owners::new(granules),
            recorded: FxHashMap::default(),
            pending: VecDeque::new(),
            deferred: Vec::new(),
            capturing: false,
            planned_only: false,
            left_over: u64::MAX,
            slack: 0,
            fits_in_a_row: 0,
            statistics,
            device,
            script,
            frames,
        })
    }

    /// From now on only requests that find their own places are served: there is no dynamic side. The rest is the
    /// caller's own fallback's, and no memory moves between the two.
    pub fn planned_only(mut self) -> Self {
        self.planned_only = true;
        self
    }

    /// Serves `size` bytes (before rounding, may be 0) on a stream, or leaves them to the caller's own fallback.
    /// A planned request costs O(1): no search and no heap allocation.
    pub fn serve(&mut self, size: u64, stream: Stream) -> Option<Served> {
        let served = self.try_serve(size, stream);
        let statistics = &mut self.statistics;
        statistics.requests += 1;
        match served.map(|served| served.source) {
            Some(Source::Planned) => statistics.planned += 1,
            Some(_) => statistics.dynamic += 1,
            None => statistics.fallback += 1,
        }
        served
    }

    #[inline]
    fn try_serve(&mut self, size: u64, stream: Stream) -> Option<Served> {
        if self.capturing {
            self.statistics.unplanned.capturing += 1;
            return None;
        }
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok();
        let (Some(granules), Some(ordinal)) = (granules, self.streams.ordinal(stream)) else {
            self.statistics.unplanned.refused += 1;
            return None;
        };
        self.slack = (u64::from(granules) * GRANULE - size) as u16;
        if !self.pending.is_empty() {
            self.poll();
        }
        let key = Key::new(granules, ordinal);
        match self.cursor.advance(&self.script, key) {
            Guess::Slot { place, .. } if !self.statistics.switched_off => self.serve_planned(place, key),
            guess => self.serve_unplanned(guess, key, stream),
        }
    }

    #[inline]
    fn serve_planned(&mut self, place: u32, key: Key) -> Option<Served> {
        let range = place..place + key.granules();
        if (self.is_free(&range) || self.is_free_after_polling(&range))
            && (self.frames.is_backed(&range) || !self.is_short(key))
            && self.claim(&range, key.stream(), None)
        {
            return Some(self.served(place, Source::Planned));
        }
        self.serve_displaced(range, key)
    }

    fn is_free(&self, range: &Range<u32>) -> bool {
        self.taken.is_free(range.start as usize, range.end as usize)
    }

    fn served(&self, start: u32, source: Source) -> Served {
        Served { address: self.frames.base() + u64::from(start) * GRANULE, source }
    }

    /// Makes a free range a block: behind an event if another stream used it last, with memory behind it. If the
    /// device refuses, it stays free and the answer is `false`. `found` says where the gaps have it, if it was found there.
    #[inline]
    fn claim(&mut self, range: &Range<u32>, stream: u8, found: Option<Place>) -> bool {
        if self.take_over(range, stream).is_err() || self.back_with_memory(range).is_err() {
            return false;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        self.taken.insert(start, end);
        self.starts.insert(start, start + 1);
        let granules = range.end - range.start;
        if let Some(place) = found {
            self.gaps.take(place, granules);
        }
        let in_gaps = found.is_some();
        let block = Block { granules, slack: self.slack, stream, in_gaps, recorded: false, pending: false };
        self.blocks.insert(range.start, block);
        let statistics = &mut self.statistics;
        statistics.allocated += block.bytes();
        statistics.peak_allocated = statistics.peak_allocated.max(statistics.allocated);
        true
    }

    /// Lets a stream follow whoever used a range last: what it is given from now on runs after what they were given
    /// until now.
    #[inline]
    fn take_over(&mut self, range: &Range<u32>, stream: u8) -> Result<(), stalloc_device::Error> {
        let mut rest = range.clone();
        while let Some((owner, end)) = self.owners.foreign(rest.clone(), stream) {
            let event = self.device.record(self.streams.handle(owner))?;
            self.device.queue_wait(self.streams.handle(stream), &event)?;
            rest.start = end.min(rest.end);
            if rest.is_empty() {
                break;
            }
        }
        self.owners.take(range.clone(), stream);
        Ok(())
    }

    /// First address of the arena.
    pub fn base(&self) -> Address {
        self.frames.base()
    }

    /// Whether an address lies in the arena.
    pub fn owns(&self, address: Address) -> bool {
        address >= self.frames.base() && address - self.frames.base() < self.frames.bytes()
    }

    /// The first granule of the live block at an address.
    fn start_of(&self, address: Address) -> Result<u32, Error> {
        let offset = address.wrapping_sub(self.frames.base());
        let is_start = self.owns(address) && offset.is_multiple_of(GRANULE);
        let start = is_start.then_some((offset / GRANULE) as u32);
        start.ok_or(Error::UnknownAddress(address))
    }

    /// Takes a block back and says what it was. O(1); its range is free at once, or when other streams that used it
    /// are done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn free(&mut self, address: Address) -> Result<LiveBlock, Error> {
        let start = self.start_of(address)?;
        let Some(block) = self.blocks.remove(&start) else { return Err(Error::UnknownAddress(address)) };
        if block.recorded {
            self.free_recorded(start, block, address)?;
        } else {
            self.statistics.allocated -= block.bytes();
            self.make_free(start, block);
        }
        Ok(self.live(start, block))
    }

    /// Forgets a block that is no longer among the blocks.
    #[inline]
    fn make_free(&mut self, start: u32, block: Block) {
        let range = block.range(start);
        self.taken.remove(range.start as usize, range.end as usize);
        self.starts.remove(start as usize, start as usize + 1);
        if block.in_gaps {
            self.gaps.give(range);
        }
    }

    /// Says that another stream uses a block: its range is not reused before that stream is done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        let start = self.start_of(address)?;
        let block = self.blocks.get_mut(&start).filter(|block| !block.pending);
        let block = block.ok_or(Error::UnknownAddress(address))?;
        if self.streams.handle(block.stream) != stream {
            block.recorded = true;
            let recorded = self.recorded.entry(start).or_default();
            if !recorded.contains(&stream) {
                recorded.push(stream);
            }
        }
        Ok(())
    }

    /// See [`Device::allow_peer`].
    pub fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        Ok(self.device.allow_peer(peer)?)
    }

    /// A training step begins, says the program.
    pub fn step_begin(&mut self) {
        self.statistics.steps += 1;
        self.cursor.step_begin(&self.script);
    }

    /// Whether some stream is being captured into a graph. While one is, nothing is served and no event is used: what
    /// a graph uses must stay its own, and the driver allows no more.
    pub fn set_capturing(&mut self, capturing: bool) {
        self.capturing = capturing;
        if !capturing {
            self.record_deferred();
        }
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Device memory behind the arena now, bytes.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.statistics.reserved
    }

    /// Whether the program has left the plan before: [`Statistics::departure`] says where.
    #[inline]
    pub fn has_departed(&self) -> bool {
        self.statistics.departure.is_some()
    }
}

impl<D: Device> Drop for Arena<D> {
    fn drop(&mut self) {
        // Whether the device still exists is not known; there is nobody to tell if it does not.
        if self.device.synchronize().is_ok() {
            let _ = self.frames.release(&mut self.device);
        }
    }
}
