//! A model of GMLake: PyTorch's allocator, with free blocks that are apart stitched into one by virtual memory.
//!
//! After "GMLake: Efficient and Transparent GPU Memory Defragmentation for Large-scale DNN Training with Virtual Memory
//! Stitching" (ASPLOS '24) and the authors' published code (intelligent-machine-learning/glake), whose defaults are
//! used where paper and code differ. Requests up to 1 MiB are PyTorch's. Larger ones are made of *chunks* of 2 MiB:
//!
//! 1. the smallest free *primitive* block that is large enough, split if it is larger;
//! 2. else the smallest free *stitched* block, up to `reuse_limit` times as large; the chunks it does not need stay
//!    free;
//! 3. else, for requests from `fragment_limit` on, a new stitched block of the largest free primitive blocks, the last
//!    one split;
//! 4. else new memory, in segments of the sizes that PyTorch takes;
//! 5. else everything cached is given back, and 4 and 3 are tried again.
//!
//! A freed stitched block stays for later, at no cost but address space: its chunks serve others, too. Beyond
//! `address_space` bytes of stitched blocks, all that are not in use are forgotten.
//!
//! What the model leaves out: the time that mapping takes (its time per operation is the model's own), the driver's
//! limit on mappings, and the code's `defragLevel` and `reAlloc` switches, which are off by default.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stalloc_allocator::{Allocator, Error};
use stalloc_caching::{Caching, SMALL_SIZE, Settings as CachingSettings};
use stalloc_device::{Address, Device, Error as DeviceError, Stream};
use stalloc_trace::rounded;

mod chunks;
mod range;
mod stitched;

use chunks::GmlakeSegments;
use range::SegmentRange;
use stitched::{StitchedBlocks, StitchedId};

/// Physical memory comes in pieces of this size.
const CHUNK: u64 = 2 << 20;

/// GMLake's options, with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct GmlakeSettings {
    /// `fragLimit`: smaller requests get no new stitched block, bytes.
    pub fragment_limit: u64,
    /// `reuseLimit`: how many times larger than its request a stitched block may be.
    pub reuse_limit: f64,
    /// `autoGC`: most bytes of stitched blocks.
    pub address_space: u64,
}

impl Default for GmlakeSettings {
    fn default() -> Self {
        GmlakeSettings { fragment_limit: 512 << 20, reuse_limit: 10.0, address_space: 1000 << 30 }
    }
}

/// What lives at an address.
#[derive(Clone, Copy, Debug)]
enum VirtualBlock {
    Primitive(SegmentRange),
    Stitched(StitchedId),
}

#[derive(Debug)]
struct HeldRequest {
    held: VirtualBlock,
    /// Bytes that it counts for.
    bytes: u64,
    stream: Stream,
    others: Vec<Stream>,
}

/// Models GMLake's allocator: up to 1 MiB as PyTorch's, more from chunks of 2 MiB that it stitches together.
pub struct Gmlake<D: Device> {
    settings: GmlakeSettings,
    device: D,
    small: Caching<D>,
    chunks: GmlakeSegments,
    stitched: StitchedBlocks,
    live: FxHashMap<Address, HeldRequest>,
    /// Released, but used by other streams until these events have completed.
    waiting: VecDeque<(Vec<D::Event>, VirtualBlock)>,
    allocated: u64,
    reserved: u64,
}

impl<D: Device + Clone> Gmlake<D> {
    /// An empty one.
    pub fn new(device: D, settings: GmlakeSettings) -> Self {
        Gmlake {
            settings,
            small: Caching::new(device.clone(), CachingSettings::default()),
            device,
            chunks: GmlakeSegments::default(),
            stitched: StitchedBlocks::default(),
            live: FxHashMap::default(),
            waiting: VecDeque::new(),
            allocated: 0,
            reserved: 0,
        }
    }

    fn malloc_large(&mut self, size: u64, stream: Stream) -> Result<Option<(Address, VirtualBlock)>, Error> {
        let Some(bytes) = size.checked_next_multiple_of(CHUNK) else { return Ok(None) };
        if let Some(range) = self.chunks.best_fit(stream, bytes) {
            return Ok(Some(self.take(range.front(bytes))));
        }
        let limit = bytes as f64 * self.settings.reuse_limit;
        if let Some(id) = self.stitched.best_fit(stream, bytes, limit) {
            self.take_stitched(id, bytes);
            return Ok(Some((self.stitched.address(id), VirtualBlock::Stitched(id))));
        }
        if let Some(found) = self.stitch(bytes, stream)? {
            return Ok(Some(found));
        }
        if let Some(range) = self.grow(bytes, stream)? {
            return Ok(Some(self.take(range.front(bytes))));
        }
        self.empty_cache()?;
        if let Some(range) = self.grow(bytes, stream)? {
            return Ok(Some(self.take(range.front(bytes))));
        }
        self.stitch(bytes, stream)
    }

    fn take(&mut self, range: SegmentRange) -> (Address, VirtualBlock) {
        self.chunks.take(range, &mut self.stitched);
        (self.chunks.address(range), VirtualBlock::Primitive(range))
    }

    /// Uses the first `bytes` bytes of a stitched block.
    fn take_stitched(&mut self, id: StitchedId, bytes: u64) {
        for range in self.stitched.activate(id, bytes) {
            self.chunks.take(range, &mut self.stitched);
        }
    }

    /// A new stitched block of the largest free primitive blocks.
    fn stitch(&mut self, bytes: u64, stream: Stream) -> Result<Option<(Address, VirtualBlock)>, Error> {
        if bytes < self.settings.fragment_limit {
            return Ok(None);
        }
        let Some(ranges) = self.chunks.largest(stream, bytes) else { return Ok(None) };
        let address = match self.device.reserve(bytes) {
            Ok(address) => address,
            Err(DeviceError::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let id = self.stitched.add(address, stream, &ranges);
        for &range in &ranges {
            self.chunks.link(range, id);
        }
        self.take_stitched(id, bytes);
        if self.stitched.bytes() > self.settings.address_space {
            self.forget_stitched()?;
        }
        Ok(Some((address, VirtualBlock::Stitched(id))))
    }

    /// New memory for `bytes` bytes.
    fn grow(&mut self, bytes: u64, stream: Stream) -> Result<Option<SegmentRange>, Error> {
        let segment = if bytes < 10 << 20 { 20 << 20 } else { bytes };
        match self.device.alloc(segment) {
            Ok(address) => {
                self.reserved += segment;
                Ok(Some(self.chunks.add(address, segment, stream)))
            }
            Err(DeviceError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets the stitched blocks that are not in use.
    fn forget_stitched(&mut self) -> Result<(), Error> {
        for (id, address, parts) in self.stitched.forget_idle() {
            self.chunks.unlink(&parts, id);
            self.device.release(address, parts.iter().map(|part| part.bytes).sum())?;
        }
        Ok(())
    }

    fn give(&mut self, held: VirtualBlock) {
        match held {
            VirtualBlock::Primitive(range) => self.chunks.give(range, &mut self.stitched),
            VirtualBlock::Stitched(id) => {
                for range in self.stitched.deactivate(id) {
                    self.chunks.give(range, &mut self.stitched);
                }
            }
        }
    }

    /// Takes back what other streams have done with; all of it, after waiting, if `wait`.
    fn settle(&mut self, wait: bool) -> Result<(), Error> {
        for _ in 0..self.waiting.len() {
            let Some((events, held)) = self.waiting.pop_front() else { break };
            let mut done = true;
            for event in &events {
                if wait {
                    self.device.wait(event)?;
                } else {
                    done &= self.device.completed(event)?;
                }
            }
            match done {
                true => self.give(held),
                false => self.waiting.push_back((events, held)),
            }
        }
        Ok(())
    }
}

impl<D: Device + Clone> Allocator for Gmlake<D> {
    fn malloc(&mut self, size: u64, stream: Stream) -> Result<Address, Error> {
        self.settle(false)?;
        if rounded(size) <= SMALL_SIZE {
            return self.small.malloc(size, stream);
        }
        let Some((address, held)) = self.malloc_large(size, stream)? else {
            return Err(Error::OutOfMemory { requested: size, allocated: self.allocated(), reserved: self.reserved() });
        };
        let bytes = rounded(size);
        self.allocated += bytes;
        self.live.insert(address, HeldRequest { held, bytes, stream, others: Vec::new() });
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        let Some(live) = self.live.get(&address) else { return self.small.free(address) };
        let events = live.others.iter().map(|&stream| self.device.record(stream));
        let events: Vec<D::Event> = events.collect::<Result<_, _>>()?;
        let Some(live) = self.live.remove(&address) else { return Err(Error::UnknownAddress(address)) };
        self.allocated -= live.bytes;
        match events.is_empty() {
            true => self.give(live.held),
            false => self.waiting.push_back((events, live.held)),
        }
        Ok(())
    }

    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        let Some(live) = self.live.get_mut(&address) else { return self.small.record_stream(address, stream) };
        if live.stream != stream && !live.others.contains(&stream) {
            live.others.push(stream);
        }
        Ok(())
    }

    fn allocated(&self) -> u64 {
        self.allocated + self.small.allocated()
    }

    fn reserved(&self) -> u64 {
        self.reserved + self.small.reserved()
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.settle(true)?;
        self.forget_stitched()?;
        for (address, bytes) in self.chunks.remove_unused() {
            self.device.free(address)?;
            self.reserved -= bytes;
        }
        self.small.empty_cache()
    }
}
