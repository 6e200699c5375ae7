//! Free blocks in the order of (size, segment, address): what best fit searches.
//!
//! A sorted sequence cut into short sorted arrays: searching is two binary searches, inserting and removing move a few
//! hundred bytes. Arrays are kept when they empty, so that a steady program allocates nothing here.

use stalloc_device::Address;

use crate::block::{BlockId, CachedBlock};

/// Longest array.
const CHUNK: usize = 64;

/// A free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeEntry {
    pub size: u64,
    pub segment: u64,
    pub address: Address,
    pub block: BlockId,
}

impl FreeEntry {
    /// The entry of a block.
    #[inline]
    pub fn of(block: &CachedBlock, id: BlockId) -> Self {
        FreeEntry { size: block.size, segment: block.segment, address: block.address, block: id }
    }
}

/// Where an entry stands; good until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexCursor {
    chunk: usize,
    place: usize,
}

/// Entries in order.
#[derive(Debug, Default)]
pub(super) struct FreeIndex {
    /// Never empty ones.
    chunks: Vec<Vec<FreeEntry>>,
    spare: Vec<Vec<FreeEntry>>,
}

impl FreeIndex {
    fn new_chunk(&mut self) -> Vec<FreeEntry> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    /// The first entry of at least `size` bytes.
    pub fn seek(&self, size: u64) -> Option<IndexCursor> {
        self.first_not(|entry| entry.size < size)
    }

    /// The first entry that does not come `before`.
    #[inline]
    fn first_not(&self, before: impl Fn(&FreeEntry) -> bool) -> Option<IndexCursor> {
        let chunk = match self.chunks.len() {
            1 => 0,
            _ => self.chunks.partition_point(|c| c.last().is_some_and(&before)),
        };
        let place = self.chunks.get(chunk)?.partition_point(before);
        (place < self.chunks[chunk].len()).then_some(IndexCursor { chunk, place })
    }

    /// The entry at a cursor.
    pub fn get(&self, cursor: IndexCursor) -> FreeEntry {
        self.chunks[cursor.chunk][cursor.place]
    }

    /// The entry after a cursor.
    pub fn next(&self, cursor: IndexCursor) -> Option<IndexCursor> {
        if cursor.place + 1 < self.chunks[cursor.chunk].len() {
            return Some(IndexCursor { place: cursor.place + 1, ..cursor });
        }
        (cursor.chunk + 1 < self.chunks.len()).then_some(IndexCursor { chunk: cursor.chunk + 1, place: 0 })
    }

    /// The largest entry.
    pub fn last(&self) -> Option<FreeEntry> {
        self.chunks.last()?.last().copied()
    }

    /// Every entry, in order.
    pub fn iter(&self) -> impl Iterator<Item = FreeEntry> + '_ {
        self.chunks.iter().flatten().copied()
    }

    /// Adds an entry.
    pub fn insert(&mut self, entry: FreeEntry) {
        if self.chunks.is_empty() {
            let chunk = self.new_chunk();
            self.chunks.push(chunk);
        }
        let chunk =
            self.chunks.partition_point(|c| c.last().is_some_and(|last| *last < entry)).min(self.chunks.len() - 1);
        let place = self.chunks[chunk].partition_point(|e| *e < entry);
        if self.chunks[chunk].len() < CHUNK {
            self.chunks[chunk].insert(place, entry);
            return;
        }
        let mut upper = self.new_chunk();
        upper.extend(self.chunks[chunk].drain(CHUNK / 2..));
        match place.checked_sub(CHUNK / 2) {
            Some(place) if place > 0 => upper.insert(place, entry),
            _ => self.chunks[chunk].insert(place, entry),
        }
        self.chunks.insert(chunk + 1, upper);
    }

    /// Takes the entry at a cursor out.
    pub fn take(&mut self, cursor: IndexCursor) -> FreeEntry {
        let chunk = &mut self.chunks[cursor.chunk];
        let entry = chunk.remove(cursor.place);
        if chunk.is_empty() {
            let chunk = self.chunks.remove(cursor.chunk);
            self.spare.push(chunk);
        } else if cursor.chunk + 1 < self.chunks.len()
            && self.chunks[cursor.chunk].len() + self.chunks[cursor.chunk + 1].len() <= CHUNK / 2
        {
            let mut upper = self.chunks.remove(cursor.chunk + 1);
            self.chunks[cursor.chunk].append(&mut upper);
            self.spare.push(upper);
        }
        entry
    }

    /// Takes a block out; whether it was there.
    pub fn remove(&mut self, entry: FreeEntry) -> bool {
        match self.first_not(|other| *other < entry) {
            Some(cursor) if self.get(cursor) == entry => {
                self.take(cursor);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
