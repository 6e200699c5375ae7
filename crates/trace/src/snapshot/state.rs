//! `segments`: what the allocator held when the snapshot was taken.

use std::collections::BTreeMap;

use super::entry::number;
use super::stacks::{Callers, StackReader};
use crate::builder::TraceBuilder;
use crate::error::{Budget, Fault, FilePosition, Result};
use crate::ids::StackId;
use crate::pickle::{Fields, Pickled, Value};
use crate::state::{BlockState, MemoryState, Pool, RecordedBlock, Segment};

/// Memory that a block may take once it is read, here and in the trace.
const BLOCK_BYTES: u64 = 256;

/// A segment as the snapshot has it.
#[derive(Clone, Debug)]
pub(super) struct SegmentRecord {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) pool: Pool,
    pub(super) private_pool: (u64, u64),
    pub(super) expandable: bool,
    pub(super) blocks: Vec<BlockRecord>,
}

/// A block as the snapshot has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRecord {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) requested: u64,
    pub(super) state: BlockState,
    pub(super) frames: Callers,
}

/// The segments of each device, in the order of addresses.
pub(super) fn read(arena: &Pickled, list: Value, budget: &mut Budget) -> Result<BTreeMap<u32, Vec<SegmentRecord>>> {
    let mut by_device: BTreeMap<u32, Vec<SegmentRecord>> = BTreeMap::new();
    if list.is_absent() {
        return Ok(by_device);
    }
    let Some(items) = arena.items(list) else {
        let position = FilePosition::Path("segments".to_owned());
        return Err(Fault::damaged(position, format!("is {}, not a list", arena.describe(list))));
    };
    let mut reader = SegmentReader {
        arena,
        segment: Fields::new([
            "device",
            "address",
            "total_size",
            "stream",
            "segment_type",
            "segment_pool_id",
            "is_expandable",
            "blocks",
        ]),
        block: Fields::new(["address", "size", "requested_size", "state", "frames", "history", "forward_frames"]),
        history: Fields::new(["real_size", "frames"]),
    };
    for (index, item) in items.enumerate() {
        budget.charge(BLOCK_BYTES)?;
        let (device, segment) = reader.segment(index, item, budget)?;
        by_device.entry(device).or_default().push(segment);
    }
    for segments in by_device.values_mut() {
        segments.sort_by_key(|s| s.address);
        if let Some(pair) = segments.windows(2).find(|pair| pair[1].address - pair[0].address < pair[0].size) {
            let position = FilePosition::Path("segments".to_owned());
            return Err(Fault::damaged(position, format!("two of them overlap at address {:#x}", pair[1].address)));
        }
    }
    Ok(by_device)
}

struct SegmentReader<'a> {
    arena: &'a Pickled,
    segment: Fields<8>,
    block: Fields<7>,
    history: Fields<2>,
}

impl SegmentReader<'_> {
    fn segment(&mut self, index: usize, item: Value, budget: &mut Budget) -> Result<(u32, SegmentRecord)> {
        let arena = self.arena;
        let position = |field: &str| FilePosition::Path(format!("segments[{index}]{field}"));
        if !item.is_dict() {
            return Err(Fault::damaged(position(""), format!("is {}, not a dict", arena.describe(item))));
        }
        let [device, address, size, stream, pool, private_pool, expandable, blocks] = self.segment.of(arena, item);
        let device = number(arena, device, false, || position(".device"))?;
        let Ok(device) = u32::try_from(device) else {
            return Err(Fault::damaged(position(".device"), format!("is {device}")));
        };
        let address = number(arena, address, true, || position(".address"))?;
        let size = number(arena, size, true, || position(".total_size"))?;
        if address.checked_add(size).is_none() {
            return Err(Fault::damaged(position(".total_size"), format!("is {size}: beyond any address space")));
        }
        let mut pool_id = arena.items(private_pool).into_iter().flatten();
        let mut id = || pool_id.next().and_then(|v| arena.as_int(v)).and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        let mut segment = SegmentRecord {
            address,
            size,
            stream: number(arena, stream, false, || position(".stream"))?,
            pool: if arena.as_bytes(pool) == Some(b"small") { Pool::Small } else { Pool::Large },
            private_pool: (id(), id()),
            expandable: arena.as_bool(expandable).unwrap_or(false),
            blocks: Vec::new(),
        };
        let mut at = address;
        budget.charge(arena.len(blocks) as u64 * BLOCK_BYTES)?;
        for (place_in, block) in arena.items(blocks).into_iter().flatten().enumerate() {
            let block = self.block(index, place_in, block, at)?;
            // Blocks follow each other; this also keeps them inside.
            if block.address < at || block.address + block.size > address + size {
                let position = FilePosition::Path(format!("segments[{index}].blocks[{place_in}]"));
                return Err(Fault::damaged(position, "lies outside its segment or over the block before it"));
            }
            at = block.address + block.size;
            segment.blocks.push(block);
        }
        Ok((device, segment))
    }

    fn block(&mut self, segment: usize, index: usize, item: Value, expected: u64) -> Result<BlockRecord> {
        let arena = self.arena;
        let position = |field: &str| FilePosition::Path(format!("segments[{segment}].blocks[{index}]{field}"));
        if !item.is_dict() {
            return Err(Fault::damaged(position(""), format!("is {}, not a dict", arena.describe(item))));
        }
        let [address, size, requested, state, frames, history, forward] = self.block.of(arena, item);
        // Versions before 2.1 keep stack and requested size in a history, latest first, and have no addresses.
        let latest = arena.items(history).and_then(|mut items| items.next());
        let [real_size, old_frames] = latest.map_or([Value::MISSING; 2], |latest| self.history.of(arena, latest));
        let address =
            if address.is_absent() { expected } else { number(arena, address, true, || position(".address"))? };
        let size = number(arena, size, true, || position(".size"))?;
        if address.checked_add(size).is_none() {
            return Err(Fault::damaged(position(".size"), format!("is {size}: beyond any address space")));
        }
        let requested = if requested.is_absent() { real_size } else { requested };
        let state = match arena.as_bytes(state) {
            Some(b"active_allocated") => BlockState::Active,
            Some(b"active_pending_free" | b"active_awaiting_free") => BlockState::PendingFree,
            Some(b"inactive") => BlockState::Inactive,
            _ => {
                let problem = format!("is {}, not a state of a block", arena.describe(state));
                return Err(Fault::damaged(position(".state"), problem));
            }
        };
        let requested = match number(arena, requested, false, || position(".requested_size"))? {
            0 if state != BlockState::Inactive => size,
            _ if state == BlockState::Inactive => 0,
            requested => requested.min(size),
        };
        Ok(BlockRecord {
            address,
            size,
            requested,
            state,
            frames: Callers { own: if frames.is_absent() { old_frames } else { frames }, forward },
        })
    }
}

/// The state at the end of the trace, its blocks tied to the requests that live in them.
pub(super) fn last(
    segments: &[SegmentRecord],
    builder: &mut TraceBuilder,
    stacks: &mut StackReader<'_>,
    budget: &mut Budget,
) -> Result<MemoryState> {
    let mut state = MemoryState::default();
    for record in segments {
        let mut segment = record.empty(builder);
        for block in &record.blocks {
            let used = block.state != BlockState::Inactive;
            segment.blocks.push(RecordedBlock {
                address: block.address,
                size: block.size,
                requested: block.requested,
                state: block.state,
                request: if used { builder.request_at(block.address) } else { None },
                stack: if used { stacks.read(block.frames, builder, budget)? } else { StackId::NONE },
            });
        }
        segment.fill_gaps();
        state.segments.push(segment);
    }
    Ok(state)
}

impl SegmentRecord {
    /// The segment without its blocks.
    pub(super) fn empty(&self, builder: &mut TraceBuilder) -> Segment {
        Segment {
            address: self.address,
            size: self.size,
            stream: builder.stream(self.stream),
            pool: self.pool,
            private_pool: self.private_pool,
            expandable: self.expandable,
            blocks: Vec::new(),
        }
    }
}
