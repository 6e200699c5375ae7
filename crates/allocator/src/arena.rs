//! One address range per device, and one rule: what repeats exactly goes to its planned offset; everything else
//! where it fits best, on mapped memory before any is remapped; and memory is remapped only under pressure.
//!
//! An address is a proposal, from the plan or from the search; [`RangeSet`] decides whether it is free. So no two live
//! blocks overlap, whatever the program does and whatever the plan says. The range is addresses, not memory: it is
//! larger than the device, and pages are mapped where blocks are.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_device::{Address, Device, Stream};
use stalloc_gaps::Gaps;
use stalloc_plan::Plan;

use crate::Error;
use crate::cursor::{Cursor, Guess};
use crate::frames::Frames;
use crate::journal::{Event, Journal};
use crate::marks::Marks;
use crate::ranges::RangeSet;
use crate::script::{GRANULE, Key, Script};
use crate::statistics::{Source, Statistics};
use crate::streams::{Owners, Streams, bit};

mod blocks;
mod budget;
mod epochs;
mod memory;
mod pending;
mod pools;
mod remap;
mod rivals;
mod search;
mod sleep;
mod worth;

pub use blocks::{Freed, LiveBlock};
use budget::Budget;
use epochs::Flying;
use memory::Remaps;
use pending::Pending;
use pools::Pools;
pub use pools::{PoolId, PoolPart};
use remap::OldMappings;
use rivals::Rivals;
pub use sleep::Moved;
use worth::Worth;

/// Largest address range of an arena in granules, bytes 2 TiB.
const MAX_GRANULES: u64 = u32::MAX as u64;

/// This part of the addresses beyond the plan is for small blocks.
const SMALL_PART: u64 = 16;

/// A block in the arena.
#[derive(Clone, Copy, Debug)]
struct Block {
    granules: u32,
    /// What rounding added to the bytes that were asked for.
    padding: u16,
    /// Ordinal of the stream that it was allocated on.
    stream: u16,
    /// It is cut out of the gaps.
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
    blocks: FxHashMap<u32, Block>,
    /// What is free, in the order of addresses: exact once the blocks of `uncut` are cut out.
    gaps: Gaps,
    /// First granules of blocks that were claimed at planned addresses, some of them gone.
    uncut: Marks,
    budget: Budget,
    rivals: Rivals,
    /// Bytes that the device had for us when it was asked last: free, and ours.
    device_bytes: u64,
    /// Bytes that may be held so that other libraries find what they need.
    may_hold: u64,
    /// The step in which that was asked.
    looked_in_step: u64,
    /// Requests before the first step that was marked.
    unmarked: u64,
    /// Remaps until this step are what a plan's adoption costs once: what its first step puts elsewhere lives into the second.
    counts_from: u64,
    worth: Worth,
    streams: Streams,
    owners: Owners,
    /// Streams that blocks were recorded on, by the block's first granule.
    recorded: FxHashMap<u32, Vec<Stream>>,
    /// Events that were recorded on each stream for what passes on to others, by ordinal.
    flying: Vec<Vec<Flying<D::Event>>>,
    /// What blocks that were given back wait for, by stream.
    pending: Vec<Pending<D::Event>>,
    /// On how many streams each of them waits still.
    waits: FxHashMap<u32, u32>,
    /// Old mappings of what was remapped, in the order of time.
    old_mappings: VecDeque<OldMappings<D::Event>>,
    /// Blocks that were given back during a capture: their events are recorded after it.
    deferred: Vec<u32>,
    capturing: bool,
    /// Most live bytes since idle memory was asked for last.
    most_lately: u64,
    /// The job needs more than half of the device: no block begins to use a part of a large handle.
    packs: bool,
    /// A block was shared with another process, which can map handles of one length only: no others are taken any more.
    only_pages: bool,
    /// Bytes that may be remapped before places on mapped memory are preferred.
    allowance: u64,
    sleep: sleep::Sleep,
    /// Memory of graphs; none where the device maps no pages.
    pools: Option<Pools<D::Event>>,
    /// What has no planned offset, or not now, is left to the fallback.
    planned_only: bool,
    /// What rounding added to the request that is being served.
    padding: u16,
    statistics: Statistics,
    journal: Journal,
    /// Where the addresses begin that are for large blocks, medium ones, and small ones; and where they end.
    regions: [u32; 4],
    /// In each of them, the granule from which on nobody has used anything.
    untouched: [u32; 3],
    /// Followed from the next step on.
    next: Option<Box<Script>>,
    /// Followed before.
    retired: Option<Box<Script>>,
}

impl<D: Device> Arena<D> {
    /// An arena that follows a plan; with a plan without slots it is the open arena. Where the device can map pages
    /// nothing is taken from it yet.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan cannot be followed; [`Error::Device`] if the device refuses the range.
    pub fn new(mut device: D, plan: &Plan) -> Result<Self, Error> {
        let script = Script::new(plan)?;
        let planned = script.bytes();
        let total = device.memory_info()?.total;
        // The range is rounded up to frames: leave room for that.
        let growth = total.saturating_mul(2).min((MAX_GRANULES * GRANULE).saturating_sub(planned) / 2);
        let for_pools = pools::addresses(total, device.page_size());
        let with_pools = Frames::new(&mut device, planned, growth, for_pools);
        // Where there are not so many addresses, pools are the fallback's.
        let frames = with_pools.or_else(|_| Frames::new(&mut device, planned, growth, 0))?;
        let mut arena = Arena::over(device, script, frames);
        if let Some(page) = arena.frames.frame() {
            let part = ((growth / SMALL_PART).next_multiple_of(page) / GRANULE) as u32;
            let end = arena.regions[3];
            if let Some(large) = end.checked_sub(2 * part).filter(|&large| large >= arena.script.granules) {
                arena.regions = [0, large, end - part, end];
                arena.untouched = [0, large, end - part];
            }
        }
        Ok(arena)
    }

    /// The same in one allocation of so many bytes, at least as many as the plan's offsets need: addresses that the driver knows as
    /// one piece, and that never change. Nothing is mapped, remapped or given back; what does not fit is left to the caller's
    /// fallback.
    ///
    /// # Errors
    /// As [`Arena::new`]; the device may not have so much memory in one piece.
    pub fn solid(mut device: D, plan: &Plan, bytes: u64) -> Result<Self, Error> {
        let script = Script::new(plan)?;
        let bytes = bytes.max(script.bytes());
        if bytes > MAX_GRANULES * GRANULE {
            return Err(Error::Plan(format!("an arena of {bytes} bytes in one piece is too large")));
        }
        let frames = Frames::solid(&mut device, bytes)?;
        Ok(Arena::over(device, script, frames))
    }

    fn over(device: D, script: Script, frames: Frames) -> Self {
        let planned = script.bytes();
        let granules = (frames.bytes() / GRANULE) as u32;
        let reserved = frames.mapped();
        let statistics = Statistics { arena: planned, reserved, peak_reserved: reserved, ..Statistics::default() };
        let mut blocks = FxHashMap::default();
        blocks.reserve(script.slots.min(1 << 16) * 2);
        let pools = frames.frame().filter(|_| frames.beyond() > 0);
        let pools = pools.map(|page| Pools::new(frames.base() + frames.bytes(), frames.beyond(), page));
        let mut arena = Arena {
            pools,
            sleep: sleep::Sleep::default(),
            cursor: Cursor::new(&script),
            taken: RangeSet::new(granules as usize),
            blocks,
            gaps: Gaps::new(granules),
            uncut: Marks::new(granules),
            budget: Budget::new(),
            rivals: Rivals::default(),
            device_bytes: u64::MAX,
            may_hold: u64::MAX,
            looked_in_step: 0,
            unmarked: 0,
            counts_from: 0,
            worth: Worth::default(),
            streams: Streams::default(),
            owners: Owners::new(),
            recorded: FxHashMap::default(),
            flying: Vec::new(),
            pending: Vec::new(),
            waits: FxHashMap::default(),
            old_mappings: VecDeque::new(),
            deferred: Vec::new(),
            capturing: false,
            most_lately: 0,
            allowance: 0,
            packs: false,
            only_pages: false,
            planned_only: false,
            padding: 0,
            statistics,
            journal: Journal::default(),
            next: None,
            retired: None,
            regions: [0, granules, granules, granules],
            untouched: [0, granules, granules],
            device,
            script,
            frames,
        };
        arena.look_around();
        arena
    }

    /// Follows the plan that was proposed from now on.
    #[cold]
    fn adopt(&mut self, mut script: Box<Script>) {
        // What is not cut yet is at most what one plan has addresses for.
        self.update_gaps();
        // What a program needs has been seen in the steps that were learned from.
        script.expected_peak = 0;
        self.cursor = Cursor::new(&script);
        self.statistics.arena = u64::from(script.granules) * GRANULE;
        self.statistics.plans += 1;
        std::mem::swap(&mut self.script, &mut script);
        self.retired = Some(script);
        self.counts_from = self.statistics.steps + 2;
        self.worth.adopt();
    }

    /// From now on only requests at their planned offsets are served. The rest is the caller's own fallback's.
    pub fn planned_only(mut self) -> Self {
        self.planned_only = true;
        self
    }

    /// Serves `size` bytes (before rounding, may be 0) on a stream, or leaves them to the caller's own fallback.
    /// A planned request costs O(1): no search and no heap allocation. Any other costs a search, O(gaps / 100).
    pub fn serve(&mut self, size: u64, stream: Stream) -> Option<Served> {
        let served = self.try_serve(size, stream);
        let statistics = &mut self.statistics;
        statistics.requests += 1;
        match served.map(|served| served.source) {
            Some(Source::Planned) => statistics.planned += 1,
            Some(_) => statistics.best_fit += 1,
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
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok().filter(|_| !self.sleep.is_asleep());
        let (Some(granules), Some(ordinal)) = (granules, self.streams.ordinal(stream)) else {
            self.statistics.unplanned.refused += 1;
            return None;
        };
        self.padding = (u64::from(granules) * GRANULE - size) as u16;
        if !self.pending.is_empty() {
            self.poll();
        }
        self.admit(ordinal);
        let key = Key::new(granules, ordinal);
        match self.cursor.advance(&self.script, key) {
            Guess::Planned(place) => self.serve_planned(place, key),
            guess => self.serve_best_fit(guess, key, stream),
        }
    }

    #[inline]
    fn serve_planned(&mut self, place: u32, key: Key) -> Option<Served> {
        let range = place..place + key.granules();
        if (self.is_free(&range) || self.is_free_after_polling(&range))
            && self.claim(&range, key.stream(), false, Remaps::Any)
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
    /// device refuses, it stays free and the answer is `false`. `found`: by a search of the gaps, which are up to date.
    #[inline]
    fn claim(&mut self, range: &Range<u32>, stream: u16, found: bool, remaps: Remaps) -> bool {
        // What is free is decided by the taken ranges alone, however a place was found.
        if found && !self.is_free(range) {
            debug_assert!(false, "the gaps hold {range:?}, which is taken");
            return false;
        }
        if self.ensure_mapped(range, stream, remaps).is_err() || self.take_over(range, stream).is_err() {
            return false;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        self.taken.insert(start, end);
        for (untouched, region) in self.untouched.iter_mut().zip(self.regions.windows(2)) {
            if range.start < region[1] && range.end > *untouched {
                *untouched = range.end.min(region[1]);
            }
        }
        let granules = range.end - range.start;
        let block = Block { granules, padding: self.padding, stream, in_gaps: found, recorded: false, pending: false };
        self.blocks.insert(range.start, block);
        self.rivals.alloc(stream, granules);
        if found {
            self.gaps.take(range.clone());
        } else {
            self.uncut.insert(range.start);
        }
        self.journal.push(Event::Alloc { start: range.start, granules, stream });
        let statistics = &mut self.statistics;
        statistics.allocated += block.bytes();
        statistics.peak_allocated = statistics.peak_allocated.max(statistics.allocated + statistics.pools);
        self.most_lately = self.most_lately.max(statistics.allocated);
        true
    }

    /// Whether an address lies in what is planned and searched, and not in a pool.
    fn is_open(&self, address: Address) -> bool {
        address >= self.frames.base() && address - self.frames.base() < self.frames.bytes()
    }

    /// The first granule of the live block at an address.
    fn start_of(&self, address: Address) -> Result<u32, Error> {
        let offset = address.wrapping_sub(self.frames.base());
        let is_start = self.is_open(address) && offset.is_multiple_of(GRANULE);
        let start = is_start.then_some((offset / GRANULE) as u32);
        start.ok_or(Error::UnknownAddress(address))
    }

    /// Takes a block back and says what it was. O(1); its range is free at once, or when other streams that used it
    /// are done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn free(&mut self, address: Address) -> Result<Freed, Error> {
        if let Some(freed) = self.pool_free(address) {
            return Ok(freed);
        }
        Ok(self.take_back(address)?.1.into())
    }

    /// Forgets a block that is no longer among the blocks.
    #[inline]
    fn make_free(&mut self, start: u32, block: Block) {
        let range = block.range(start);
        self.journal.push(Event::Free { start });
        self.rivals.free(block.stream, block.granules);
        self.taken.remove(range.start as usize, range.end as usize);
        self.note_use(block, range.clone());
        if block.in_gaps {
            self.gaps.give_of(range, bit(block.stream));
        }
    }

    /// Says that another stream uses a block: its range is not reused before that stream is done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        if self.pool_record_stream(address, stream) {
            return Ok(());
        }
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

    /// A training step begins, says the program.
    pub fn step_begin(&mut self) {
        if self.statistics.steps == 0 {
            self.unmarked = self.statistics.requests;
        }
        self.statistics.steps += 1;
        self.worth.step_begin(self.statistics.remapped, self.statistics.steps > self.counts_from);
        self.end_epoch();
        self.review();
        if let Some(script) = self.next.take() {
            self.adopt(script);
        }
        self.journal.push(Event::StepBegin);
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

    /// Notes what it is asked for from now on, for [`Self::take_journal`].
    pub fn keep_journal(&mut self) {
        self.journal.turn_on();
    }

    /// Exchanges what was noted so far for an empty list, whose memory is used again; false if some is missing. O(1).
    pub fn take_journal(&mut self, empty: &mut Vec<Event>) -> bool {
        self.journal.take(empty)
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { driver: self.device.driver_work(), ..self.statistics }
    }

    /// Device memory behind the arena and its pools now, bytes.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.statistics.reserved + self.statistics.pools
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
        if self.device.synchronize().is_ok() && self.unmap_all_old().is_ok() {
            if let Some(pools) = &mut self.pools {
                pools.release(&mut self.device);
            }
            let _ = self.frames.release(&mut self.device);
            self.sleep.release(&mut self.device);
        }
    }
}
