//! What is known about the content of device memory.
//!
//! Kernels compute nothing here, so most of it is unknown. Known are the bytes that the program itself copied from the host or set
//! with memset, and what an observer of the program's operations computed on the host and told us ([`KnownBytes::write`]). What ends the
//! knowledge of a place is a write to it. A kernel that was launched outside of any observed operation may have written anywhere: it
//! ends all knowledge, as do calls of libraries, unless whoever launched it tells what it may have written.

use super::{
    ranges::Ranges,
    shared::{IpcHandle, SharedBytes},
};
use crate::execution::unknown_writes;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Copies that are larger are not kept, in bytes: four mebi of 64-bit integers.
pub(super) const LARGEST: usize = 32 << 20;
/// Bytes kept in all; the oldest go first.
pub(super) const KEPT: usize = 512 << 20;

/// How a place's bytes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// As they would be on a GPU.
    Computed,
    /// From a check, which is taken to hold.
    Check,
    /// From numbers that were drawn in place of others.
    Drawn,
}

enum Payload {
    Bytes(Vec<u8>),
    Fill(u8),
    /// Not computed yet: the number that an observer gave to what would be, and bytes of it before these.
    Later(u64, u64),
}

struct KnownPiece {
    /// One past its last byte.
    end: u64,
    content: Payload,
    source: Provenance,
    age: u64,
}

impl KnownPiece {
    fn kept(&self) -> usize {
        match &self.content {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Fill(_) | Payload::Later(..) => 0,
        }
    }

    /// The part of it, which begins at `start`, between two addresses inside.
    fn part(&self, start: u64, from: u64, to: u64) -> Self {
        let content = match &self.content {
            Payload::Bytes(bytes) => Payload::Bytes(bytes[(from - start) as usize..(to - start) as usize].to_vec()),
            Payload::Fill(value) => Payload::Fill(*value),
            Payload::Later(what, before) => Payload::Later(*what, before + (from - start)),
        };
        Self { end: to, content, source: self.source, age: self.age }
    }
}

/// Bytes of device memory whose values a dry run knows, by address: pieces that do not overlap.
#[derive(Default)]
pub struct KnownBytes {
    pieces: BTreeMap<u64, KnownPiece>,
    /// Age and address of every piece, oldest first; pieces that are gone or were replaced may still be in it.
    ages: VecDeque<(u64, u64)>,
    age: u64,
    kept: usize,
    unknown_writes: u64,
    /// Memory that other processes use too: what is known of it lies there.
    shared: Ranges<Arc<SharedBytes>>,
}

/// A part of a range: in one piece of shared memory, at an offset of it, or in none.
struct RangePart {
    start: u64,
    bytes: u64,
    shared: Option<(Arc<SharedBytes>, u64)>,
}

impl KnownBytes {
    /// The host's bytes were copied to `start`.
    pub fn copied(&mut self, start: u64, bytes: &[u8]) {
        self.write(start, bytes, Provenance::Computed);
    }

    /// Shares the allocation of `bytes` at `start` with other processes, if it is not yet.
    pub fn share(&mut self, start: u64, bytes: u64) -> std::io::Result<IpcHandle> {
        if let Some((_, shared)) = self.shared.at(start) {
            return Ok(shared.handle());
        }
        let shared = Arc::new(SharedBytes::new(bytes)?);
        let handle = shared.handle();
        self.hand_over(start, shared);
        Ok(handle)
    }

    /// What is known at `start`, and all that comes to be known there, lies in `shared` from now on.
    pub fn hand_over(&mut self, start: u64, shared: Arc<SharedBytes>) {
        self.catch_up();
        let bytes = shared.bytes();
        let end = start.saturating_add(bytes);
        for (&first, piece) in self.pieces.range(..end).rev().take_while(|(_, piece)| piece.end > start) {
            let (from, to) = (first.max(start), piece.end.min(end));
            match piece.part(first, from, to).content {
                Payload::Bytes(bytes) => shared.write(from - start, &bytes),
                Payload::Fill(value) => shared.fill(from - start, to - from, value),
                Payload::Later(..) => {}
            }
        }
        self.forget_own(start, bytes);
        self.shared.insert(start, bytes, shared);
    }

    /// Memory that another process shares is at `start` now.
    pub fn open(&mut self, start: u64, shared: Arc<SharedBytes>) {
        self.catch_up();
        self.shared.insert(start, shared.bytes(), shared);
    }

    /// The shared memory at `start` is gone, or closed.
    pub fn unshare(&mut self, start: u64) {
        self.shared.remove(start);
    }

    fn parts(&self, start: u64, bytes: u64) -> Vec<RangePart> {
        let (mut at, end) = (start, start.saturating_add(bytes));
        let mut parts = Vec::new();
        while at < end {
            let (until, shared) = match self.shared.find(at) {
                Some((first, length, shared)) => (first + length, Some((Arc::clone(shared), at - first))),
                None => (self.shared.next_start(at).unwrap_or(end), None),
            };
            let until = until.min(end);
            parts.push(RangePart { start: at, bytes: until - at, shared });
            at = until;
        }
        parts
    }

    /// `bytes` are at `start` now.
    pub fn write(&mut self, start: u64, bytes: &[u8], source: Provenance) {
        self.catch_up();
        if self.shared.is_empty() {
            return self.write_own(start, bytes, source);
        }
        for part in self.parts(start, bytes.len() as u64) {
            let from = (part.start - start) as usize;
            let bytes = &bytes[from..from + part.bytes as usize];
            match part.shared {
                Some((shared, offset)) => shared.write(offset, bytes),
                None => self.write_own(part.start, bytes, source),
            }
        }
    }

    fn write_own(&mut self, start: u64, bytes: &[u8], source: Provenance) {
        let end = start.saturating_add(bytes.len() as u64);
        if let Some((first, piece)) = self.pieces.range_mut(..=start).next_back()
            && piece.end >= end
            && piece.source == source
            && let Payload::Bytes(kept) = &mut piece.content
        {
            let from = (start - first) as usize;
            kept[from..from + bytes.len()].copy_from_slice(bytes);
            return;
        }
        self.forget_own(start, bytes.len() as u64);
        if !bytes.is_empty() && bytes.len() <= LARGEST {
            self.insert(start, end, Payload::Bytes(bytes.to_vec()), source);
        }
    }

    /// `bytes` at `start` were set to `value`.
    pub fn filled(&mut self, start: u64, bytes: u64, value: u8) {
        self.catch_up();
        for part in self.parts(start, bytes) {
            if let Some((shared, offset)) = part.shared {
                shared.fill(offset, part.bytes, value);
            } else {
                self.forget_own(part.start, part.bytes);
                let end = part.start.saturating_add(part.bytes);
                self.insert(part.start, end, Payload::Fill(value), Provenance::Computed);
            }
        }
    }

    /// What is at `start` now can be computed: it is what an observer calls `what`, from so many bytes on. Shared memory has no such content.
    pub fn write_later(&mut self, start: u64, bytes: u64, (what, before): (u64, u64)) {
        self.forget(start, bytes);
        if self.shared.is_empty() && bytes > 0 {
            self.insert(start, start.saturating_add(bytes), Payload::Later(what, before), Provenance::Computed);
        }
    }

    /// What all of `bytes` at `start` are, if they can be computed, and the bytes of it that lie before them.
    pub fn later(&mut self, start: u64, bytes: u64) -> Option<(u64, u64)> {
        self.catch_up();
        let (first, piece) = self.pieces.range(..=start).next_back()?;
        match piece.content {
            Payload::Later(what, before) if piece.end >= start.saturating_add(bytes) => {
                Some((what, before + (start - first)))
            }
            _ => None,
        }
    }

    /// Something was written there, nobody knows what. O(log n) where nothing was known.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        self.catch_up();
        if self.shared.is_empty() {
            return self.forget_own(start, bytes);
        }
        for part in self.parts(start, bytes) {
            match part.shared {
                Some((shared, offset)) => shared.forget(offset, part.bytes),
                None => self.forget_own(part.start, part.bytes),
            }
        }
    }

    fn forget_own(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        while let Some((&first, piece)) = self.pieces.range(..end).next_back()
            && piece.end > start
            && bytes > 0
        {
            let (before, after) = (first < start, piece.end > end);
            let Some(piece) = self.pieces.remove(&first) else { return };
            self.kept -= piece.kept();
            for (from, to) in [(first, start), (end, piece.end)]
                .into_iter()
                .zip([before, after])
                .filter_map(|(at, is)| is.then_some(at))
            {
                let part = piece.part(first, from, to);
                self.insert(from, to, part.content, part.source);
            }
            if before {
                return;
            }
        }
    }

    /// How `bytes` at `start` are known, if all of them are. O(log n) where the first is not.
    pub fn source(&mut self, start: u64, bytes: u64) -> Option<Provenance> {
        self.catch_up();
        if self.shared.is_empty() {
            return self.own_source(start, bytes);
        }
        self.parts(start, bytes).into_iter().try_fold(Provenance::Computed, |source, part| match part.shared {
            Some((shared, offset)) => shared.is_known(offset, part.bytes).then_some(source),
            None => Some(source.max(self.own_source(part.start, part.bytes)?)),
        })
    }

    fn own_source(&self, start: u64, bytes: u64) -> Option<Provenance> {
        let end = start.saturating_add(bytes);
        let (mut at, mut source) = (start, Provenance::Computed);
        while at < end {
            let is_known = |piece: &KnownPiece| piece.end > at && !matches!(piece.content, Payload::Later(..));
            let (_, piece) = self.pieces.range(..=at).next_back().filter(|(_, piece)| is_known(piece))?;
            source = source.max(piece.source);
            at = piece.end;
        }
        Some(source)
    }

    /// Reads `target.len()` bytes at `start`; none, and what is in `target` means nothing, unless all of them are known.
    pub fn read(&mut self, start: u64, target: &mut [u8]) -> Option<Provenance> {
        self.catch_up();
        if self.shared.is_empty() {
            return self.read_own(start, target);
        }
        self.parts(start, target.len() as u64).into_iter().try_fold(Provenance::Computed, |source, part| {
            let from = (part.start - start) as usize;
            let target = &mut target[from..from + part.bytes as usize];
            match part.shared {
                Some((shared, offset)) => shared.read(offset, target).then_some(source),
                None => Some(source.max(self.read_own(part.start, target)?)),
            }
        })
    }

    fn read_own(&self, start: u64, target: &mut [u8]) -> Option<Provenance> {
        let end = start.saturating_add(target.len() as u64);
        let (mut at, mut source) = (start, Provenance::Computed);
        while at < end {
            let (&first, piece) = self.pieces.range(..=at).next_back()?;
            if piece.end <= at {
                return None;
            }
            let to = piece.end.min(end);
            let part = &mut target[(at - start) as usize..(to - start) as usize];
            match &piece.content {
                Payload::Bytes(bytes) => part.copy_from_slice(&bytes[(at - first) as usize..(to - first) as usize]),
                Payload::Fill(value) => part.fill(*value),
                Payload::Later(..) => return None,
            }
            source = source.max(piece.source);
            at = to;
        }
        Some(source)
    }

    /// `bytes` were copied from one place of a device to another.
    pub fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        self.catch_up();
        if let Some(later) = self.later(from, bytes) {
            return self.write_later(to, bytes, later);
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length <= LARGEST && !(self.pieces.is_empty() && self.shared.is_empty()) {
            let mut buffer = vec![0; length];
            if let Some(source) = self.read(from, &mut buffer) {
                return self.write(to, &buffer, source);
            }
        }
        self.forget(to, bytes);
    }

    /// What is known of `bytes` in one place, and no more, is known in another from now on: devices or the host's kept memory.
    pub fn carry(&mut self, from: u64, to: u64, bytes: u64) {
        self.catch_up();
        self.forget_own(to, bytes);
        let end = from.saturating_add(bytes);
        let first = self.pieces.range(..=from).next_back().map_or(from, |(&first, _)| first);
        let within = self.pieces.range(first..end).filter(|(_, piece)| piece.end > from);
        let parts: Vec<_> = within
            .map(|(&start, piece)| (start.max(from), piece.part(start, start.max(from), piece.end.min(end))))
            .collect();
        for (start, part) in parts {
            self.insert(to + (start - from), to + (part.end - from), part.content, part.source);
        }
    }

    fn insert(&mut self, start: u64, end: u64, content: Payload, source: Provenance) {
        self.age += 1;
        let piece = KnownPiece { end, content, source, age: self.age };
        self.kept += piece.kept();
        self.ages.push_back((self.age, start));
        self.pieces.insert(start, piece);
        while self.kept > KEPT
            && let Some((age, start)) = self.ages.pop_front()
        {
            if self.pieces.get(&start).is_some_and(|piece| piece.age == age)
                && let Some(piece) = self.pieces.remove(&start)
            {
                self.kept -= piece.kept();
            }
        }
        if self.ages.len() > 2 * self.pieces.len() + 1024 {
            let pieces = &self.pieces;
            self.ages.retain(|(age, start)| pieces.get(start).is_some_and(|piece| piece.age == *age));
        }
    }

    /// Forgets everything when something was started since that may have written anywhere.
    fn catch_up(&mut self) {
        let writes = unknown_writes();
        if writes != self.unknown_writes {
            self.unknown_writes = writes;
            self.kept = 0;
            self.pieces.clear();
            self.ages.clear();
            self.shared.iter().for_each(|(_, bytes, shared)| shared.forget(0, bytes));
        }
    }
}
