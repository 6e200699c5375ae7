//! Disjoint address ranges, ordered.

use std::collections::BTreeMap;

/// Ranges by their start, each with its length and a note.
#[derive(Debug)]
pub struct Ranges<T> {
    by_start: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<T> Ranges<T> {
    /// Adds a range; false, and nothing done, when it overlaps another, is empty, or passes the end of the address space.
    pub fn insert(&mut self, start: u64, bytes: u64, note: T) -> bool {
        let Some(last) = bytes.checked_sub(1).and_then(|more| start.checked_add(more)) else {
            return false;
        };
        let before = self.by_start.range(..=last).next_back();
        if before.is_some_and(|(other, (length, _))| other + (length - 1) >= start) {
            return false;
        }
        self.by_start.insert(start, (bytes, note));
        true
    }

    /// Removes the range that begins at `start`.
    pub fn remove(&mut self, start: u64) -> Option<(u64, T)> {
        self.by_start.remove(&start)
    }

    /// The range that holds `address`: start, length, note.
    pub fn find(&self, address: u64) -> Option<(u64, u64, &T)> {
        let (start, (bytes, note)) = self.by_start.range(..=address).next_back()?;
        (address - start < *bytes).then_some((*start, *bytes, note))
    }

    /// The range that begins at `start`.
    pub fn at(&self, start: u64) -> Option<(u64, &T)> {
        self.by_start.get(&start).map(|(bytes, note)| (*bytes, note))
    }

    /// As [`Self::at`], to change the note.
    pub fn note_mut(&mut self, start: u64) -> Option<&mut T> {
        self.by_start.get_mut(&start).map(|(_, note)| note)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Where the first range begins that does not begin before an address.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        self.by_start.range(address..).next().map(|(start, _)| *start)
    }

    /// All ranges, in order: start, length, note.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &T)> {
        self.by_start.iter().map(|(start, (bytes, note))| (*start, *bytes, note))
    }

    /// Starts of the ranges that lie wholly in `[start, start + bytes)`.
    pub fn within(&self, start: u64, bytes: u64) -> Vec<u64> {
        let end = start.saturating_add(bytes);
        self.by_start.range(start..end).filter(|(at, (length, _))| *length <= end - **at).map(|(at, _)| *at).collect()
    }

    /// The lowest free start for `bytes` in `[from, to)`, aligned; O(ranges).
    pub fn gap(&self, from: u64, to: u64, bytes: u64, alignment: u64) -> Option<u64> {
        let mut at = from.checked_next_multiple_of(alignment)?;
        for (start, (length, _)) in self.by_start.range(..to) {
            let end = start + length;
            if end <= at {
                continue;
            }
            if *start >= at && start - at >= bytes {
                break;
            }
            at = end.checked_next_multiple_of(alignment)?;
        }
        (at.checked_add(bytes)? <= to).then_some(at)
    }
}
