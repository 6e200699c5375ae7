//! Memory of CUDA graphs: private pools whose addresses stay theirs until the last graph is gone.
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
use stalloc_device::{Address, Backing, Device, Stream};

use super::{Arena, Freed, LiveBlock, MAX_GRANULES};
use crate::gaps::Gaps;
use crate::script::GRANULE;

/// What PyTorch calls a pool.
pub type PoolId = (u64, u64);

/// Addresses for pools, as a multiple of the device's memory: one piece can have many.
const ADDRESSES: u64 = 8;

/// Places that are tried of those that are wide enough: nearly always the first one is taken.
const TRIES: usize = 16;

/// Most pages of a piece, which goes elsewhere as a whole only. Training on six lengths makes 359 calls of the driver in a capture with
/// single pages, 109 with pieces of up to 8, 95 with up to 32, in no more memory than with up to 8 (`bench/graphs.py`).
const PIECE: u32 = 32;

/// The lengths of the pieces of so many new pages: short ones too, so that what is gathered later can be of any length.
fn lengths(mut pages: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = pages.div_ceil(2).min(PIECE);
        pages -= length;
        (length > 0).then_some(length)
    })
}

/// Pages of memory that are mapped together, wherever they are.
#[derive(Debug)]
struct Piece {
    /// Its length.
    granules: u32,
    /// The first of its places, for each of its addresses; never none.
    views: Vec<u32>,
    /// What blocks take of it: granules, start to end.
    taken: BTreeMap<u32, u32>,
}

impl Piece {
    fn is_free(&self, part: &Range<u32>) -> bool {
        self.taken.range(..part.end).next_back().is_none_or(|(_, &end)| end <= part.start)
    }

    /// Free granules at its beginning.
    fn before(&self) -> u32 {
        self.taken.first_key_value().map_or(self.granules, |(&start, _)| start)
    }

    /// Free granules at its end.
    fn after(&self) -> u32 {
        self.taken.last_key_value().map_or(self.granules, |(_, &end)| self.granules - end)
    }

    fn free_parts(&self) -> Vec<Range<u32>> {
        let starts = self.taken.keys().copied().chain([self.granules]);
        let ends = [0].into_iter().chain(self.taken.values().copied());
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }
}

/// What is put behind new addresses.
#[derive(Clone, Copy, Debug)]
enum Memory {
    /// A piece that there is, by its number.
    Piece(u32),
    /// A new one of so many pages.
    New(u32),
}

/// The memory of one pool for one stream.
#[derive(Debug)]
struct Pool {
    id: PoolId,
    stream: Stream,
    /// What is free, by address: the free parts of every piece, at each of its places.
    gaps: Gaps,
    /// Its pieces, by number.
    pieces: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
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
struct Waiting<E> {
    start: u32,
    streams: Vec<Stream>,
    events: Option<Vec<E>>,
}

/// All pools of an arena.
#[derive(Debug)]
pub(super) struct Pools<E> {
    base: Address,
    /// Granules of a page.
    granules: u32,
    /// Free places, in pages.
    places: Gaps,
    /// How many places there are.
    len: u32,
    /// The last place of each view. The one after it is taken and has no memory, so that free ranges of two views never join.
    ends: FxHashSet<u32>,
    /// The piece behind each place that has one, and where its view begins.
    behind: FxHashMap<u32, (u32, u32)>,
    pieces: FxHashMap<u32, Piece>,
    next_piece: u32,
    /// Granules of all pieces.
    held: u64,
    pools: FxHashMap<u32, Pool>,
    next_pool: u32,
    /// How many graphs and others hold each pool.
    users: FxHashMap<PoolId, u32>,
    blocks: BTreeMap<u32, Block>,
    recorded: FxHashMap<u32, Vec<Stream>>,
    waiting: Vec<Waiting<E>>,
    /// The driver maps memory once only.
    maps_once: bool,
}

/// Bytes of addresses to reserve for pools: none where the device maps no pages.
pub(super) fn addresses(total: u64, page: Option<u64>) -> u64 {
    let most = MAX_GRANULES * GRANULE / 2;
    page.map_or(0, |page| total.saturating_mul(ADDRESSES).min(most) / page * page)
}

impl<E> Pools<E> {
    /// Pools in a range of so many bytes, reserved and without memory.
    pub fn new(base: Address, bytes: u64, page: u64) -> Self {
        let len = (bytes / page).max(1) as u32;
        Pools {
            base,
            granules: (page / GRANULE) as u32,
            places: Gaps::new(len),
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
        let all = self.len * self.granules;
        let mut gaps = Gaps::new(all);
        gaps.take(0..all);
        self.next_pool += 1;
        self.pools.insert(self.next_pool, Pool { id, stream, gaps, pieces: Vec::new() });
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

    /// A range of a pool's addresses in which so many granules are free: where they fit best.
    fn fit(&mut self, pool: u32, granules: u32) -> Option<u32> {
        let gaps = &self.pools.get(&pool)?.gaps;
        let starts: Vec<u32> =
            gaps.fits(0..self.len * self.granules, granules).take(TRIES).map(|gap| gap.start).collect();
        starts.into_iter().find(|&start| self.claim(pool, &(start..start + granules)))
    }

    /// Memory for new addresses of so many granules, and how many granules of the first piece are left out. It is made up of pieces on
    /// which no block is; what these do not suffice for goes to the free end of one other piece, to the free beginning of another, or to
    /// both, or it is new, as few pages as possible.
    fn gather(&self, pool: u32, granules: u32) -> (Vec<Memory>, u32) {
        let (mut idle, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let own = self.pools.get(&pool).filter(|_| !self.maps_once).map_or(&[][..], |pool| &pool.pieces);
        for &number in own {
            let Some(piece) = self.pieces.get(&number) else { continue };
            if piece.taken.is_empty() {
                idle.push((piece.granules, number));
            } else {
                before.push((piece.before(), number));
                after.push((piece.after(), number));
            }
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        let (mut memory, mut rest) = (Vec::new(), granules);
        idle.retain(|&(length, number)| {
            let fits = length <= rest;
            if fits {
                memory.push(Memory::Piece(number));
                rest -= length;
            }
            !fits
        });
        let head = after.iter().max().copied().unwrap_or_default();
        let tail = before.iter().filter(|(_, piece)| *piece != head.1).max().copied().unwrap_or_default();
        let new = rest.saturating_sub(head.0 + tail.0).div_ceil(self.granules);
        if let Some(&(_, shortest)) = idle.last().filter(|_| new > 0) {
            // It is longer than what is missing.
            memory.push(Memory::Piece(shortest));
            return (memory, 0);
        }
        memory.extend(lengths(new).map(Memory::New));
        let rest = rest.saturating_sub(new * self.granules);
        let tightest = |list: &[(u32, u32)]| list.iter().filter(|(free, _)| *free >= rest).min().copied();
        let skipped = |piece: u32, used: u32| self.pieces.get(&piece).map_or(0, |piece| piece.granules - used);
        if rest == 0 {
            (memory, 0)
        } else if let Some((_, last)) = tightest(&before) {
            memory.push(Memory::Piece(last));
            (memory, 0)
        } else if let Some((_, first)) = tightest(&after) {
            memory.insert(0, Memory::Piece(first));
            (memory, skipped(first, rest))
        } else {
            memory.insert(0, Memory::Piece(head.1));
            memory.push(Memory::Piece(tail.1));
            (memory, skipped(head.1, head.0))
        }
    }

    /// New addresses for so many granules, with memory behind them: where they begin.
    fn widen<D: Device>(&mut self, device: &mut D, pool: u32, granules: u32) -> Option<u32> {
        let (mut memory, mut skipped) = self.gather(pool, granules);
        let mut mapped = self.view(device, pool, &memory);
        if mapped.is_none() && self.maps_once && memory.iter().any(|memory| matches!(memory, Memory::Piece(_))) {
            (memory, skipped) = self.gather(pool, granules);
            mapped = self.view(device, pool, &memory);
        }
        let start = mapped? * self.granules + skipped;
        self.claim(pool, &(start..start + granules)).then_some(start)
    }

    /// Puts pieces, old and new, behind new places: the first of them.
    fn view<D: Device>(&mut self, device: &mut D, pool: u32, memory: &[Memory]) -> Option<u32> {
        let length = |memory: &Memory| match memory {
            Memory::Piece(number) => self.pieces.get(number).map_or(0, |piece| piece.granules / self.granules),
            Memory::New(pages) => *pages,
        };
        let lengths: Vec<u32> = memory.iter().map(length).collect();
        let count = lengths.iter().sum::<u32>() + 1;
        let first = self.places.fits(0..self.len, count).next()?.start;
        let backing = |(memory, &pages): (&Memory, &u32)| {
            let piece = if let Memory::Piece(number) = memory { self.pieces.get(number) } else { None };
            let view = piece.and_then(|piece| piece.views.first());
            Backing { bytes: u64::from(pages) * self.page_bytes(), from: view.map(|&view| self.place_address(view)) }
        };
        let backings: Vec<Backing> = memory.iter().zip(&lengths).map(backing).collect();
        let to = self.place_address(first);
        let (mapped, result) = device.map_run(to, &backings);
        if let Err(error) = result {
            self.maps_once |= matches!(error, stalloc_device::Error::Unsupported(_));
            // Nobody has had them yet.
            let _ = device.unmap(to, backings[..mapped].iter().map(|backing| backing.bytes).sum());
            return None;
        }
        self.places.take(first..first + count);
        self.ends.insert(first + count - 2);
        let pool = self.pools.get_mut(&pool)?;
        let mut place = first;
        for (memory, pages) in memory.iter().zip(lengths) {
            let number = if let Memory::Piece(number) = memory { *number } else { self.next_piece };
            if let Memory::New(_) = memory {
                let granules = pages * self.granules;
                self.next_piece += 1;
                self.held += u64::from(granules);
                self.pieces.insert(number, Piece { granules, views: Vec::new(), taken: BTreeMap::new() });
                pool.pieces.push(number);
            }
            self.behind.extend((place..place + pages).map(|each| (each, (number, place))));
            let Some(piece) = self.pieces.get_mut(&number) else { continue };
            piece.views.push(place);
            for part in piece.free_parts() {
                let start = place * self.granules;
                pool.gaps.give(start + part.start..start + part.end);
            }
            place += pages;
        }
        Some(first)
    }

    fn free_block(&mut self, start: u32) {
        if let Some(block) = self.blocks.remove(&start) {
            self.unclaim(block.pool, &(start..start + block.granules));
        }
    }

    /// Frees the blocks whose other streams are done. Not while a graph is captured.
    fn poll<D: Device<Event = E>>(&mut self, device: &mut D) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.events.is_none() {
                waiting.events =
                    waiting.streams.iter().map(|&stream| device.record(stream)).collect::<Result<_, _>>().ok();
            }
            let is_done = |events: &Vec<E>| events.iter().all(|event| device.completed(event).unwrap_or(false));
            if waiting.events.as_ref().is_some_and(is_done) {
                self.free_block(waiting.start);
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    /// Gives back the pieces without a block of pools that nobody holds any more. The device must be idle.
    fn give_back<D: Device>(&mut self, device: &mut D) -> u64 {
        let (page, before) = (self.granules, self.held);
        let Pools { base, pieces, pools, users, places, ends, behind, held, .. } = self;
        for pool in pools.values_mut().filter(|pool| !users.contains_key(&pool.id)) {
            let Pool { gaps, pieces: own, .. } = pool;
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
    fn restore(&mut self, id: PoolId, block: &LiveBlock) -> bool {
        let (Some(start), Ok(granules)) = (self.start_of(block.address), u32::try_from(block.size / GRANULE)) else {
            return false;
        };
        let range = start..start.saturating_add(granules);
        let parts = self.parts(&range).filter(|parts| !parts.is_empty());
        let is_owner = |pool: &Pool, parts: &[(u32, Range<u32>)]| {
            let owns_all = parts.iter().all(|(piece, _)| pool.pieces.contains(piece));
            pool.id == id && pool.stream == block.stream && owns_all
        };
        let owner = parts.and_then(|parts| self.pools.iter().find(|(_, pool)| is_owner(pool, &parts)));
        let Some(pool) = owner.map(|(&number, _)| number) else { return false };
        if !self.claim(pool, &range) {
            return false;
        }
        self.blocks.insert(start, Block { pool, granules, requested: block.requested, pending: false });
        true
    }

    /// Gives all memory back. The device must be idle.
    pub fn release<D: Device>(&mut self, device: &mut D) {
        for piece in self.pieces.values() {
            for &view in &piece.views {
                let _ = device.unmap(self.place_address(view), u64::from(piece.granules) * GRANULE);
            }
        }
    }

    fn live(&self, start: u32, block: Block) -> LiveBlock {
        LiveBlock {
            address: self.address(start),
            size: u64::from(block.granules) * GRANULE,
            requested: block.requested,
            stream: self.pools.get(&block.pool).map_or(0, |pool| pool.stream),
            pending: block.pending,
        }
    }
}

impl<D: Device> Arena<D> {
    /// A graph, or who runs before it is captured, holds a pool from now on. False if this arena has none: they need pages to map.
    pub fn pool_begin(&mut self, id: PoolId) -> bool {
        let Some(pools) = &mut self.pools else { return false };
        *pools.users.entry(id).or_default() += 1;
        true
    }

    /// One holder of a pool less. After the last one its memory goes back with what the arena does not need.
    pub fn pool_end(&mut self, id: PoolId) {
        let Some(pools) = &mut self.pools else { return };
        if let Some(users) = pools.users.get_mut(&id) {
            *users -= 1;
            if *users == 0 {
                pools.users.remove(&id);
            }
        }
    }

    /// Serves `size` bytes from a pool that somebody holds; `None`: the caller's own fallback has to. Captured or not.
    pub fn pool_serve(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address> {
        let served = self.try_pool(id, size, stream);
        let statistics = &mut self.statistics;
        statistics.requests += 1;
        if served.is_some() {
            statistics.open += 1;
        } else {
            statistics.fallback += 1;
            statistics.unplanned.refused += 1;
        }
        served
    }

    fn try_pool(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address> {
        let granules = u32::try_from(size.max(1).div_ceil(GRANULE)).ok()?;
        let pools = self.pools.as_mut().filter(|pools| pools.users.contains_key(&id))?;
        if !self.capturing && !pools.waiting.is_empty() {
            pools.poll(&mut self.device);
        }
        let pool = pools.pool(id, stream);
        let start = pools.fit(pool, granules).or_else(|| pools.widen(&mut self.device, pool, granules))?;
        pools.blocks.insert(start, Block { pool, granules, requested: size, pending: false });
        self.note_pools();
        Some(self.pools.as_ref()?.address(start))
    }

    fn note_pools(&mut self) {
        let statistics = &mut self.statistics;
        statistics.pools = self.pools.as_ref().map_or(0, Pools::reserved);
        statistics.peak_allocated = statistics.peak_allocated.max(statistics.allocated + statistics.pools);
    }

    /// Takes a pool's block back; `None` if none begins there.
    pub(super) fn pool_free(&mut self, address: Address) -> Option<Freed> {
        let pools = self.pools.as_mut()?;
        let start = pools.start_of(address)?;
        let block = *pools.blocks.get(&start).filter(|block| !block.pending)?;
        match pools.recorded.remove(&start) {
            None => pools.free_block(start),
            Some(streams) => {
                pools.blocks.insert(start, Block { pending: true, ..block });
                pools.waiting.push(Waiting { start, streams, events: None });
            }
        }
        Some(Freed { size: u64::from(block.granules) * GRANULE, requested: block.requested })
    }

    /// See [`Arena::record_stream`]; false if no block of a pool begins there.
    pub(super) fn pool_record_stream(&mut self, address: Address, stream: Stream) -> bool {
        let Some(pools) = &mut self.pools else { return false };
        let start = pools.start_of(address);
        let Some(block) = start.and_then(|start| pools.block_at(start)) else { return false };
        if block.stream != stream {
            let recorded = pools.recorded.entry(start.unwrap_or_default()).or_default();
            if !recorded.contains(&stream) {
                recorded.push(stream);
            }
        }
        true
    }

    /// The block of a pool that an address lies in. O(log n).
    pub(super) fn pool_block_around(&self, address: Address) -> Option<LiveBlock> {
        let pools = self.pools.as_ref()?;
        let granule = u32::try_from(address.checked_sub(pools.base)? / GRANULE).ok()?;
        let (&start, &block) = pools.blocks.range(..=granule).next_back()?;
        (granule - start < block.granules).then(|| pools.live(start, block))
    }

    /// All memory of pools, each piece of it once, in the order of addresses: blocks where they are, what is free at one of its
    /// addresses. O(n log n).
    pub fn pool_parts(&self) -> Vec<PoolPart> {
        let Some(pools) = &self.pools else { return Vec::new() };
        let mut parts = Vec::new();
        for pool in pools.pools.values() {
            let free = |start: u32, end: u32| {
                let size = u64::from(end - start) * GRANULE;
                let address = pools.address(start);
                LiveBlock { address, size, requested: 0, stream: pool.stream, pending: false }
            };
            for piece in pool.pieces.iter().filter_map(|piece| pools.pieces.get(piece)) {
                let first = piece.views.first().map_or(0, |view| view * pools.granules);
                let of = piece.free_parts().into_iter();
                let of = of.map(|part| free(first + part.start, first + part.end));
                parts.extend(of.map(|block| PoolPart { pool: pool.id, block, free: true }));
            }
        }
        for (&start, &block) in &pools.blocks {
            let id = pools.pools.get(&block.pool).map_or((0, 0), |pool| pool.id);
            parts.push(PoolPart { pool: id, block: pools.live(start, block), free: false });
        }
        parts.sort_unstable_by_key(|part| part.block.address);
        parts
    }

    /// Makes what lives in a pool what lived there before: blocks that were all live at one moment. Returns what was freed, and what
    /// of them is live now: all, unless one is of no memory of the pool.
    pub fn pool_restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        let parts = self.pool_parts();
        let live = parts.into_iter().filter(|part| part.pool == id && !part.free && !part.block.pending);
        let freed: Vec<LiveBlock> =
            live.map(|part| part.block).filter(|block| self.pool_free(block.address).is_some()).collect();
        let Some(pools) = &mut self.pools else { return (freed, Vec::new()) };
        let restored = blocks.iter().filter(|block| pools.restore(id, block)).copied().collect();
        (freed, restored)
    }

    /// Gives back what pools hold that nobody holds any more. The device must be idle.
    pub(super) fn give_back_pools(&mut self) -> u64 {
        let given = self.pools.as_mut().map_or(0, |pools| {
            pools.poll(&mut self.device);
            pools.give_back(&mut self.device)
        });
        self.note_pools();
        given
    }
}
