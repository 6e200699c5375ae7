//! What lives in the arena: for snapshots, and for whoever asks about an address.

use std::ops::Range;
use std::os::fd::OwnedFd;

use stalloc_device::{Address, Device, Stream};

use super::place::Block;
use super::{Arena, PoolId, PoolPart, Served};
use crate::Error;
use crate::script::GRANULE;
use crate::statistics::ServedBy;

/// A block that is in use, or that another stream has not done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where it starts.
    pub address: Address,
    /// Its length, rounded up as PyTorch counts, bytes.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Stream that it was allocated on.
    pub stream: Stream,
    /// The program gave it back, but another stream has not done with it.
    pub pending: bool,
}

/// What a block was that was given back. Two words, so that a free returns it without a detour through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Its length, rounded up as PyTorch counts, bytes.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested: u64,
}

impl From<Block> for Freed {
    #[inline]
    fn from(block: Block) -> Self {
        Freed { size: block.bytes(), requested: block.bytes() - u64::from(block.padding) }
    }
}

impl<D: Device> Arena<D> {
    /// The live block that begins at an address. O(1).
    pub fn block(&self, address: Address) -> Option<LiveBlock> {
        let start = self.start_of(address).ok()?;
        let block = self.place.block(start).filter(|block| !block.pending)?;
        Some(self.live(start, *block))
    }

    /// [`Self::free`] that says all that is known of the block: whether another stream has not done with it, too.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn free_told(&mut self, address: Address) -> Result<LiveBlock, Error> {
        if let Some(block) = self.pools.block_around(address) {
            self.free(address)?;
            return Ok(LiveBlock { pending: self.pools.block_around(address).is_some(), ..block });
        }
        let (start, block) = self.take_back(address)?;
        // Nothing polls in between: it waits if it was recorded.
        Ok(LiveBlock { pending: block.recorded, ..self.live(start, block) })
    }

    /// The block, in use or pending, that an address lies in. O(1) at its start and where nothing lies, O(blocks) at most inside of it.
    pub fn block_around(&self, address: Address) -> Option<LiveBlock> {
        if let Some(block) = self.pools.block_around(address) {
            return Some(block);
        }
        if !self.is_open(address) {
            return None;
        }
        let granule = ((address - self.base()) / GRANULE) as u32;
        let (start, block) = self.place.block_at(granule)?;
        Some(self.live(start, block))
    }

    /// Every block that is in use or pending, in the order of addresses. O(n log n).
    pub fn blocks(&self) -> Vec<LiveBlock> {
        let mut blocks: Vec<LiveBlock> = self.place.blocks().map(|(start, block)| self.live(start, block)).collect();
        blocks.sort_unstable_by_key(|block| block.address);
        blocks
    }

    /// First address of the arena.
    pub fn base(&self) -> Address {
        self.memory.frames().base()
    }

    /// The arena's address range, its pools' included.
    pub fn addresses(&self) -> Range<Address> {
        let frames = self.memory.frames();
        frames.base()..frames.base() + frames.bytes() + frames.beyond()
    }

    /// Whether an address lies in the arena.
    pub fn owns(&self, address: Address) -> bool {
        self.addresses().contains(&address)
    }

    /// Whether an address lies in what is planned and searched, and not in a pool.
    pub(super) fn is_open(&self, address: Address) -> bool {
        address >= self.base() && address - self.base() < self.memory.frames().bytes()
    }

    /// The address of a granule.
    pub(super) fn address(&self, granule: u32) -> Address {
        self.base() + u64::from(granule) * GRANULE
    }

    /// The first granule of the live block at an address.
    pub(super) fn start_of(&self, address: Address) -> Result<u32, Error> {
        let offset = address.wrapping_sub(self.base());
        let is_start = self.is_open(address) && offset.is_multiple_of(GRANULE);
        let start = is_start.then_some((offset / GRANULE) as u32);
        start.ok_or(Error::UnknownAddress(address))
    }

    /// The parts of the address range that have device memory behind them, in order. O(frames).
    pub fn mapped(&self) -> Vec<Range<Address>> {
        let parts = self.memory.frames().mapped_parts(0..u32::MAX);
        parts.map(|part| self.address(part.start)..self.address(part.end)).collect()
    }

    /// The handles that a block lies on, in order; `None` for a block of a pool, and where no pages are mapped. They stay behind these
    /// addresses as long as the block lives. Whoever asks may want handles of one length: from now on all are pages.
    pub fn handles(&mut self, block: &LiveBlock) -> Option<Vec<Range<Address>>> {
        let start = self.start_of(block.address).ok().filter(|_| !self.is_solid())?;
        self.memory.use_pages();
        Some(self.memory.frames().handles(&(start..start + (block.size / GRANULE) as u32)))
    }

    /// See [`Device::export`].
    pub fn export(&mut self, handle: Address) -> Result<OwnedFd, Error> {
        Ok(self.device.export(handle)?)
    }

    fn live(&self, start: u32, block: Block) -> LiveBlock {
        LiveBlock {
            address: self.address(start),
            size: block.bytes(),
            requested: block.bytes() - u64::from(block.padding),
            stream: self.order.handle(block.stream),
            pending: block.pending,
        }
    }

    /// A graph, or who runs before it is captured, holds a pool from now on. False if this arena has none: they need pages to map.
    pub fn pool_begin(&mut self, id: PoolId) -> bool {
        self.pools.begin(id)
    }

    /// One holder of a pool less. After the last one its memory goes back with what the arena does not need.
    pub fn pool_end(&mut self, id: PoolId) {
        self.pools.end(id);
    }

    /// Serves `size` bytes from a pool that somebody holds; `None`: the caller's own fallback has to. Captured or not.
    pub fn pool_serve(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Served> {
        let address = if self.sleep.is_asleep() {
            None
        } else {
            self.pools.serve(&mut self.device, id, size, stream, self.order.is_capturing())
        };
        self.ledger.request(address.map(|_| ServedBy::BestFit));
        match address {
            Some(_) => self.ledger.note_pools(self.pools.reserved()),
            None => self.ledger.count(1, |counted| &mut counted.unplanned.refused),
        }
        Some(self.served(address?, size, ServedBy::BestFit))
    }

    /// All memory of pools, each piece of it once, in the order of addresses: blocks where they are, what is free at one of its
    /// addresses. O(n log n).
    pub fn pool_parts(&self) -> Vec<PoolPart> {
        self.pools.contents()
    }

    /// Makes what lives in a pool what lived there before: blocks that were all live at one moment. Returns what was freed, and what
    /// of them is live now: all, unless one is of no memory of the pool.
    pub fn pool_restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        self.pools.restore(id, blocks)
    }
}
