//! One address range per device, and one rule: what repeats exactly goes to its planned offset; everything else
//! where it fits best, on mapped memory before any is remapped; and memory is remapped only under pressure.
//!
//! Five organs, each with its own fields: an address is a proposal, from the plan or from the search, and **place** decides whether it is
//! free. So no two live blocks overlap, whatever the program does and whatever the plan says. **Memory** is behind addresses where blocks
//! are: the range is larger than the device. **Order** lets a stream use what others used, **pools** serve graphs, and the **ledger**
//! counts. Here they meet.

use stalloc_device::{Address, Device, Stream};
use stalloc_plan::Plan;

use crate::Error;
use crate::frames::Frames;
use crate::journal::JournalEvent;
use crate::script::{GRANULE, Guess, Key, Script};
use crate::statistics::{ServedBy, Statistics};

mod blocks;
mod ledger;
mod memory;
mod order;
mod place;
mod pools;
mod serve;
mod sleep;
mod upkeep;

pub use blocks::{Freed, LiveBlock};
use ledger::Ledger;
use memory::{Mapper, Memory};
use order::Order;
use place::{Block, Place};
use pools::Pools;
pub use pools::{PoolId, PoolPart};
pub use sleep::Moved;
use sleep::Sleep;

/// Largest address range of an arena in granules, bytes 2 TiB.
const MAX_GRANULES: u64 = u32::MAX as u64;

/// A request.
#[derive(Clone, Copy)]
struct KeyRequest {
    key: Key,
    /// What rounding added to its bytes.
    padding: u16,
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Where.
    pub address: Address,
    /// What it takes, rounded up, bytes.
    pub bytes: u64,
    /// Device memory behind the arena now, bytes.
    pub reserved: u64,
    /// How the place was found.
    pub source: ServedBy,
    /// The program has left its plan, here or before.
    pub departed: bool,
}

/// Serves requests at planned offsets, else where they fit best, and owns the memory behind; says `None` to the rest.
#[derive(Debug)]
pub struct Arena<D: Device> {
    device: D,
    place: Place,
    memory: Memory<D>,
    order: Order<D>,
    /// Memory of graphs.
    pools: Pools<D>,
    ledger: Ledger,
    /// What is on the host while its memory is given away.
    sleep: Sleep,
    /// What has no planned offset, or not now, is left to the fallback.
    planned_only: bool,
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
        // Blocks leave gaps between addresses that no larger one fits into: with twice the memory's there was no place for a block of a
        // tenth of the device, whose memory was free. The range is rounded up to frames: leave room for that.
        let growth = total.saturating_mul(4).min((MAX_GRANULES * GRANULE).saturating_sub(planned) / 2);
        let for_pools = pools::addresses(total, device.page_size());
        let with_pools = Frames::new(&mut device, planned, growth, for_pools);
        // Where there are not so many addresses, pools are the fallback's.
        let frames = with_pools.or_else(|_| Frames::new(&mut device, planned, growth, 0))?;
        let page = frames.frame();
        let mut arena = Arena::over(device, script, frames);
        if let Some(page) = page {
            arena.place.divide(growth, page);
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
        let ledger = Ledger::new(script.bytes(), frames.mapped());
        let pools = Pools::new(frames.base() + frames.bytes(), frames.beyond(), frames.frame());
        let place = Place::new(script, (frames.bytes() / GRANULE) as u32);
        let mut memory = Memory::new(frames);
        memory.look_around(&device, &ledger);
        let (order, sleep) = (Order::new(), Sleep::default());
        Arena { device, place, memory, order, pools, ledger, sleep, planned_only: false }
    }

    /// From now on only requests at their planned offsets are served. The rest is the caller's own fallback's.
    pub fn planned_only(mut self) -> Self {
        self.planned_only = true;
        self
    }

    /// Memory, with what it needs of the others.
    #[inline]
    fn mapper(&mut self) -> Mapper<'_, D> {
        let Arena { device, place, memory, order, ledger, .. } = self;
        Mapper { memory, device, place, order, ledger }
    }

    /// Serves `size` bytes (before rounding, may be 0) on a stream, or leaves them to the caller's own fallback.
    /// A planned request costs O(1): no search and no heap allocation. Any other costs a search, O(gaps / 100).
    pub fn serve(&mut self, size: u64, stream: Stream) -> Option<Served> {
        let placed = self.try_serve(size, stream);
        self.ledger.request(placed.map(|(_, source)| source));
        let (start, source) = placed?;
        Some(self.served(self.address(start), size, source))
    }

    #[inline]
    fn served(&self, address: Address, size: u64, source: ServedBy) -> Served {
        let bytes = size.max(1).next_multiple_of(GRANULE);
        Served { address, bytes, reserved: self.reserved(), source, departed: self.has_departed() }
    }

    /// The first granule of a block for a request, and how its place was found.
    #[inline]
    fn try_serve(&mut self, size: u64, stream: Stream) -> Option<(u32, ServedBy)> {
        if self.order.is_capturing() {
            self.ledger.count(1, |counted| &mut counted.unplanned.capturing);
            return None;
        }
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok().filter(|_| !self.sleep.is_asleep());
        let (Some(granules), Some(ordinal)) = (granules, self.order.ordinal(stream)) else {
            self.ledger.count(1, |counted| &mut counted.unplanned.refused);
            return None;
        };
        let key = Key::new(granules, ordinal);
        let request = KeyRequest { key, padding: (u64::from(granules) * GRANULE - size) as u16 };
        self.poll();
        self.order.admit(ordinal, || self.memory.frames().mapped_parts(0..u32::MAX));
        match self.place.guess(key) {
            Guess::Planned(start) => self.serve_planned(start, request),
            guess => self.serve_open(guess, request, stream),
        }
    }

    /// Frees the blocks that other streams have done with.
    #[inline]
    fn poll(&mut self) {
        let mut left = self.order.pending();
        while left > 0
            && let Some(start) = self.order.next_done(&mut self.device, &mut left)
        {
            if let Some(block) = self.place.remove(start) {
                self.make_free(start, block);
            }
        }
    }

    /// Takes a block back and says what it was. O(1); its range is free at once, or when other streams that used it
    /// are done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn free(&mut self, address: Address) -> Result<Freed, Error> {
        if let Some(freed) = self.pools.free(address) {
            return Ok(freed);
        }
        Ok(self.take_back(address)?.1.into())
    }

    #[inline]
    fn take_back(&mut self, address: Address) -> Result<(u32, Block), Error> {
        let start = self.start_of(address)?;
        let Some(block) = self.place.remove(start) else { return Err(Error::UnknownAddress(address)) };
        if block.recorded {
            self.place.keep_pending(start, block);
            if block.pending {
                return Err(Error::UnknownAddress(address));
            }
            self.order.wait_for_others(&mut self.device, start);
        } else {
            self.make_free(start, block);
        }
        self.ledger.given_back(block.bytes());
        Ok((start, block))
    }

    /// Forgets a block that is no longer among the blocks.
    #[inline]
    fn make_free(&mut self, start: u32, block: Block) {
        self.ledger.free(start);
        self.place.give(start, block);
        if !self.order.is_alone(block.stream) {
            let by_steps = self.ledger.statistics().steps > 0;
            self.order.admit(block.stream, || self.memory.frames().mapped_parts(0..u32::MAX));
            self.order.note_use(&mut self.device, block.range(start), block.stream, by_steps);
        }
    }

    /// Says that another stream uses a block: its range is not reused before that stream is done.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        if self.pools.record_stream(address, stream) {
            return Ok(());
        }
        let start = self.start_of(address)?;
        let block = self.place.block_mut(start).filter(|block| !block.pending);
        let block = block.ok_or(Error::UnknownAddress(address))?;
        if self.order.handle(block.stream) != stream {
            block.recorded = true;
            self.order.record_stream(start, stream);
        }
        Ok(())
    }

    /// A training step begins, says the program.
    pub fn step_begin(&mut self) {
        self.ledger.step_begin();
        self.order.end_epoch(&mut self.device);
        self.memory.begin_step(&self.device, &self.ledger);
        self.review();
        self.adopt();
        self.ledger.journal().push(JournalEvent::StepBegin);
        self.place.step_begin();
    }

    /// Whether some stream is being captured into a graph. While one is, nothing is served and no event is used: what
    /// a graph uses must stay its own, and the driver allows no more.
    pub fn set_capturing(&mut self, capturing: bool) {
        self.order.set_capturing(&mut self.device, capturing);
    }

    /// Notes what it is asked for from now on, for [`Self::take_journal`].
    pub fn keep_journal(&mut self) {
        self.ledger.journal().turn_on();
    }

    /// Exchanges what was noted so far for an empty list, whose memory is used again; false if some is missing. O(1).
    pub fn take_journal(&mut self, empty: &mut Vec<JournalEvent>) -> bool {
        self.ledger.journal().take(empty)
    }

    /// What the better of PyTorch's allocators holds for the journal so far, bytes, and how often the journal said that what is cached was
    /// given back: the arena may hold as much where remapping takes time.
    pub fn rivals_hold(&mut self, bytes: u64, given_back: u64) {
        self.ledger.rivals_hold(bytes, given_back);
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { driver: self.device.driver_work(), ..*self.ledger.statistics() }
    }

    /// Device memory behind the arena and its pools now, bytes.
    #[inline]
    pub fn reserved(&self) -> u64 {
        let counted = self.ledger.statistics();
        counted.reserved + counted.pools
    }

    /// Whether the program has left the plan before: [`Statistics::departure`] says where.
    #[inline]
    pub fn has_departed(&self) -> bool {
        self.ledger.statistics().departure.is_some()
    }
}

impl<D: Device> Drop for Arena<D> {
    fn drop(&mut self) {
        // Whether the device still exists is not known; there is nobody to tell if it does not.
        if self.device.synchronize().is_ok() {
            self.pools.release(&mut self.device);
            let _ = self.memory.release(&mut self.device);
            self.sleep.release(&mut self.device);
        }
    }
}
