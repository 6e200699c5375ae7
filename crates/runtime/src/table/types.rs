//! What the functions of the table hand over.

use std::ffi::c_void;

use stalloc_allocator::{LiveBlock, PoolPart};
use stalloc_caching::CachedState;

use super::{number, pointer};
use crate::segments::ServedSegment;

/// A live block of an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreBlock {
    pub(super) address: u64,
    /// Bytes, rounded up.
    pub(super) size: u64,
    /// Bytes asked for.
    pub(super) requested: u64,
    pub(super) stream: *mut c_void,
    /// 1: given back, but another stream has not done with it.
    pub(super) pending: u32,
}

impl From<LiveBlock> for CoreBlock {
    fn from(block: LiveBlock) -> Self {
        CoreBlock {
            address: block.address,
            size: block.size,
            requested: block.requested,
            stream: pointer(block.stream),
            pending: u32::from(block.pending),
        }
    }
}

impl From<CoreBlock> for LiveBlock {
    fn from(CoreBlock { address, size, requested, stream, .. }: CoreBlock) -> Self {
        LiveBlock { address, size, requested, stream: number(stream), pending: false }
    }
}

/// An arena as PyTorch's side sees it: its range of addresses, and the device memory in it, bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreArena {
    /// Start of its address range; 0 if there is none.
    pub(super) address: u64,
    /// Length of its address range, bytes.
    pub(super) size: u64,
    /// Device memory behind it, bytes.
    pub(super) reserved: u64,
}

/// A part of an arena's address range.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreRange {
    pub(super) address: u64,
    pub(super) size: u64,
}

/// How another process opens a block: by descriptors of this process, one for each page that the block lies on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoreExport {
    /// Bytes of a page.
    pub(super) page: u64,
    /// Of the block in the first page.
    pub(super) offset: u64,
    /// With the descriptors' numbers it names these pages for good.
    pub(super) serial: u64,
}

/// A part of a segment of the arena's memory: a live block, or what lies between two.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CorePart {
    pub(super) address: u64,
    /// Bytes; a block's are rounded up.
    pub(super) size: u64,
    /// Bytes asked for; 0 if it is free.
    pub(super) requested: u64,
    /// Its segment's.
    pub(super) stream: *mut c_void,
    /// 0: free; 1: in use; 2: given back, but another stream has not done with it.
    pub(super) state: u32,
    /// 1: the first of its segment.
    pub(super) begins: u32,
    /// 1: its segment is for small requests.
    pub(super) small: u32,
}

impl CorePart {
    /// The parts of a segment, in order; each has the segment's stream.
    pub(super) fn of(segment: &ServedSegment) -> impl Iterator<Item = CorePart> + '_ {
        segment.blocks.iter().enumerate().map(|(number, block)| CorePart {
            address: block.address,
            size: block.size,
            requested: block.requested,
            stream: pointer(segment.stream),
            state: match block.state {
                CachedState::Free => 0,
                CachedState::Live => 1,
                CachedState::Pending => 2,
            },
            begins: u32::from(number == 0),
            small: u32::from(segment.small),
        })
    }
}

/// A block of a pool of graphs, or a gap between two. Memory behind two addresses is listed once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CorePoolPart {
    pub(super) pool: [u64; 2],
    pub(super) block: CoreBlock,
    /// 1: no block.
    pub(super) free: u32,
}

impl From<PoolPart> for CorePoolPart {
    fn from(part: PoolPart) -> Self {
        let pool = [part.pool.0, part.pool.1];
        CorePoolPart { pool, block: part.block.into(), free: u32::from(part.free) }
    }
}
