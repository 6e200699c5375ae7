//! Memory of CUDA graphs: private pools whose addresses stay theirs until the last graph is gone.
//!
//! **Which two blocks may share memory.** Those of one pool and one stream, of which one was given back before the other was asked
//! for: PyTorch's own rule. The program promises that graphs of one pool are replayed one after the other, and a graph's own work comes
//! in the order of its capture. Nothing else ever uses a pool's memory: what is captured may use it at any replay.
//!
//! **How they share it.** Physical pages of a pool are mapped behind as many addresses as needed. A request goes where it fits best
//! among the pool's addresses; where it fits at none, it gets new addresses, and behind them those pages of the pool on which no block
//! is. So sizes do not fragment memory, and addresses, once they are in a graph, never lose what is behind them.
//!
//! Free is decided by the exact set of taken parts of each page, whatever addresses it has.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stalloc_device::{Address, Device, Stream};

use super::{Arena, Freed, LiveBlock, MAX_GRANULES};
use crate::gaps::Gaps;
use crate::script::GRANULE;

/// What PyTorch calls a pool.
pub type PoolId = (u64, u64);

/// Addresses for pools, as a multiple of the device's memory: one page can have many.
const ADDRESSES: u64 = 8;

/// Places that are tried of those that are wide enough: nearly always the first one is taken.
const TRIES: usize = 16;

/// A page of memory.
#[derive(Debug)]
struct Page {
    /// Its places among the addresses, never none.
    views: Vec<u32>,
    /// What blocks take of it: granules, start to end.
    taken: BTreeMap<u32, u32>,
}

impl Page {
    fn is_free(&self, part: &Range<u32>) -> bool {
        self.taken.range(..part.end).next_back().is_none_or(|(_, &end)| end <= part.start)
    }

    /// Free granules at its beginning.
    fn before(&self, granules: u32) -> u32 {
        self.taken.first_key_value().map_or(granules, |(&start, _)| start)
    }

    /// Free granules at its end.
    fn after(&self, granules: u32) -> u32 {
        self.taken.last_key_value().map_or(granules, |(_, &end)| granules - end)
    }

    fn free_parts(&self, granules: u32) -> Vec<Range<u32>> {
        let starts = self.taken.keys().copied().chain([granules]);
        let ends = [0].into_iter().chain(self.taken.values().copied());
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }
}

/// The memory of one pool for one stream.
#[derive(Debug)]
struct Pool {
    id: PoolId,
    stream: Stream,
    /// What is free, by address: the free parts of every page, at each of its places.
    gaps: Gaps,
    /// Its pages, by number.
    pages: Vec<u32>,
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
    /// The page behind each place that has one.
    behind: FxHashMap<u32, u32>,
    pages: FxHashMap<u32, Page>,
    next_page: u32,
    pools: FxHashMap<u32, Pool>,
    next_pool: u32,
    /// How many graphs and others hold each pool.
    users: FxHashMap<PoolId, u32>,
    blocks: BTreeMap<u32, Block>,
    recorded: FxHashMap<u32, Vec<Stream>>,
    waiting: Vec<Waiting<E>>,
    /// The driver maps a page once only.
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
            pages: FxHashMap::default(),
            next_page: 0,
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
        self.pages.len() as u64 * self.page_bytes()
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
        self.pools.insert(self.next_pool, Pool { id, stream, gaps, pages: Vec::new() });
        self.next_pool
    }

    /// The pages that a range of granules lies on, and which granules of each.
    fn parts(&self, range: &Range<u32>) -> Option<Vec<(u32, Range<u32>)>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let place = at / self.granules;
            let first = place * self.granules;
            let end = range.end.min(first + self.granules);
            parts.push((*self.behind.get(&place)?, at - first..end - first));
            at = end;
        }
        Some(parts)
    }

    /// Takes a range if all of it is free; false if it is not.
    fn claim(&mut self, pool: u32, range: &Range<u32>) -> bool {
        let Some(parts) = self.parts(range) else { return false };
        for (index, (page, part)) in parts.iter().enumerate() {
            let page = self.pages.get_mut(page).filter(|page| page.is_free(part));
            let Some(page) = page else {
                // One page may be behind two addresses of the range.
                for (page, part) in &parts[..index] {
                    self.pages.get_mut(page).map(|page| page.taken.remove(&part.start));
                }
                return false;
            };
            page.taken.insert(part.start, part.end);
        }
        self.each_view(pool, &parts, Gaps::take);
        true
    }

    /// Makes a range free that was claimed.
    fn unclaim(&mut self, pool: u32, range: &Range<u32>) {
        let parts = self.parts(range).unwrap_or_default();
        for (page, part) in &parts {
            self.pages.get_mut(page).map(|page| page.taken.remove(&part.start));
        }
        self.each_view(pool, &parts, Gaps::give);
    }

    fn each_view(&mut self, pool: u32, parts: &[(u32, Range<u32>)], change: fn(&mut Gaps, Range<u32>)) {
        let Some(pool) = self.pools.get_mut(&pool) else { return };
        for (page, part) in parts {
            for view in self.pages.get(page).into_iter().flat_map(|page| &page.views) {
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

    /// Pages for new addresses of so many granules, `None` for one that is yet to be had, and how many granules of the first are left
    /// out. The pages are those on which no block is; what is no whole page goes to the free end of one page, to the free beginning
    /// of another, or to both.
    fn gather(&self, pool: u32, granules: u32) -> (Vec<Option<u32>>, u32) {
        let (whole, rest) = ((granules / self.granules) as usize, granules % self.granules);
        let (mut idle, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let own = self.pools.get(&pool).filter(|_| !self.maps_once).map_or(&[][..], |pool| &pool.pages);
        for &number in own {
            let Some(page) = self.pages.get(&number) else { continue };
            if page.taken.is_empty() {
                idle.push(number);
            } else {
                before.push((page.before(self.granules), number));
                after.push((page.after(self.granules), number));
            }
        }
        let mut idle = idle.into_iter();
        let mut pages: Vec<Option<u32>> = (0..whole).map(|_| idle.next()).collect();
        if rest == 0 {
            return (pages, 0);
        }
        let tightest = |list: &[(u32, u32)]| list.iter().filter(|(free, _)| *free >= rest).min().copied();
        if let Some((_, last)) = tightest(&before) {
            pages.push(Some(last));
            return (pages, 0);
        }
        if let Some((_, first)) = tightest(&after) {
            pages.insert(0, Some(first));
            return (pages, self.granules - rest);
        }
        let head = after.iter().max().copied().unwrap_or_default();
        let tail = before.iter().filter(|(_, page)| *page != head.1).max().copied().unwrap_or_default();
        if head.0 > 0 && tail.0 > 0 && head.0 + tail.0 >= rest {
            pages.insert(0, Some(head.1));
            pages.push(Some(tail.1));
            return (pages, self.granules - head.0);
        }
        pages.push(idle.next());
        (pages, 0)
    }

    /// New addresses for so many granules, with memory behind them: where they begin.
    fn widen<D: Device>(&mut self, device: &mut D, pool: u32, granules: u32) -> Option<u32> {
        let (mut pages, mut skipped) = self.gather(pool, granules);
        let mut mapped = self.view(device, pool, &pages);
        if mapped.is_none() && self.maps_once && pages.iter().any(Option::is_some) {
            (pages, skipped) = self.gather(pool, granules);
            mapped = self.view(device, pool, &pages);
        }
        let start = mapped? * self.granules + skipped;
        self.claim(pool, &(start..start + granules)).then_some(start)
    }

    /// Puts pages, old and new, behind new places: the first of them.
    fn view<D: Device>(&mut self, device: &mut D, pool: u32, pages: &[Option<u32>]) -> Option<u32> {
        let count = pages.len() as u32 + 1;
        let first = self.places.fits(0..self.len, count).next()?.start;
        let bytes = self.page_bytes();
        for (index, page) in (0..).zip(pages) {
            let to = self.place_address(first + index);
            let view = page.and_then(|page| self.pages.get(&page)).and_then(|page| page.views.first());
            let result = match view {
                Some(&view) => device.alias(self.place_address(view), to, bytes),
                None => device.map(to, bytes),
            };
            if let Err(error) = result {
                self.maps_once |= matches!(error, stalloc_device::Error::Unsupported(_));
                // Nobody has had them yet.
                for place in first..first + index {
                    let _ = device.unmap(self.place_address(place), bytes);
                }
                return None;
            }
        }
        self.places.take(first..first + count);
        self.ends.insert(first + count - 2);
        let pool = self.pools.get_mut(&pool)?;
        for (place, page) in (first..).zip(pages) {
            let number = page.unwrap_or(self.next_page);
            if page.is_none() {
                self.next_page += 1;
                self.pages.insert(number, Page { views: Vec::new(), taken: BTreeMap::new() });
                pool.pages.push(number);
            }
            self.behind.insert(place, number);
            let Some(page) = self.pages.get_mut(&number) else { continue };
            page.views.push(place);
            for part in page.free_parts(self.granules) {
                let start = place * self.granules;
                pool.gaps.give(start + part.start..start + part.end);
            }
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

    /// Gives back the pages without a block of pools that nobody holds any more. The device must be idle.
    fn give_back<D: Device>(&mut self, device: &mut D) -> u64 {
        let (bytes, granules, before) = (self.page_bytes(), self.granules, self.pages.len());
        let Pools { base, pages, pools, users, places, ends, behind, .. } = self;
        for pool in pools.values_mut().filter(|pool| !users.contains_key(&pool.id)) {
            let Pool { gaps, pages: own, .. } = pool;
            own.retain(|number| {
                let Some(page) = pages.get(number).filter(|page| page.taken.is_empty()) else { return true };
                for &view in &page.views {
                    // Addresses that the driver refuses to unmap are nobody's from now on.
                    let is_unmapped = device.unmap(*base + u64::from(view) * bytes, bytes).is_ok();
                    let count = 1 + u32::from(ends.remove(&view));
                    if is_unmapped {
                        places.give(view..view + count);
                    }
                    behind.remove(&view);
                    gaps.take(view * granules..(view + 1) * granules);
                }
                pages.remove(number);
                false
            });
        }
        pools.retain(|_, pool| !pool.pages.is_empty() || users.contains_key(&pool.id));
        (before - self.pages.len()) as u64 * bytes
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
            let owns_all = parts.iter().all(|(page, _)| pool.pages.contains(page));
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
        for &place in self.behind.keys() {
            let _ = device.unmap(self.place_address(place), self.page_bytes());
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
            for page in pool.pages.iter().filter_map(|page| pools.pages.get(page)) {
                let first = page.views.first().map_or(0, |view| view * pools.granules);
                let of = page.free_parts(pools.granules).into_iter();
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
