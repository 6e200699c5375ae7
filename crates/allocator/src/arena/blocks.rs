//! What lives in the arena: for snapshots, and for whoever asks about an address.

use std::ops::Range;
use std::os::fd::OwnedFd;

use stalloc_device::{Address, Device, Stream};

use super::{Arena, Block};
use crate::Error;
use crate::script::GRANULE;

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
        let block = self.blocks.get(&start).filter(|block| !block.pending)?;
        Some(self.live(start, *block))
    }

    #[inline]
    pub(super) fn take_back(&mut self, address: Address) -> Result<(u32, Block), Error> {
        let start = self.start_of(address)?;
        let Some(block) = self.blocks.remove(&start) else { return Err(Error::UnknownAddress(address)) };
        if block.recorded {
            self.free_recorded(start, block, address)?;
        } else {
            self.statistics.allocated -= block.bytes();
            self.make_free(start, block);
        }
        Ok((start, block))
    }

    /// [`Self::free`] that says all that is known of the block: whether another stream has not done with it, too.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] if no live block begins there.
    pub fn free_told(&mut self, address: Address) -> Result<LiveBlock, Error> {
        if let Some(block) = self.pool_block_around(address) {
            self.free(address)?;
            return Ok(LiveBlock { pending: self.pool_block_around(address).is_some(), ..block });
        }
        let (start, block) = self.take_back(address)?;
        // Nothing polls in between: it waits if it was recorded.
        Ok(LiveBlock { pending: block.recorded, ..self.live(start, block) })
    }

    /// The block, in use or pending, that an address lies in. O(1) at its start and where nothing lies, O(blocks) at most inside of it.
    pub fn block_around(&self, address: Address) -> Option<LiveBlock> {
        if let Some(block) = self.pool_block_around(address) {
            return Some(block);
        }
        if !self.is_open(address) {
            return None;
        }
        let granule = ((address - self.frames.base()) / GRANULE) as u32;
        if self.is_free(&(granule..granule + 1)) {
            return None;
        }
        let (start, block) = self.block_at(granule)?;
        Some(self.live(start, block))
    }

    /// The block that a granule lies in: itself by where it starts, or the next one behind a gap that reaches it.
    fn block_at(&self, granule: u32) -> Option<(u32, Block)> {
        if let Some(&block) = self.blocks.get(&granule) {
            return Some((granule, block));
        }
        let contains = |start: u32, block: &Block| block.range(start).contains(&granule);
        let mut start = self.gaps.starting_by(granule).map_or(0, |gap| gap.end);
        while let Some(&block) = self.blocks.get(&start).filter(|_| start <= granule) {
            if contains(start, &block) {
                return Some((start, block));
            }
            start += block.granules;
        }
        // What was claimed at a planned address is not cut out of the gaps yet.
        self.blocks.iter().find(|(start, block)| contains(**start, block)).map(|(&start, &block)| (start, block))
    }

    /// Every block that is in use or pending, in the order of addresses. O(n log n).
    pub fn blocks(&self) -> Vec<LiveBlock> {
        let mut blocks: Vec<LiveBlock> = self.live_blocks().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        blocks
    }

    /// First address of the arena.
    pub fn base(&self) -> Address {
        self.frames.base()
    }

    /// Whether an address lies in the arena.
    pub fn owns(&self, address: Address) -> bool {
        self.addresses().contains(&address)
    }

    /// The arena's address range, its pools' included.
    pub fn addresses(&self) -> Range<Address> {
        self.frames.base()..self.frames.base() + self.frames.bytes() + self.frames.beyond()
    }

    /// The parts of the address range that have device memory behind them, in order. O(frames).
    pub fn mapped(&self) -> Vec<Range<Address>> {
        let granules = (self.frames.bytes() / GRANULE) as u32;
        let address = |granule: u32| self.frames.base() + u64::from(granule) * GRANULE;
        self.frames.mapped_parts(0..granules).map(|part| address(part.start)..address(part.end)).collect()
    }

    /// The handles that a block lies on, in order; `None` for a block of a pool, and where no pages are mapped. They stay behind these
    /// addresses as long as the block lives. Whoever asks may want handles of one length: from now on all are pages.
    pub fn handles(&mut self, block: &LiveBlock) -> Option<Vec<Range<Address>>> {
        let start = self.start_of(block.address).ok().filter(|_| !self.is_solid())?;
        self.only_pages = true;
        self.packs = true;
        Some(self.frames.handles(&(start..start + (block.size / GRANULE) as u32)))
    }

    /// See [`Device::export`].
    pub fn export(&mut self, handle: Address) -> Result<OwnedFd, Error> {
        Ok(self.device.export(handle)?)
    }

    fn live_blocks(&self) -> impl Iterator<Item = LiveBlock> {
        self.blocks.iter().map(|(&start, &block)| self.live(start, block))
    }

    pub(super) fn live(&self, start: u32, block: Block) -> LiveBlock {
        LiveBlock {
            address: self.frames.base() + u64::from(start) * GRANULE,
            size: block.bytes(),
            requested: block.bytes() - u64::from(block.padding),
            stream: self.streams.handle(block.stream),
            pending: block.pending,
        }
    }
}
