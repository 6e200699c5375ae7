//! What a replay asks of an allocator beyond serving: how it found a place, and what it remapped.

use stalloc_allocator::{Allocator, Error, PlannedAllocator};
use stalloc_caching::Caching;
use stalloc_device::{Address, Stream};

use crate::PlacedBy;
use crate::device::SimGpu;
use crate::gmlake::Gmlake;

/// An allocator that says how it found a place.
pub(crate) trait Serve: Allocator {
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, PlacedBy), Error>;

    /// Remaps so far, and their bytes; `None` for allocators that do not remap.
    fn remaps(&self) -> Option<(u64, u64)> {
        None
    }

    /// Requests served at planned offsets so far; `None` for allocators that do not plan.
    fn planned(&self) -> Option<u64> {
        None
    }
}

impl Serve for Caching<SimGpu> {
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, PlacedBy), Error> {
        Ok((self.malloc(size, stream)?, PlacedBy::Online))
    }
}

impl Serve for Gmlake<SimGpu> {
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, PlacedBy), Error> {
        Ok((self.malloc(size, stream)?, PlacedBy::Online))
    }
}

impl Serve for PlannedAllocator<SimGpu, Caching<SimGpu>> {
    fn serve(&mut self, size: u64, stream: Stream) -> Result<(Address, PlacedBy), Error> {
        let served = PlannedAllocator::serve(self, size, stream)?;
        let source = match served.source {
            stalloc_allocator::ServedBy::Planned => PlacedBy::Planned,
            stalloc_allocator::ServedBy::BestFit => PlacedBy::BestFit,
            stalloc_allocator::ServedBy::Fallback => PlacedBy::Fallback,
        };
        Ok((served.address, source))
    }

    fn remaps(&self) -> Option<(u64, u64)> {
        let statistics = self.statistics();
        Some((statistics.remaps, statistics.remapped))
    }

    fn planned(&self) -> Option<u64> {
        Some(self.statistics().planned)
    }
}
