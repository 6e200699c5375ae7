//! Contents of chunks that are written and read as a whole: states, settings, columns of events.

use super::varint::{Malformed, VarintCursor, put, put_delta};
use crate::ids::{RequestId, StackId, StreamId};
use crate::state::{AllocatorSettings, BlockState, MemoryState, Pool, RecordedBlock, Segment};

/// The columns of a chunk of events. Every event has a kind (and a time, if timed); the other columns hold only
/// what the kind needs.
#[derive(Default)]
pub(super) struct EventColumns {
    pub(super) kinds: Vec<u8>,
    pub(super) times: Vec<u8>,
    pub(super) addresses: Vec<u8>,
    pub(super) sizes: Vec<u8>,
    pub(super) streams: Vec<u8>,
    pub(super) stacks: Vec<u8>,
    pub(super) extra: Vec<u8>,
}

impl EventColumns {
    /// All of them, in the order of the file.
    pub(super) fn all(&self) -> [&Vec<u8>; 7] {
        [&self.kinds, &self.times, &self.addresses, &self.sizes, &self.streams, &self.stacks, &self.extra]
    }

    pub(super) fn clear(&mut self) {
        let EventColumns { kinds, times, addresses, sizes, streams, stacks, extra } = self;
        for column in [kinds, times, addresses, sizes, streams, stacks, extra] {
            column.clear();
        }
    }
}

/// Kinds of events; the upper bit says that the event has a time.
pub(super) mod kind {
    pub(crate) const TIMED: u8 = 0x80;
    pub(crate) const ALLOC: u8 = 0;
    pub(crate) const FREE_REQUESTED: u8 = 1;
    pub(crate) const FREE_COMPLETED: u8 = 2;
    pub(crate) const SEGMENT_ALLOC: u8 = 3;
    pub(crate) const SEGMENT_FREE: u8 = 4;
    pub(crate) const SEGMENT_MAP: u8 = 5;
    pub(crate) const SEGMENT_UNMAP: u8 = 6;
    pub(crate) const OUT_OF_MEMORY: u8 = 7;
    pub(crate) const SNAPSHOT: u8 = 8;
    pub(crate) const STEP_BEGIN: u8 = 9;
    pub(crate) const STEP_END: u8 = 10;
    pub(crate) const PHASE: u8 = 11;
    pub(crate) const MODULE_ENTER: u8 = 12;
    pub(crate) const MODULE_EXIT: u8 = 13;
    pub(crate) const ANNOTATION_BEGIN: u8 = 14;
    pub(crate) const ANNOTATION_END: u8 = 15;
    pub(crate) const HOST_READ: u8 = 16;
    pub(crate) const ANSWERED_HOST_READ: u8 = 17;
    /// Out of memory with a call stack.
    pub(crate) const OUT_OF_MEMORY_AT: u8 = 18;
    /// Call stacks that were learned later.
    pub(crate) const STACK_OF_NTH: u8 = 19;
    pub(crate) const STACK_AT: u8 = 20;
    pub(crate) const STACK_OF_FAILED: u8 = 21;
}

/// Appends a state. Segments and blocks follow each other closely, so that differences are small.
pub(super) fn put_state(out: &mut Vec<u8>, state: &MemoryState) {
    let mut at = 0;
    put(out, state.segments.len() as u64);
    for segment in &state.segments {
        put_delta(out, segment.address, &mut at);
        put(out, segment.size);
        put(out, segment.stream.0.into());
        out.push(u8::from(segment.pool == Pool::Small) | u8::from(segment.expandable) << 1);
        put(out, segment.private_pool.0);
        put(out, segment.private_pool.1);
        put(out, segment.blocks.len() as u64);
        for block in &segment.blocks {
            put_delta(out, block.address, &mut at);
            put(out, block.size);
            put(out, block.requested);
            out.push(match block.state {
                BlockState::Active => 0,
                BlockState::PendingFree => 1,
                BlockState::Inactive => 2,
            });
            put(out, block.request.map_or(0, |id| u64::from(id.0) + 1));
            put(out, block.stack.0.into());
            at = block.address.wrapping_add(block.size);
        }
    }
}

/// Reads a state.
pub(super) fn state(cursor: &mut VarintCursor<'_>) -> Result<MemoryState, Malformed> {
    let mut at = 0;
    let mut state = MemoryState::default();
    for _ in 0..cursor.length()? {
        let address = cursor.delta(&mut at)?;
        let size = cursor.number()?;
        let stream = StreamId(cursor.small()?);
        let flags = cursor.byte()?;
        let private_pool = (cursor.number()?, cursor.number()?);
        let mut blocks = Vec::new();
        for _ in 0..cursor.length()? {
            let address = cursor.delta(&mut at)?;
            let size = cursor.number()?;
            let block = RecordedBlock {
                address,
                size,
                requested: cursor.number()?,
                state: match cursor.byte()? {
                    0 => BlockState::Active,
                    1 => BlockState::PendingFree,
                    2 => BlockState::Inactive,
                    _ => return Err(Malformed),
                },
                request: match cursor.number()? {
                    0 => None,
                    id => Some(RequestId(u32::try_from(id - 1).map_err(|_| Malformed)?)),
                },
                stack: StackId(cursor.small()?),
            };
            at = block.address.wrapping_add(block.size);
            block.address.checked_add(block.size).ok_or(Malformed)?;
            blocks.push(block);
        }
        address.checked_add(size).ok_or(Malformed)?;
        let pool = if flags & 1 != 0 { Pool::Small } else { Pool::Large };
        state.segments.push(Segment { address, size, stream, pool, private_pool, expandable: flags & 2 != 0, blocks });
    }
    Ok(state)
}

/// Appends settings.
pub(super) fn put_settings(out: &mut Vec<u8>, settings: &AllocatorSettings) {
    out.push(u8::from(settings.expandable_segments) | u8::from(settings.max_split_size.is_some()) << 1);
    put(out, settings.max_split_size.unwrap_or(0));
    out.extend_from_slice(&settings.garbage_collection_threshold.to_le_bytes());
    put(out, settings.roundup_power2_divisions.len() as u64);
    for &(size, divisions) in &settings.roundup_power2_divisions {
        put(out, size);
        put(out, divisions);
    }
}

/// Reads settings.
pub(super) fn settings(cursor: &mut VarintCursor<'_>) -> Result<AllocatorSettings, Malformed> {
    let flags = cursor.byte()?;
    let max_split_size = cursor.number()?;
    let threshold = cursor.bytes(8)?.first_chunk::<8>().copied().ok_or(Malformed)?;
    let threshold = f64::from_le_bytes(threshold);
    let mut divisions = Vec::new();
    for _ in 0..cursor.length()? {
        divisions.push((cursor.number()?, cursor.number()?));
    }
    Ok(AllocatorSettings {
        expandable_segments: flags & 1 != 0,
        max_split_size: (flags & 2 != 0).then_some(max_split_size),
        garbage_collection_threshold: if (0.0..=1.0).contains(&threshold) { threshold } else { 0.0 },
        roundup_power2_divisions: divisions,
    })
}
