//! Behind of CUDA graphs: private pools whose addresses stay theirs until the last graph is gone.
//!
//! **Which two blocks may share memory.** Those of one pool and one stream, of which one was given back before the other was asked
//! for: PyTorch's own rule. The program promises that graphs of one pool are replayed one after the other, and a graph's own work comes
//! in the order of its capture. Nothing else ever uses a pool's memory: what is captured may use it at any replay.
//!
//! **How they share it.** Pieces of a pool's memory are mapped behind as many addresses as needed. A request goes where it fits best
//! among the pool's addresses; where it fits at none, it gets new addresses, and behind them those pieces of the pool on which no block
//! is. So sizes do not fragment memory, and addresses, once they are in a graph, never lose what is behind them.
//!
//! Free is decided by the exact set of taken parts of each piece, whatever addresses it has.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stalloc_device::{Address, Device, Stream};
use stalloc_gaps::Gaps;

use super::{Freed, LiveBlock, MAX_GRANULES};
use crate::script::GRANULE;

mod piece;
mod place;
mod serve;
mod sleep;

use piece::PoolPiece;
pub(super) use sleep::Away;

/// What PyTorch calls a pool.
pub type PoolId = (u64, u64);

/// Addresses for pools, as a multiple of the device's memory: one piece can have many.
const ADDRESSES: u64 = 16;

/// The memory of one pool for one stream.
#[derive(Debug)]
struct StreamPool {
    id: PoolId,
    stream: Stream,
    /// What is free, by address: the free parts of every piece, at each of its places.
    gaps: Gaps,
    /// Its pieces, by number.
    pieces: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PoolBlock {
    pool: u32,
    granules: u32,
    requested: u64,
    /// The program gave it back, but another stream may still use it.
    pending: bool,
}

/// A part of a pool's memory: a block, or what lies between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPart {
    /// Whose it is.
    pub pool: PoolId,
    /// The block; nothing was asked for what is free.
    pub block: LiveBlock,
    /// No block lies there.
    pub free: bool,
}

/// A block that other streams used: they, and their events once these could be recorded.
#[derive(Debug)]
struct WaitingBlock<E> {
    start: u32,
    streams: Vec<Stream>,
    events: Option<Vec<E>>,
}

/// All pools of an arena.
#[derive(Debug)]
pub(super) struct Pools<D: Device> {
    base: Address,
    /// Granules of a page.
    granules: u32,
    /// Free places, in pages.
    places: Gaps,
    /// How many places there are; 0: there are no pools.
    len: u32,
    /// The last place of each view. The one after it is taken and has no memory, so that free ranges of two views never join.
    ends: FxHashSet<u32>,
    /// The piece behind each place that has one, and where its view begins.
    behind: FxHashMap<u32, (u32, u32)>,
    pieces: FxHashMap<u32, PoolPiece>,
    next_piece: u32,
    /// Granules of all pieces.
    held: u64,
    pools: FxHashMap<u32, StreamPool>,
    next_pool: u32,
    /// How many graphs and others hold each pool.
    users: FxHashMap<PoolId, u32>,
    blocks: BTreeMap<u32, PoolBlock>,
    recorded: FxHashMap<u32, Vec<Stream>>,
    waiting: Vec<WaitingBlock<D::Event>>,
    /// The driver maps memory once only.
    maps_once: bool,
}

/// Bytes of addresses to reserve for pools: none where the device maps no pages.
pub(super) fn addresses(total: u64, page: Option<u64>) -> u64 {
    let most = MAX_GRANULES * GRANULE / 2;
    page.map_or(0, |page| total.saturating_mul(ADDRESSES).min(most) / page * page)
}

impl<D: Device> Pools<D> {
    /// Pools in a range of so many bytes, reserved and without memory; none where there are no pages.
    pub fn new(base: Address, bytes: u64, page: Option<u64>) -> Self {
        let len = page.map_or(0, |page| bytes / page) as u32;
        Pools {
            base,
            granules: (page.unwrap_or(GRANULE) / GRANULE) as u32,
            places: Gaps::new(len.max(1)),
            len,
            ends: FxHashSet::default(),
            behind: FxHashMap::default(),
            pieces: FxHashMap::default(),
            next_piece: 0,
            held: 0,
            pools: FxHashMap::default(),
            next_pool: 0,
            users: FxHashMap::default(),
            blocks: BTreeMap::new(),
            recorded: FxHashMap::default(),
            waiting: Vec::new(),
            maps_once: false,
        }
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.granules) * GRANULE
    }

    /// Device memory behind all pools, bytes.
    pub fn reserved(&self) -> u64 {
        self.held * GRANULE
    }

    fn address(&self, granule: u32) -> Address {
        self.base + u64::from(granule) * GRANULE
    }

    fn start_of(&self, address: Address) -> Option<u32> {
        let offset = address.checked_sub(self.base).filter(|offset| offset.is_multiple_of(GRANULE))?;
        u32::try_from(offset / GRANULE).ok()
    }

    fn place_address(&self, place: u32) -> Address {
        self.base + u64::from(place) * self.page_bytes()
    }

    /// The number of a pool's memory for a stream.
    fn pool(&mut self, id: PoolId, stream: Stream) -> u32 {
        let known = self.pools.iter().find(|(_, pool)| pool.id == id && pool.stream == stream);
        if let Some((&number, _)) = known {
            return number;
        }
        self.next_pool += 1;
        self.pools.insert(self.next_pool, StreamPool { id, stream, gaps: Gaps::none(), pieces: Vec::new() });
        self.next_pool
    }

    /// The pieces that a range of granules lies on, and which granules of each.
    fn parts(&self, range: &Range<u32>) -> Option<Vec<(u32, Range<u32>)>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let &(piece, view) = self.behind.get(&(at / self.granules))?;
            let first = view * self.granules;
            let end = range.end.min(first + self.pieces.get(&piece)?.granules);
            parts.push((piece, at - first..end - first));
            at = end;
        }
        Some(parts)
    }

    /// Takes a range if all of it is free; false if it is not.
    fn claim(&mut self, pool: u32, range: &Range<u32>) -> bool {
        let Some(parts) = self.parts(range) else { return false };
        for (index, (piece, part)) in parts.iter().enumerate() {
            let piece = self.pieces.get_mut(piece).filter(|piece| piece.is_free(part));
            let Some(piece) = piece else {
                // One piece may be behind two addresses of the range.
                for (piece, part) in &parts[..index] {
                    self.pieces.get_mut(piece).map(|piece| piece.taken.remove(&part.start));
                }
                return false;
            };
            piece.taken.insert(part.start, part.end);
        }
        self.each_view(pool, &parts, Gaps::take);
        true
    }

    /// Makes a range free that was claimed.
    fn unclaim(&mut self, pool: u32, range: &Range<u32>) {
        let parts = self.parts(range).unwrap_or_default();
        for (piece, part) in &parts {
            self.pieces.get_mut(piece).map(|piece| piece.taken.remove(&part.start));
        }
        self.each_view(pool, &parts, Gaps::give);
    }

    fn each_view(&mut self, pool: u32, parts: &[(u32, Range<u32>)], change: fn(&mut Gaps, Range<u32>)) {
        let Some(pool) = self.pools.get_mut(&pool) else { return };
        for (piece, part) in parts {
            for view in self.pieces.get(piece).into_iter().flat_map(|piece| &piece.views) {
                let first = view * self.granules;
                change(&mut pool.gaps, first + part.start..first + part.end);
            }
        }
    }

    fn free_block(&mut self, start: u32) {
        if let Some(block) = self.blocks.remove(&start) {
            self.unclaim(block.pool, &(start..start + block.granules));
        }
    }

    /// Frees the blocks whose other streams are done. Not while a graph is captured.
    fn poll(&mut self, device: &mut D) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.events.is_none() {
                waiting.events =
                    waiting.streams.iter().map(|&stream| device.record(stream)).collect::<Result<_, _>>().ok();
            }
            let is_done = |events: &Vec<D::Event>| events.iter().all(|event| device.completed(event).unwrap_or(false));
            if waiting.events.as_ref().is_some_and(is_done) {
                self.free_block(waiting.start);
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    /// Gives back the pieces without a block of pools that nobody holds any more. The device must be idle.
    pub fn give_back(&mut self, device: &mut D) -> u64 {
        self.poll(device);
        let (page, before) = (self.granules, self.held);
        let Pools { base, pieces, pools, users, places, ends, behind, held, .. } = self;
        for pool in pools.values_mut().filter(|pool| !users.contains_key(&pool.id)) {
            let StreamPool { gaps, pieces: own, .. } = pool;
            own.retain(|number| {
                let Some(piece) = pieces.get(number).filter(|piece| piece.taken.is_empty()) else { return true };
                let pages = piece.granules / page;
                for &view in &piece.views {
                    // Addresses that the driver refuses to unmap are nobody's from now on.
                    let start = u64::from(view) * u64::from(page) * GRANULE;
                    let is_unmapped = device.unmap(*base + start, u64::from(piece.granules) * GRANULE).is_ok();
                    let end = view + pages + u32::from(ends.remove(&(view + pages - 1)));
                    if is_unmapped {
                        places.give(view..end);
                    }
                    for place in view..view + pages {
                        behind.remove(&place);
                    }
                    gaps.take(view * page..view * page + piece.granules);
                }
                *held -= u64::from(piece.granules);
                pieces.remove(number);
                false
            });
        }
        pools.retain(|_, pool| !pool.pieces.is_empty() || users.contains_key(&pool.id));
        (before - self.held) * GRANULE
    }

    fn block_at(&self, start: u32) -> Option<LiveBlock> {
        let block = *self.blocks.get(&start).filter(|block| !block.pending)?;
        Some(self.live(start, block))
    }

    /// Makes a block live again that was before, in memory of the same pool.
    fn restore_block(&mut self, id: PoolId, block: &LiveBlock) -> bool {
        let (Some(start), Ok(granules)) = (self.start_of(block.address), u32::try_from(block.size / GRANULE)) else {
            return false;
        };
        let range = start..start.saturating_add(granules);
        let parts = self.parts(&range).filter(|parts| !parts.is_empty());
        let is_owner = |pool: &StreamPool, parts: &[(u32, Range<u32>)]| {
            let owns_all = parts.iter().all(|(piece, _)| pool.pieces.contains(piece));
            pool.id == id && pool.stream == block.stream && owns_all
        };
        let owner = parts.and_then(|parts| self.pools.iter().find(|(_, pool)| is_owner(pool, &parts)));
        let Some(pool) = owner.map(|(&number, _)| number) else { return false };
        if !self.claim(pool, &range) {
            return false;
        }
        self.blocks.insert(start, PoolBlock { pool, granules, requested: block.requested, pending: false });
        true
    }

    /// Gives all memory back. The device must be idle.
    pub fn release(&mut self, device: &mut D) {
        for piece in self.pieces.values() {
            for &view in &piece.views {
                let _ = device.unmap(self.place_address(view), u64::from(piece.granules) * GRANULE);
            }
        }
    }

    fn live(&self, start: u32, block: PoolBlock) -> LiveBlock {
        LiveBlock {
            address: self.address(start),
            size: u64::from(block.granules) * GRANULE,
            requested: block.requested,
            stream: self.pools.get(&block.pool).map_or(0, |pool| pool.stream),
            pending: block.pending,
        }
    }
}
