//! The caching allocator as a whole allocator: with a device of its own.

use stalloc_device::{Address, Device, Stream};

use crate::{Cache, Settings};
use stalloc_allocator::{Allocator, Error};

/// The caching allocator with a device of its own.
pub struct Caching<D: Device> {
    pub(super) cache: Cache<D>,
    pub(super) device: D,
}

impl<D: Device> Caching<D> {
    /// An empty one.
    pub fn new(device: D, settings: Settings) -> Self {
        Caching { cache: Cache::new(settings), device }
    }

    /// Its device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The allocator without its device.
    pub fn cache(&self) -> &Cache<D> {
        &self.cache
    }

    /// The allocator without its device, to [adopt](Cache::adopt) a state.
    pub fn cache_mut(&mut self) -> &mut Cache<D> {
        &mut self.cache
    }
}

impl<D: Device> Allocator for Caching<D> {
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        self.cache.malloc(&mut self.device, size, stream)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.cache.free(&mut self.device, address)
    }

    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        self.cache.record_stream(address, stream)
    }

    fn allocated(&self) -> u64 {
        self.cache.allocated()
    }

    fn reserved(&self) -> u64 {
        self.cache.reserved()
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.cache.empty_cache(&mut self.device)
    }
}
