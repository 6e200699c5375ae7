//! What happened, for PyTorch's memory history: a ring of entries, and where live blocks were asked for.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
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
    /// Memory was taken from the device at once.
    SegmentAlloc,
    /// It was given back.
    SegmentFree,
    /// Addresses were given memory.
    SegmentMap,
    /// Their memory was given back.
    SegmentUnmap,
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
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
        }
    }
}

/// Of what call stacks are kept; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Of nothing.
    #[default]
    Never,
    /// Live blocks.
    State,
    /// Entries of what is allocated.
    Alloc,
    /// All entries.
    All,
}

/// A call stack, in the form in which the one who takes it has it.
#[derive(Clone)]
pub struct Stack(pub Arc<dyn Any + Send + Sync>);

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stack")
    }
}

static TAKE: OnceLock<fn() -> Option<Stack>> = OnceLock::new();

/// Who takes the call stacks of threads: called in the thread itself, with no lock held, since it may wait for the interpreter.
pub fn take_stacks_by(take: fn() -> Option<Stack>) {
    let _ = TAKE.set(take);
}

/// The call stack of this thread, if someone can take it.
pub(super) fn stack() -> Option<Stack> {
    TAKE.get()?()
}

/// A block or a piece of memory, as entries have it.
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
#[derive(Clone, Debug)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// To what.
    pub subject: Subject,
    /// When, microseconds of Unix time.
    pub time: u64,
    /// What the thread said of itself then, or the program of the block.
    pub metadata: Arc<str>,
    /// From where, if that was wanted.
    pub stack: Option<Stack>,
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

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Taken from the device at once, and given back so.
    Whole,
    /// The fallback's, mapped by pages.
    Mapped,
    /// The arena's, mapped by pages.
    Arena,
    /// The arena's, one allocation.
    Solid,
}

impl Memory {
    /// What it is called when it goes and when it comes.
    fn actions(self) -> (Action, Action) {
        match self {
            Memory::Whole | Memory::Solid => (Action::SegmentFree, Action::SegmentAlloc),
            Memory::Mapped | Memory::Arena => (Action::SegmentUnmap, Action::SegmentMap),
        }
    }
}

/// A block that was given back and whose end is not among the entries yet.
#[derive(Debug)]
struct Leaving {
    subject: Subject,
    metadata: Arc<str>,
    stack: Option<Stack>,
}

/// The latest entries, and the call stacks of live blocks.
#[derive(Debug)]
pub struct History {
    entries: VecDeque<Entry>,
    leaving: Vec<Leaving>,
    /// By address.
    live: BTreeMap<Address, Stack>,
    /// Memory as it was last noted, in the order of addresses, by kind.
    memory: [Vec<Range<Address>>; 4],
    /// The most that are kept; 0: nothing is recorded.
    most: usize,
    level: Level,
    /// What is not kept.
    skipped: Vec<String>,
}

impl History {
    /// Records nothing.
    pub const fn new() -> Self {
        History {
            entries: VecDeque::new(),
            leaving: Vec::new(),
            live: BTreeMap::new(),
            memory: [const { Vec::new() }; 4],
            most: 0,
            level: Level::Never,
            skipped: Vec::new(),
        }
    }

    /// Keeps up to `most` entries from now on, but none of what is skipped, with the stacks of some; 0 forgets all and records
    /// nothing more.
    pub fn keep(&mut self, most: usize, level: Level, skipped: &[String]) {
        self.most = most;
        self.level = level;
        self.skipped = skipped.to_vec();
        if most == 0 {
            self.leaving.clear();
            self.live.clear();
        }
        self.trim();
    }

    /// Forgets all entries.
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
    pub fn note(&mut self, action: Action, subject: Subject, stack: Option<Stack>) {
        if self.is_kept() {
            self.add(action, subject, metadata(), stack);
        }
    }

    /// A block was handed out.
    pub fn allocated(&mut self, subject: Subject, stack: Option<Stack>) {
        if self.is_kept() {
            match &stack {
                Some(stack) => self.live.insert(subject.address, stack.clone()),
                None => self.live.remove(&subject.address),
            };
            self.add(Action::Alloc, subject, metadata(), stack);
        }
    }

    /// The program says something of a live block.
    pub fn annotate(&mut self, subject: Subject, text: &str, stack: Option<Stack>) {
        if self.is_kept() {
            self.add(Action::Annotate, subject, Arc::from(text), stack);
        }
    }

    /// Memory of a kind is this now, in the order of addresses: notes what came and what went.
    pub fn memory_is(&mut self, kind: Memory, now: Vec<Range<Address>>, stack: Option<&Stack>) {
        let before = std::mem::replace(&mut self.memory[kind as usize], now);
        let now = &self.memory[kind as usize];
        let (gone, come) = (without(&before, now), without(now, &before));
        let (goes, comes) = kind.actions();
        for (action, parts) in [(goes, gone), (comes, come)] {
            for part in parts {
                let subject = Subject { address: part.start, size: part.end - part.start, stream: 0 };
                self.note(action, subject, stack.cloned());
            }
        }
    }

    /// Memory of a kind is this now, whatever was noted of it.
    pub fn memory_was(&mut self, kind: Memory, now: Vec<Range<Address>>) {
        self.memory[kind as usize] = now;
    }

    fn add(&mut self, action: Action, subject: Subject, metadata: Arc<str>, stack: Option<Stack>) {
        if self.skipped.iter().any(|skipped| skipped == action.name()) {
            return;
        }
        let stack = stack.filter(|_| self.level >= Level::Alloc);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.entries.push_back(Entry { action, subject, time: since.as_micros() as u64, metadata, stack });
        self.trim();
    }

    /// A block is about to be given back.
    pub fn leave(&mut self, subject: Subject, stack: Option<Stack>) {
        if self.is_kept() {
            let metadata = metadata();
            self.add(Action::FreeRequested, subject, metadata.clone(), stack.clone());
            self.leaving.push(Leaving { subject, metadata, stack });
        }
    }

    /// Adds the end of the blocks that no longer wait for a stream. To be called before an address is noted again.
    pub fn complete(&mut self, mut is_waiting: impl FnMut(Address) -> bool) {
        if self.leaving.is_empty() {
            return;
        }
        for gone in std::mem::take(&mut self.leaving) {
            if is_waiting(gone.subject.address) {
                self.leaving.push(gone);
            } else {
                self.live.remove(&gone.subject.address);
                self.add(Action::FreeCompleted, gone.subject, gone.metadata, gone.stack);
            }
        }
    }

    /// What is kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }

    /// From where the live block at an address was asked for, if that is kept.
    pub fn stack_of(&self, address: Address) -> Option<Stack> {
        self.live.get(&address).cloned()
    }
}

/// The parts of some ranges that lie in none of others; both are in the order of addresses.
fn without(here: &[Range<Address>], there: &[Range<Address>]) -> Vec<Range<Address>> {
    let mut left = Vec::new();
    let mut first = 0;
    for range in here {
        first += there[first..].iter().take_while(|other| other.end <= range.start).count();
        let mut at = range.start;
        for other in there[first..].iter().take_while(|other| other.start < range.end) {
            if other.start > at {
                left.push(at..other.start);
            }
            at = at.max(other.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
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
        history.leave(Subject { address: 1, size: 1, stream: 0 }, None);
        history.keep(10, Level::Never, &[]);
        let block = Subject { address: 512, size: 100, stream: 3 };
        set_metadata("here");
        history.allocated(block, None);
        history.leave(block, None);
        history.complete(|address| address == 512);
        assert_eq!(actions(&history), ["alloc", "free_requested"]);
        history.complete(|_| false);
        history.allocated(block, None);
        assert_eq!(actions(&history), ["alloc", "free_requested", "free_completed", "alloc"]);
        assert!(history.entries().iter().all(|entry| &*entry.metadata == "here"));
        history.annotate(block, "there", None);
        assert_eq!(history.entries().last().map(|entry| entry.metadata.to_string()), Some("there".to_owned()));
    }

    #[test]
    fn what_is_skipped_or_too_much_is_not_kept() {
        let mut history = History::new();
        history.keep(2, Level::Never, &["alloc".to_owned()]);
        let block = Subject { address: 512, size: 100, stream: 3 };
        history.allocated(block, None);
        assert!(history.entries().is_empty());
        for _ in 0..2 {
            history.leave(block, None);
            history.complete(|_| false);
        }
        assert_eq!(actions(&history), ["free_requested", "free_completed"]);
        history.keep(0, Level::Never, &[]);
        assert!(history.entries().is_empty());
    }

    #[test]
    fn memory_is_noted_as_it_comes_and_goes_and_not_twice() {
        let mut history = History::new();
        history.keep(20, Level::Never, &[]);
        let ranges = |parts: &[(u64, u64)]| parts.iter().map(|part| part.0..part.1).collect::<Vec<_>>();
        history.memory_was(Memory::Arena, ranges(&[(0, 4)]));
        history.memory_is(Memory::Arena, ranges(&[(0, 4)]), None);
        assert!(history.entries().is_empty());
        history.memory_is(Memory::Arena, vec![0..2, 6..8, 9..10], None);
        history.memory_is(Memory::Whole, ranges(&[(100, 200)]), None);
        history.memory_is(Memory::Whole, vec![], None);
        let seen: Vec<_> =
            history.entries().iter().map(|e| (e.action.name(), e.subject.address, e.subject.size)).collect();
        assert_eq!(
            seen,
            [
                ("segment_unmap", 2, 2),
                ("segment_map", 6, 2),
                ("segment_map", 9, 1),
                ("segment_alloc", 100, 100),
                ("segment_free", 100, 100)
            ]
        );
        assert_eq!(without(&[0..10, 20..30], &[2..4, 8..22, 29..40]), [0..2, 4..8, 22..29]);
    }

    #[test]
    fn a_live_block_has_its_stack_though_its_entry_is_forgotten_and_no_entry_has_one_that_was_not_wanted() {
        let mut history = History::new();
        history.keep(1, Level::State, &[]);
        let stack = || Some(Stack(Arc::new(())));
        let blocks = [512, 1024].map(|address| Subject { address, size: 100, stream: 3 });
        blocks.iter().for_each(|&block| history.allocated(block, stack()));
        assert!(history.stack_of(512).is_some() && history.stack_of(1024).is_some());
        assert!(history.entries().iter().all(|entry| entry.stack.is_none()));
        history.leave(blocks[0], None);
        assert!(history.stack_of(512).is_some(), "another stream may use it still");
        history.complete(|_| false);
        assert!(history.stack_of(512).is_none());
        history.keep(1, Level::Alloc, &[]);
        history.allocated(blocks[0], stack());
        assert!(history.entries().iter().all(|entry| entry.stack.is_some()));
    }
}
