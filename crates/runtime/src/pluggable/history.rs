//! What happened, for PyTorch's memory history: a ring of entries without call stacks.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use stalloc_device::{Address, Stream};

/// What an [`Entry`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// A block was given back.
    Free,
    /// A request could not be served; the entry's address is the device's free memory.
    OutOfMemory,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: Address,
    /// Bytes that were asked for.
    pub size: u64,
    /// On which stream.
    pub stream: Stream,
    /// When, microseconds of Unix time.
    pub time: u64,
}

/// The latest entries.
#[derive(Debug)]
pub struct History {
    entries: VecDeque<Entry>,
    /// The most that are kept; 0: nothing is recorded.
    most: usize,
}

impl History {
    /// Records nothing.
    pub const fn new() -> Self {
        History { entries: VecDeque::new(), most: 0 }
    }

    /// Keeps up to `most` entries from now on; 0 forgets all and records nothing more.
    pub fn keep(&mut self, most: usize) {
        self.most = most;
        self.trim();
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn trim(&mut self) {
        let excess = self.entries.len().saturating_sub(self.most);
        self.entries.drain(..excess);
    }

    /// Notes an event, if any are.
    #[inline]
    pub fn note(&mut self, action: Action, address: Address, size: u64, stream: Stream) {
        if self.most > 0 {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.entries.push_back(Entry { action, address, size, stream, time: since.as_micros() as u64 });
            self.trim();
        }
    }

    /// What is kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().copied().collect()
    }
}
