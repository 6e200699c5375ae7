//! What the allocator held before the first entry of the trace, worked out backwards from what it held at the end.
//!
//! Undoing an `alloc` makes a block free, undoing a `free_completed` brings one back (waiting for other streams),
//! undoing its `free_requested` makes it live; undoing segment entries changes what is reserved. What is left when
//! all entries are undone was there before them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::entry::{Action, SnapshotEntry};
use super::stacks::{Callers, StackReader};
use super::state::SegmentRecord;
use crate::builder::TraceBuilder;
use crate::error::{Budget, Result};
use crate::ids::StackId;
use crate::model::rounded;
use crate::state::{AllocatorSettings, BlockState, MemoryState, Pool, RecordedBlock};

/// Requests of up to this many bytes are served from the small pool.
const SMALL: u64 = 1 << 20;
/// Length of a small pool's segment.
const SMALL_SEGMENT: u64 = 2 << 20;
/// Memory that a request may take once it is read.
const REQUEST_BYTES: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct PastRequest {
    requested: u64,
    /// Length of its block, where the last state still has it.
    block: Option<u64>,
    stream: u64,
    pending: bool,
    frames: Callers,
}

/// The allocator's state, going back in time.
pub(super) struct Past {
    live: FxHashMap<u64, PastRequest>,
    segments: BTreeMap<u64, SegmentRecord>,
    /// Whether the snapshot has segments at all.
    known: bool,
    contradictions: u64,
}

impl Past {
    /// The state at the end of the trace.
    pub(super) fn new(last: Option<&[SegmentRecord]>) -> Self {
        let mut past =
            Past { live: FxHashMap::default(), segments: BTreeMap::new(), known: last.is_some(), contradictions: 0 };
        for segment in last.unwrap_or_default() {
            for block in segment.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
                let live = PastRequest {
                    requested: block.requested,
                    block: Some(block.size),
                    stream: segment.stream,
                    pending: block.state == BlockState::PendingFree,
                    frames: block.frames,
                };
                past.live.insert(block.address, live);
            }
            past.segments.insert(segment.address, SegmentRecord { blocks: Vec::new(), ..segment.clone() });
        }
        past
    }

    /// Entries that did not fit what came after them.
    pub(super) fn contradictions(&self) -> u64 {
        if self.known { self.contradictions } else { 0 }
    }

    /// Goes back before `entry`.
    pub(super) fn undo(&mut self, entry: &SnapshotEntry) {
        let fits = match entry.action {
            Action::Alloc => self.live.remove(&entry.address).is_some(),
            Action::FreeCompleted => self.live.insert(entry.address, PastRequest::freed(entry, true)).is_none(),
            Action::FreeRequested => match self.live.get_mut(&entry.address) {
                Some(live) => std::mem::replace(&mut live.pending, false),
                None => {
                    // Its completion was lost: it is live before this entry all the same.
                    self.live.insert(entry.address, PastRequest::freed(entry, false));
                    false
                }
            },
            Action::SegmentAlloc => self.segments.remove(&entry.address).is_some_and(|s| s.size == entry.size),
            Action::SegmentFree => self.add(entry, false),
            Action::SegmentMap => self.cut(entry.address, entry.address + entry.size),
            Action::SegmentUnmap => self.add(entry, true),
            Action::OutOfMemory | Action::Snapshot | Action::Other => true,
        };
        self.contradictions += u64::from(!fits);
    }

    /// Brings back a range that was given back; an expandable one joins its neighbours.
    fn add(&mut self, entry: &SnapshotEntry, expandable: bool) -> bool {
        let end = entry.address + entry.size;
        if self.overlaps(entry.address, end) || entry.size == 0 {
            return false;
        }
        // Only small segments have this length; pages of expandable ones have it in the small pool only.
        let pool = if entry.size == SMALL_SEGMENT { Pool::Small } else { Pool::Large };
        let mut segment = SegmentRecord {
            address: entry.address,
            size: entry.size,
            stream: entry.stream,
            pool,
            private_pool: (0, 0),
            expandable,
            blocks: Vec::new(),
        };
        if expandable {
            let joins = |other: &SegmentRecord| other.expandable && other.stream == entry.stream;
            let before = self.segments.range(..entry.address).next_back();
            if let Some((&start, other)) = before.filter(|(start, s)| *start + s.size == entry.address && joins(s)) {
                segment.address = start;
                segment.size += other.size;
                (segment.pool, segment.private_pool) = (other.pool, other.private_pool);
                self.segments.remove(&start);
            }
            if let Some(other) = self.segments.get(&end).filter(|s| joins(s)) {
                segment.size += other.size;
                (segment.pool, segment.private_pool) = (other.pool, other.private_pool);
                self.segments.remove(&end);
            }
        }
        self.segments.insert(segment.address, segment);
        true
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.segments.range(..end).next_back().is_some_and(|(&at, s)| at + s.size > start)
    }

    /// Takes a range out of the expandable segment that holds it.
    fn cut(&mut self, start: u64, end: u64) -> bool {
        let Some((&at, segment)) = self.segments.range(..=start).next_back() else { return false };
        let segment_end = at + segment.size;
        if segment_end < end {
            return false;
        }
        let segment = segment.clone();
        self.segments.remove(&at);
        for (from, to) in [(at, start), (end, segment_end)] {
            if from < to {
                self.segments.insert(from, SegmentRecord { address: from, size: to - from, ..segment.clone() });
            }
        }
        true
    }

    /// Hands the requests that were live at the start to `builder`, and returns the state that they lived in.
    pub(super) fn finish(
        self,
        builder: &mut TraceBuilder,
        stacks: &mut StackReader<'_>,
        settings: Option<&AllocatorSettings>,
        budget: &mut Budget,
    ) -> Result<Option<MemoryState>> {
        let mut live: Vec<(u64, PastRequest)> = self.live.into_iter().collect();
        live.sort_unstable_by_key(|&(address, _)| address);
        let mut blocks = Vec::with_capacity(live.len());
        for &(address, live) in &live {
            budget.charge(REQUEST_BYTES)?;
            let stack = stacks.read(live.frames, builder, budget)?;
            let request = builder.push_initial(address, live.requested, live.stream, stack, live.pending);
            let state = if live.pending { BlockState::PendingFree } else { BlockState::Active };
            let block = RecordedBlock {
                address,
                size: live.block.unwrap_or(0),
                requested: live.requested,
                state,
                request: Some(request),
                stack: if stack == StackId::NONE { StackId::NONE } else { stack },
            };
            blocks.push(block);
        }
        if !self.known {
            return Ok(None);
        }
        let mut state = MemoryState::default();
        let mut blocks = blocks.into_iter().peekable();
        for record in self.segments.values() {
            let mut segment = record.empty(builder);
            let end = segment.address + segment.size;
            while blocks.next_if(|b| b.address < segment.address).is_some() {}
            while let Some(block) = blocks.next_if(|b| b.address < end) {
                segment.blocks.push(block);
            }
            size_blocks(record, &mut segment.blocks, settings);
            segment.fill_gaps();
            state.segments.push(segment);
        }
        Ok(Some(state))
    }
}

impl PastRequest {
    fn freed(entry: &SnapshotEntry, pending: bool) -> Self {
        PastRequest { requested: entry.size, block: None, stream: entry.stream, pending, frames: Callers::MISSING }
    }
}

/// Finds the lengths of blocks that the last state no longer has. A request is rounded up; what is left of the
/// block it came from is split off, except (in segments that are not expandable) up to 1 MiB of a large one, or
/// anything of one above `max_split_size`. A free block as small as that cannot come about otherwise.
fn size_blocks(segment: &SegmentRecord, blocks: &mut [RecordedBlock], settings: Option<&AllocatorSettings>) {
    let end = segment.address + segment.size;
    let max_split = settings.and_then(|s| s.max_split_size).unwrap_or(u64::MAX);
    for index in 0..blocks.len() {
        let limit = blocks.get(index + 1).map_or(end, |next| next.address);
        let block = &mut blocks[index];
        let room = limit - block.address;
        if block.size == 0 {
            block.size = rounded(block.requested).min(room);
            let unsplit = !segment.expandable
                && segment.pool == Pool::Large
                && (room - block.size <= SMALL || block.size > max_split);
            if unsplit {
                block.size = room;
            }
        }
        block.size = block.size.min(room);
    }
}
