//! Blocks: who uses which bytes, and who used them last.

use super::{Stream, clock::VectorClock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Memory that somebody may still use went to somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A block was handed out where another is in use.
    Overlap {
        /// The new block.
        start: u64,
        /// Its bytes.
        bytes: u64,
        /// Where the other begins.
        other: u64,
    },
    /// A block was handed out where a stream may still use one that was given back.
    Race {
        /// The new block.
        start: u64,
        /// Its bytes.
        bytes: u64,
        /// Who got it.
        stream: Stream,
        /// Who may still use it.
        user: Stream,
    },
    /// A stream uses what is no block any more.
    AfterFree {
        /// Where.
        start: u64,
        /// How many bytes.
        bytes: u64,
        /// Who.
        stream: Stream,
    },
    /// Memory was taken from behind a block in use, or from behind one that a stream may still use.
    Unmapped {
        /// Where.
        start: u64,
        /// How many bytes.
        bytes: u64,
        /// A stream that may still use them.
        user: Stream,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Overlap { start, bytes, other } => {
                write!(f, "{bytes} bytes at {start:#x} were handed out while the block at {other:#x} is in use")
            }
            Violation::Race { start, bytes, stream, user } => write!(
                f,
                "{bytes} bytes at {start:#x} were handed out to stream {stream:#x} while stream {user:#x} may still use them"
            ),
            Violation::AfterFree { start, bytes, stream } => {
                write!(f, "stream {stream:#x} uses {bytes} bytes at {start:#x}, where a block was given back")
            }
            Violation::Unmapped { start, bytes, user } => {
                write!(f, "{bytes} bytes at {start:#x} were unmapped while stream {user:#x} may still use them")
            }
        }
    }
}

impl std::error::Error for Violation {}

/// A block in use.
#[derive(Debug)]
struct BlockInUse {
    end: u64,
    /// Those that may use it until it is given back.
    streams: BTreeSet<Stream>,
    /// The last work on it of streams that use it no longer.
    done: BTreeMap<Stream, u64>,
}

/// Bytes that were a block's: the last work on them of each stream that used it.
#[derive(Clone, Debug)]
struct UsedBytes {
    end: u64,
    uses: Vec<(Stream, u64)>,
}

/// All blocks of a device, by where they begin; neither map's ranges overlap, in it or in the other.
#[derive(Debug, Default)]
pub struct Blocks {
    live: BTreeMap<u64, BlockInUse>,
    used: BTreeMap<u64, UsedBytes>,
    /// How many were handed out.
    pub count: u64,
}

impl Blocks {
    /// The live block that holds an address, or begins before `end` and ends behind it.
    fn live_in(&self, start: u64, end: u64) -> Option<(u64, &BlockInUse)> {
        self.live.range(..end).next_back().filter(|(_, live)| live.end > start).map(|(&start, live)| (start, live))
    }

    /// Where the parts of a range that were used begin.
    fn used_in(&self, start: u64, end: u64) -> Vec<u64> {
        let first = self.used.range(..=start).next_back().filter(|(_, used)| used.end > start).map(|(&from, _)| from);
        let from = first.unwrap_or(start);
        self.used.range(from..end).map(|(&from, _)| from).collect()
    }

    /// A stream that used a part of a range and whose work does not come before the clock.
    fn user(&self, start: u64, end: u64, clock: &VectorClock) -> Option<Stream> {
        let mut uses =
            self.used_in(start, end).into_iter().filter_map(|from| self.used.get(&from)).flat_map(|u| &u.uses);
        uses.find(|(stream, number)| !clock.has_work(*stream, *number)).map(|&(stream, _)| stream)
    }

    /// Forgets who used a range.
    fn forget(&mut self, start: u64, end: u64) {
        for from in self.used_in(start, end) {
            let Some(used) = self.used.remove(&from) else { continue };
            if used.end > end {
                self.used.insert(end, used.clone());
            }
            if from < start {
                self.used.insert(from, UsedBytes { end: start, ..used });
            }
        }
    }

    /// See [`super::WorkOrder::handed_out`]. The block is in use afterwards, violation or not.
    pub fn hand_out(&mut self, start: u64, bytes: u64, stream: Stream, clock: &VectorClock) -> Result<(), Violation> {
        let end = start.saturating_add(bytes);
        self.count += 1;
        let overlap = self.live_in(start, end).map(|(other, _)| Violation::Overlap { start, bytes, other });
        let race = self.user(start, end, clock).map(|user| Violation::Race { start, bytes, stream, user });
        self.forget(start, end);
        self.live.insert(start, BlockInUse { end, streams: BTreeSet::from([stream]), done: BTreeMap::new() });
        overlap.or(race).map_or(Ok(()), Err)
    }

    /// See [`super::WorkOrder::used_on`].
    pub fn use_on(&mut self, address: u64, stream: Stream) {
        if let Some((_, live)) = self.live.range_mut(..=address).next_back().filter(|(_, live)| live.end > address) {
            live.streams.insert(stream);
        }
    }

    /// See [`super::WorkOrder::used_once`].
    pub fn use_once(&mut self, address: u64, stream: Stream, number: u64) {
        if let Some((_, live)) = self.live.range_mut(..=address).next_back().filter(|(_, live)| live.end > address) {
            live.done.insert(stream, number);
        }
    }

    /// The streams that use the block that begins at an address.
    pub fn streams_of(&self, start: u64) -> BTreeSet<Stream> {
        self.live.get(&start).map(|live| live.streams.clone()).unwrap_or_default()
    }

    /// See [`super::WorkOrder::given_back`].
    pub fn give_back(&mut self, start: u64, mut uses: Vec<(Stream, u64)>) -> u64 {
        let Some(BlockInUse { end, done, .. }) = self.live.remove(&start) else { return 0 };
        uses.extend(done);
        self.used.insert(start, UsedBytes { end, uses });
        end - start
    }

    /// See [`super::WorkOrder::accessed`].
    pub fn access(&self, start: u64, bytes: u64, stream: Stream) -> Result<(), Violation> {
        if self.used_in(start, start.saturating_add(bytes)).is_empty() {
            return Ok(());
        }
        Err(Violation::AfterFree { start, bytes, stream })
    }

    /// See [`super::WorkOrder::unmapped`]. Nobody used the range afterwards.
    pub fn unmap(&mut self, start: u64, bytes: u64, host: &VectorClock) -> Result<(), Violation> {
        let end = start.saturating_add(bytes);
        let live = self.live_in(start, end).and_then(|(_, live)| live.streams.first().copied());
        let user = live.or_else(|| self.user(start, end, host));
        self.forget(start, end);
        user.map_or(Ok(()), |user| Err(Violation::Unmapped { start, bytes, user }))
    }
}
