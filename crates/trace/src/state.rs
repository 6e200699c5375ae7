//! What an allocator holds at one moment, and how it was set up.

use crate::ids::{RequestId, StackId, StreamId};

/// Whether a block can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use.
    Active,
    /// Given back, but another stream still uses it.
    PendingFree,
    /// Free, cached.
    Inactive,
}

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Where it starts.
    pub address: u64,
    /// Its length in bytes, as the allocator rounded it.
    pub size: u64,
    /// Bytes that the program asked for; 0 if free or unknown.
    pub requested: u64,
    /// Whether it can be used.
    pub state: BlockState,
    /// The request that lives in it, if any.
    pub request: Option<RequestId>,
    /// Where it was asked for.
    pub stack: StackId,
}

/// Which pool a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Requests of up to 1 MiB.
    Small,
    /// Larger ones.
    Large,
}

/// A range of reserved device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub address: u64,
    /// Reserved bytes.
    pub size: u64,
    /// Stream that it belongs to.
    pub stream: StreamId,
    /// Which pool it serves.
    pub pool: Pool,
    /// Private pool (CUDA graphs, MemPool) that owns it; (0, 0) for the general one.
    pub private_pool: (u64, u64),
    /// Whether it is mapped page by page.
    pub expandable: bool,
    /// Its blocks in the order of addresses, covering it without gaps.
    pub blocks: Vec<RecordedBlock>,
}

impl Segment {
    /// Covers what its blocks, in the order of addresses, leave open with free ones.
    pub(crate) fn fill_gaps(&mut self) {
        let free = |address, size| RecordedBlock {
            address,
            size,
            requested: 0,
            state: BlockState::Inactive,
            request: None,
            stack: StackId::NONE,
        };
        let mut filled = Vec::with_capacity(self.blocks.len() + 1);
        let mut at = self.address;
        for block in self.blocks.drain(..) {
            if block.address > at {
                filled.push(free(at, block.address - at));
            }
            at = block.address + block.size;
            filled.push(block);
        }
        if at < self.address + self.size {
            filled.push(free(at, self.address + self.size - at));
        }
        self.blocks = filled;
    }
}

/// Everything that an allocator holds on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Its segments, in the order of addresses.
    pub segments: Vec<Segment>,
}

impl MemoryState {
    /// Reserved bytes.
    pub fn reserved(&self) -> u64 {
        self.segments.iter().map(|s| s.size).fold(0, u64::saturating_add)
    }
}

/// How PyTorch's caching allocator was set up (`PYTORCH_CUDA_ALLOC_CONF`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `max_split_size_mb`, in bytes; `None`: no limit.
    pub max_split_size: Option<u64>,
    /// `garbage_collection_threshold`, 0 (off) to 1.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`: pairs of (size in MiB from which it holds, divisions); empty: off.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
}
