//! What serves the requests that the arena does not: PyTorch's caching allocator, and one more for each private pool.
//!
//! A pool is what a CUDA graph allocates from while it is captured. Its memory stays its own until the graph is gone,
//! since each replay uses the same addresses again. While a pool is allocated to, every request of its device goes
//! there: pools keep streams apart, so work that is not captured shares no block with what is.

use rustc_hash::FxHashMap;
use stalloc_allocator::Error;
use stalloc_caching::{BlockState, Cache, Segment, Settings};
use stalloc_device::{Address, Device, MemoryInfo, Stream};

use super::gate::Gate;

/// A private pool's name, as PyTorch gives it; (0, 0) is no pool.
pub type PoolId = (u64, u64);

/// A block that the program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its length, bytes.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// The stream that it was allocated on.
    pub stream: Stream,
    /// The pool that it is from.
    pub pool: PoolId,
    /// Whether other streams use it.
    pub recorded: bool,
    /// It is the device's own: nothing of it is cached or counted.
    pub uncached: bool,
}

/// What was done so far, all pools together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Device memory held, bytes.
    pub reserved: u64,
    /// Segments taken from the device.
    pub device_allocs: u64,
    /// Segments given back.
    pub device_frees: u64,
    /// Requests that made cached memory go back first.
    pub retries: u64,
}

impl Counts {
    /// Nothing.
    pub const fn new() -> Self {
        Counts { reserved: 0, device_allocs: 0, device_frees: 0, retries: 0 }
    }

    /// What was done since.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            reserved: self.reserved,
            device_allocs: self.device_allocs.saturating_sub(before.device_allocs),
            device_frees: self.device_frees.saturating_sub(before.device_frees),
            retries: self.retries.saturating_sub(before.retries),
        }
    }
}

/// [`CachingFallback`] of any device.
pub trait Fallback: Send {
    /// Serves `size` bytes on a stream.
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<(Address, Held), Error>;
    /// Takes an address back; `None` if it was not handed out.
    fn free(&mut self, address: Address) -> Option<Held>;
    /// Another stream uses an address.
    fn record_stream(&mut self, address: Address, stream: Stream);
    /// Gives cached memory back to the device.
    fn empty_cache(&mut self) -> Result<(), Error>;
    /// Requests go to a pool from now on: a graph is about to be captured.
    fn begin_pool(&mut self, pool: PoolId);
    /// They no longer do. The capture may go on for a moment: see [`Fallback::end_capture`].
    fn end_pool(&mut self, pool: PoolId);
    /// No capture is going on any more.
    fn end_capture(&mut self);
    /// A graph that used a pool is gone.
    fn release_pool(&mut self, pool: PoolId);
    /// Reserve no more than this outside of private pools.
    fn set_memory_limit(&mut self, bytes: Option<u64>);
    /// Serves `size` bytes by the device itself: see [`Held::uncached`].
    fn malloc_uncached(&mut self, size: u64, stream: Stream) -> Result<Address, Error>;
    /// Whether a block that was given back waits for a stream. O(blocks).
    fn is_pending(&self, address: Address) -> bool;
    /// A block that the program holds.
    fn held(&self, address: Address) -> Option<Held>;
    /// Every segment with its pool.
    fn segments(&self) -> Vec<(PoolId, Segment)>;
    /// What was done so far.
    fn counts(&self) -> Counts;
    /// The device's free and total memory.
    fn memory_info(&self) -> Option<MemoryInfo>;
}

/// A pool of its own.
struct Private<D: Device> {
    id: PoolId,
    /// Graphs that use it.
    users: u32,
    cache: Cache<Gate<D>>,
}

/// The caching allocator and the private pools of one device.
pub struct CachingFallback<D: Device> {
    device: Gate<D>,
    settings: Settings,
    general: Cache<Gate<D>>,
    private: Vec<Private<D>>,
    /// Pools that requests are redirected to, the latest last.
    redirected: Vec<PoolId>,
    live: FxHashMap<Address, Held>,
    /// Blocks that were given back during a capture, when no event can be recorded for the streams that use them.
    deferred: Vec<(PoolId, Address)>,
}

impl<D: Device> CachingFallback<D> {
    /// An empty one.
    pub fn new(device: D, settings: Settings) -> Self {
        CachingFallback {
            device: Gate::new(device),
            general: Cache::new(settings.clone()),
            settings,
            private: Vec::new(),
            redirected: Vec::new(),
            live: FxHashMap::default(),
            deferred: Vec::new(),
        }
    }

    /// The cache of a pool, with its device set up for it.
    fn cache(&mut self, pool: PoolId) -> Option<(&mut Cache<Gate<D>>, &mut Gate<D>)> {
        self.device.keeping = false;
        if pool == (0, 0) {
            return Some((&mut self.general, &mut self.device));
        }
        let private = self.private.iter_mut().find(|private| private.id == pool)?;
        self.device.keeping = private.users > 0;
        Some((&mut private.cache, &mut self.device))
    }

    /// Makes a block of a pool free, behind events if other streams use it. If the device refuses those, the block is
    /// never used again: memory is lost, correctness is not.
    fn give_back(&mut self, pool: PoolId, address: Address) {
        if let Some((cache, device)) = self.cache(pool) {
            let _ = cache.free(device, address);
        }
        self.forget_pool(pool);
    }

    /// Drops a pool that no graph and no block needs any more.
    fn forget_pool(&mut self, pool: PoolId) {
        let Some(at) = self.private.iter().position(|private| private.id == pool && private.users == 0) else { return };
        self.device.keeping = false;
        let cache = &mut self.private[at].cache;
        if self.device.capturing || cache.allocated() > 0 || cache.empty_cache(&mut self.device).is_err() {
            return;
        }
        if cache.reserved() == 0 {
            self.private.remove(at);
        }
    }

    fn caches(&self) -> impl Iterator<Item = (PoolId, &Cache<Gate<D>>)> {
        let private = self.private.iter().map(|private| (private.id, &private.cache));
        std::iter::once(((0, 0), &self.general)).chain(private)
    }
}

impl<D: Device + Send> Fallback for CachingFallback<D>
where
    D::Event: Send,
{
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<(Address, Held), Error> {
        let pool = self.redirected.last().copied().unwrap_or_default();
        let counts = self.counts();
        let out_of_memory = Error::OutOfMemory { requested: size, allocated: 0, reserved: counts.reserved };
        let Some((cache, device)) = self.cache(pool) else { return Err(out_of_memory) };
        let address = match cache.malloc(device, size, stream) {
            // The gate refused to give memory back to make room.
            Err(Error::Device(stalloc_device::Error::Unsupported(_))) => return Err(out_of_memory),
            result => result?,
        };
        let held = Held {
            size: cache.block_size(address).unwrap_or(size),
            requested: size,
            stream,
            pool,
            recorded: false,
            uncached: false,
        };
        self.live.insert(address, held);
        Ok((address, held))
    }

    fn malloc_uncached(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        let address = self.device.alloc(size)?;
        let held = Held { size, requested: size, stream, pool: (0, 0), recorded: false, uncached: true };
        self.live.insert(address, held);
        Ok(address)
    }

    fn is_pending(&self, address: Address) -> bool {
        let is_deferred = self.deferred.iter().any(|&(_, deferred)| deferred == address);
        let mut blocks = self.caches().flat_map(|(_, cache)| cache.segments()).flat_map(|segment| segment.blocks);
        is_deferred || blocks.any(|block| block.address == address && block.state == BlockState::Pending)
    }

    fn free(&mut self, address: Address) -> Option<Held> {
        let held = self.live.remove(&address)?;
        if held.uncached {
            // The device waits for whoever uses it; if it refuses, the memory is lost.
            self.device.keeping = false;
            let _ = self.device.free(address);
        } else if held.recorded && self.device.capturing {
            self.deferred.push((held.pool, address));
        } else {
            self.give_back(held.pool, address);
        }
        Some(held)
    }

    fn record_stream(&mut self, address: Address, stream: Stream) {
        let Some(held) = self.live.get_mut(&address).filter(|held| held.stream != stream && !held.uncached) else {
            return;
        };
        held.recorded = true;
        let pool = held.pool;
        if let Some((cache, _)) = self.cache(pool) {
            // It is live, and so it is known.
            let _ = cache.record_stream(address, stream);
        }
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        if self.device.capturing {
            return Ok(());
        }
        for pool in self.private.iter().map(|private| private.id).collect::<Vec<_>>() {
            self.forget_pool(pool);
        }
        self.device.keeping = false;
        self.general.empty_cache(&mut self.device)
    }

    fn begin_pool(&mut self, pool: PoolId) {
        self.device.capturing = true;
        self.redirected.push(pool);
        match self.private.iter_mut().find(|private| private.id == pool) {
            Some(private) => private.users += 1,
            None => {
                // Whole segments, kept: what gives parts of them back has no place in a graph's memory.
                let settings = Settings {
                    expandable_segments: false,
                    max_split_size: None,
                    garbage_collection_threshold: 0.0,
                    memory_limit: None,
                    ..self.settings.clone()
                };
                self.private.push(Private { id: pool, users: 1, cache: Cache::new(settings) });
            }
        }
    }

    fn end_pool(&mut self, pool: PoolId) {
        if let Some(at) = self.redirected.iter().rposition(|&id| id == pool) {
            self.redirected.remove(at);
        }
    }

    fn end_capture(&mut self) {
        if !self.redirected.is_empty() {
            return;
        }
        self.device.capturing = false;
        for (pool, address) in std::mem::take(&mut self.deferred) {
            self.give_back(pool, address);
        }
    }

    fn release_pool(&mut self, pool: PoolId) {
        if let Some(private) = self.private.iter_mut().find(|private| private.id == pool) {
            private.users = private.users.saturating_sub(1);
        }
        self.forget_pool(pool);
    }

    fn set_memory_limit(&mut self, bytes: Option<u64>) {
        self.general.set_memory_limit(bytes);
    }

    fn held(&self, address: Address) -> Option<Held> {
        self.live.get(&address).copied()
    }

    fn segments(&self) -> Vec<(PoolId, Segment)> {
        self.caches()
            .flat_map(|(pool, cache)| cache.segments().into_iter().map(move |segment| (pool, segment)))
            .collect()
    }

    fn counts(&self) -> Counts {
        self.caches().fold(Counts::default(), |sum, (_, cache)| {
            let stats = cache.stats();
            Counts {
                reserved: sum.reserved + cache.reserved(),
                device_allocs: sum.device_allocs + stats.device_allocs,
                device_frees: sum.device_frees + stats.device_frees,
                retries: sum.retries + stats.retries,
            }
        })
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        self.device.memory_info().ok()
    }
}

#[cfg(test)]
mod tests;
