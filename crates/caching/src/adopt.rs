//! Taking over the state of a running allocator, as a snapshot shows it.

use stalloc_device::{Address, Device, Stream};
use thiserror::Error;

use crate::block::{BlockId, CachedBlock, NONE};
use crate::expand::ReservedRange;
use crate::pool::GENERAL;
use crate::{Cache, MIN_BLOCK, SMALL_SEGMENT};

/// A piece of a segment to adopt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPiece {
    /// The program holds it; bytes that it asked for.
    Live {
        /// Bytes of the block.
        size: u64,
        /// Bytes that were asked for.
        requested: u64,
    },
    /// Cached.
    Free {
        /// Bytes of the block.
        size: u64,
    },
    /// Address space of an expandable range without memory behind it.
    Unmapped {
        /// Bytes of it.
        size: u64,
    },
}

impl SegmentPiece {
    /// Its length in bytes.
    pub fn size(self) -> u64 {
        match self {
            SegmentPiece::Live { size, .. } | SegmentPiece::Free { size } | SegmentPiece::Unmapped { size } => size,
        }
    }
}

/// A segment that another allocator held before a replay, or a whole expandable range, for the model to take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Where it starts.
    pub address: Address,
    /// Stream that it belongs to.
    pub stream: Stream,
    /// Whether it serves small requests.
    pub small: bool,
    /// Whether it is a range that is mapped page by page.
    pub expandable: bool,
    /// Which private pool owns it; 0: none, it serves everybody.
    pub owner: u32,
    /// What it consists of, in the order of addresses.
    pub parts: Vec<SegmentPiece>,
}

/// Why a state cannot be adopted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AdoptError {
    /// A part is empty or ends beyond the address space.
    #[error("the segment at {0:#x} has a part of an impossible size")]
    Size(Address),
    /// An unmapped part in a segment that is not expandable, or one that is no whole number of pages.
    #[error("the segment at {0:#x} has an unmapped part where none can be")]
    Unmapped(Address),
    /// Two live blocks at one address.
    #[error("two blocks live at {0:#x}")]
    Twice(Address),
}

impl<D: Device> Cache<D> {
    /// Adds a segment that some allocator held already. The device must know of it.
    pub fn adopt(&mut self, segment: &Adopted) -> Result<(), AdoptError> {
        let page = if segment.small { SMALL_SEGMENT } else { self.settings.large_segment };
        self.check(segment, page)?;
        let pool = self.pools.of(GENERAL + segment.owner, segment.stream, segment.small);
        let size = segment.parts.iter().map(|p| p.size()).sum();
        let range = match segment.expandable {
            true => self.add_range_record(ReservedRange { base: segment.address, size, page }),
            false => NONE,
        };
        let mut address = segment.address;
        let mut prev: BlockId = NONE;
        for &part in &segment.parts {
            let live = match part {
                SegmentPiece::Live { requested, .. } => requested.max(1).next_multiple_of(MIN_BLOCK),
                _ => 0,
            };
            let id = self.blocks.add(CachedBlock {
                address,
                size: part.size(),
                live,
                born: 0,
                segment: 0,
                prev,
                next: NONE,
                pool,
                range,
                events: 0,
                in_use: live > 0,
                shared: false,
                mapped: !matches!(part, SegmentPiece::Unmapped { .. }),
            });
            if prev != NONE {
                self.blocks[prev].next = id;
            }
            match part {
                SegmentPiece::Live { .. } => {
                    self.live.insert(address, id);
                    self.allocated += live;
                    self.reserved += part.size();
                }
                SegmentPiece::Free { .. } => {
                    self.insert_free(id);
                    self.reserved += part.size();
                }
                SegmentPiece::Unmapped { .. } => self.pools[pool].insert_unmapped(address, id),
            }
            prev = id;
            address += part.size();
        }
        Ok(())
    }

    fn check(&self, segment: &Adopted, page: u64) -> Result<(), AdoptError> {
        let start = segment.address;
        let mut address = start;
        for &part in &segment.parts {
            let end = address.checked_add(part.size()).filter(|&end| end > address).ok_or(AdoptError::Size(start))?;
            match part {
                SegmentPiece::Live { size, requested } => {
                    if requested.checked_next_multiple_of(MIN_BLOCK).is_none_or(|bytes| bytes > size) {
                        return Err(AdoptError::Size(start));
                    }
                    if self.live.contains_key(&address) {
                        return Err(AdoptError::Twice(address));
                    }
                }
                SegmentPiece::Unmapped { size } => {
                    let aligned = (address - start).is_multiple_of(page) && size.is_multiple_of(page);
                    if !segment.expandable || !aligned {
                        return Err(AdoptError::Unmapped(start));
                    }
                }
                SegmentPiece::Free { .. } => {}
            }
            address = end;
        }
        Ok(())
    }
}
