//! What happened, for PyTorch's memory history: a ring of entries without call stacks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stalloc_device::{Address, Stream};

/// What an [`Entry`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// No stream uses it any more.
    FreeCompleted,
    /// A request could not be served; the entry's address is the device's free memory.
    OutOfMemory,
    /// The program says something of a live block.
    Annotate,
}

impl Action {
    /// PyTorch's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::OutOfMemory => "oom",
            Action::Annotate => "annotate",
        }
    }
}

/// A block, as entries have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Where it is.
    pub address: Address,
    /// Bytes that were asked for.
    pub size: u64,
    /// On which stream.
    pub stream: Stream,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// To what.
    pub subject: Subject,
    /// When, microseconds of Unix time.
    pub time: u64,
    /// What the thread said of itself then, or the program of the block.
    pub metadata: Arc<str>,
}

thread_local! {
    static METADATA: RefCell<Arc<str>> = RefCell::new(Arc::from(""));
}

/// What this thread says of itself from now on.
pub fn set_metadata(text: &str) {
    // A thread that ends has nothing more to say.
    let _ = METADATA.try_with(|metadata| metadata.replace(Arc::from(text)));
}

/// What this thread says of itself.
pub fn metadata() -> Arc<str> {
    METADATA.try_with(|metadata| metadata.borrow().clone()).unwrap_or_else(|_| Arc::from(""))
}

/// The latest entries.
#[derive(Debug)]
pub struct History {
    entries: VecDeque<Entry>,
    /// Blocks that were given back and whose end is not among the entries yet.
    leaving: Vec<(Subject, Arc<str>)>,
    /// The most that are kept; 0: nothing is recorded.
    most: usize,
    /// What is not kept.
    skipped: Vec<String>,
}

impl History {
    /// Records nothing.
    pub const fn new() -> Self {
        History { entries: VecDeque::new(), leaving: Vec::new(), most: 0, skipped: Vec::new() }
    }

    /// Keeps up to `most` entries from now on, but none of what is skipped; 0 forgets all and records nothing more.
    pub fn keep(&mut self, most: usize, skipped: &[String]) {
        self.most = most;
        self.skipped = skipped.to_vec();
        if most == 0 {
            self.leaving.clear();
        }
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

    /// Whether events are noted.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.most > 0
    }

    /// Notes an event, if any are.
    #[inline]
    pub fn note(&mut self, action: Action, subject: Subject) {
        if self.is_kept() {
            self.add(action, subject, metadata());
        }
    }

    /// The program says something of a live block.
    pub fn annotate(&mut self, subject: Subject, text: &str) {
        if self.is_kept() {
            self.add(Action::Annotate, subject, Arc::from(text));
        }
    }

    fn add(&mut self, action: Action, subject: Subject, metadata: Arc<str>) {
        if self.skipped.iter().any(|skipped| skipped == action.name()) {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.entries.push_back(Entry { action, subject, time: since.as_micros() as u64, metadata });
        self.trim();
    }

    /// A block is about to be given back.
    pub fn leave(&mut self, subject: Subject) {
        if self.is_kept() {
            let metadata = metadata();
            self.add(Action::FreeRequested, subject, metadata.clone());
            self.leaving.push((subject, metadata));
        }
    }

    /// Adds the end of the blocks that no longer wait for a stream. To be called before an address is noted again.
    pub fn complete(&mut self, mut is_waiting: impl FnMut(Address) -> bool) {
        if self.leaving.is_empty() {
            return;
        }
        for (subject, metadata) in std::mem::take(&mut self.leaving) {
            if is_waiting(subject.address) {
                self.leaving.push((subject, metadata));
            } else {
                self.add(Action::FreeCompleted, subject, metadata);
            }
        }
    }

    /// What is kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(history: &History) -> Vec<&'static str> {
        history.entries().iter().map(|entry| entry.action.name()).collect()
    }

    #[test]
    fn a_block_ends_when_no_stream_waits_for_it_and_before_its_address_comes_again() {
        let mut history = History::new();
        history.leave(Subject { address: 1, size: 1, stream: 0 });
        history.keep(10, &[]);
        let block = Subject { address: 512, size: 100, stream: 3 };
        set_metadata("here");
        history.note(Action::Alloc, block);
        history.leave(block);
        history.complete(|address| address == 512);
        assert_eq!(actions(&history), ["alloc", "free_requested"]);
        history.complete(|_| false);
        history.note(Action::Alloc, block);
        assert_eq!(actions(&history), ["alloc", "free_requested", "free_completed", "alloc"]);
        assert!(history.entries().iter().all(|entry| &*entry.metadata == "here"));
        history.annotate(block, "there");
        assert_eq!(history.entries().last().map(|entry| entry.metadata.to_string()), Some("there".to_owned()));
    }

    #[test]
    fn what_is_skipped_or_too_much_is_not_kept() {
        let mut history = History::new();
        history.keep(2, &["alloc".to_owned()]);
        let block = Subject { address: 512, size: 100, stream: 3 };
        history.note(Action::Alloc, block);
        assert!(history.entries().is_empty());
        for _ in 0..2 {
            history.leave(block);
            history.complete(|_| false);
        }
        assert_eq!(actions(&history), ["free_requested", "free_completed"]);
        history.keep(0, &[]);
        assert!(history.entries().is_empty());
    }
}
