//! The trace: events, requests and marks of one device.

use std::collections::BTreeMap;

use crate::ids::{RequestId, StackId, StreamId, StringId, Time};
use crate::state::{AllocatorSettings, MemoryState};

/// PyTorch counts every block as a multiple of this many bytes.
pub const ROUNDING: u64 = 512;

/// `size` as PyTorch counts it: at least one unit of [`ROUNDING`] bytes, saturating at the largest multiple.
pub const fn rounded(size: u64) -> u64 {
    if size == 0 {
        return ROUNDING;
    }
    match size.checked_next_multiple_of(ROUNDING) {
        Some(rounded) => rounded,
        None => u64::MAX - (ROUNDING - 1),
    }
}

/// An allocation of a trace: bytes asked for, stream, call stack, and when it was made, freed and could be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes asked for, before rounding.
    pub size: u64,
    /// Stream that it was allocated on.
    pub stream: StreamId,
    /// Where the recorded allocator put it, where the format says so.
    pub address: Option<u64>,
    /// Where in the program it was asked for.
    pub stack: StackId,
    /// When it was allocated; `None` if it was live before the first event.
    pub alloc: Option<Time>,
    /// When the program gave it back; `None` if it outlives the trace.
    pub free_requested: Option<Time>,
    /// When its memory could be used again: later than `free_requested` only if other streams still used it.
    pub free_completed: Option<Time>,
}

impl Request {
    /// Its size as PyTorch counts it, bytes.
    pub const fn rounded(&self) -> u64 {
        rounded(self.size)
    }
}

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A training step begins.
    StepBegin,
    /// A training step ends; said again before the next one begins, it went on until then.
    StepEnd,
    /// A phase (forward, backward, weight, optimizer...) of a micro-batch begins.
    Phase {
        /// Interned name of the phase.
        kind: StringId,
        /// Micro-batch, counted from 0.
        micro_batch: u32,
    },
    /// A module is entered.
    ModuleEnter(StringId),
    /// A module is left.
    ModuleExit(StringId),
    /// A named range of the recorder's begins, such as `Optimizer.step#AdamW.step`.
    AnnotationBegin(StringId),
    /// A named range of the recorder's ends.
    AnnotationEnd(StringId),
    /// The program read a value back from the device and may have branched on it.
    HostRead {
        /// Where it was read.
        stack: StackId,
        /// Bytes read.
        bytes: u64,
        /// What gave the program an answer, in a few words; `None`: it saw zeros, which a real run would not.
        answer: Option<StringId>,
    },
}

/// What the recorded allocator did with a range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentAction {
    /// Took a segment from the device.
    Alloc,
    /// Gave a segment back.
    Free,
    /// Mapped pages into an expandable segment.
    Map,
    /// Unmapped pages of an expandable segment.
    Unmap,
}

/// A change of the recorded allocator's reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEvent {
    /// What happened.
    pub action: SegmentAction,
    /// Start of the range.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Stream that the segment belongs to.
    pub stream: StreamId,
}

/// One event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was served.
    Alloc(RequestId),
    /// The program gave a request back.
    FreeRequested(RequestId),
    /// The memory of a request could be used again.
    FreeCompleted(RequestId),
    /// Reserved memory changed.
    Segment(SegmentEvent),
    /// A request of `size` bytes failed with `device_free` bytes free on the device.
    OutOfMemory {
        /// Bytes asked for.
        size: u64,
        /// Bytes that the device had free.
        device_free: u64,
        /// Where in the program it was asked for.
        stack: StackId,
    },
    /// The recorder took a snapshot.
    Snapshot,
    /// A mark.
    Mark(Mark),
}

/// A call stack's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Source file.
    pub file: StringId,
    /// Function.
    pub function: StringId,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
}

/// Interned call stacks, innermost frame first. Entry 0 is the empty stack ([`StackId::NONE`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    pub(crate) frames: Vec<Frame>,
    pub(crate) ranges: Vec<(u32, u32)>,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks { frames: Vec::new(), ranges: vec![(0, 0)] }
    }
}

impl Stacks {
    /// The frames of a stack, innermost first; empty for an unknown one.
    pub fn get(&self, id: StackId) -> &[Frame] {
        match self.ranges.get(id.0 as usize) {
            Some(&(start, end)) => &self.frames[start as usize..end as usize],
            None => &[],
        }
    }

    /// How many stacks there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether no stack was recorded.
    pub fn is_empty(&self) -> bool {
        self.ranges.len() <= 1
    }
}

/// The events of one device in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Device number within the recording process.
    pub device: u32,
    /// Events in order; an event's index is its time.
    pub events: Vec<Event>,
    /// Microseconds of each event since an arbitrary start; empty if the format has no clock.
    pub times_us: Vec<u64>,
    /// Every request, in the order of allocation; those that were live before the first event come first.
    pub requests: Vec<Request>,
    /// The recorder's stream handles, by [`StreamId`].
    pub streams: Vec<u64>,
    /// Interned call stacks.
    pub stacks: Stacks,
    /// Interned strings.
    pub strings: Vec<String>,
    /// What the recorded allocator held before the first event, where it can be known.
    pub initial: Option<MemoryState>,
    /// What it held when the recording ended, where the format says so.
    pub last: Option<MemoryState>,
    /// How the recorded allocator was set up, where the format says so.
    pub settings: Option<AllocatorSettings>,
    /// What was known when memory ran out, as JSON, where the recorder looked.
    pub facts: Option<String>,
    /// Whether the recording was cut off: its end is missing.
    pub is_cut: bool,
    /// What else the recorder said (`torch`, `device_name`, `total_memory`, `command`, `rank`...).
    pub metadata: BTreeMap<String, String>,
}

impl Trace {
    /// The string behind an id; empty for an unknown one.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", String::as_str)
    }

    /// A request.
    ///
    /// # Panics
    /// If `id` is of another trace.
    pub fn request(&self, id: RequestId) -> &Request {
        &self.requests[id.index()]
    }

    /// The time after the last event.
    pub fn end(&self) -> Time {
        self.events.len() as Time
    }

    /// Lifetime of a request: from its allocation (0 if live before the trace) to the time when its memory can be
    /// used again (the trace's end if never).
    pub fn lifetime(&self, request: &Request) -> std::ops::Range<Time> {
        request.alloc.unwrap_or(0)..request.free_completed.unwrap_or(self.end())
    }

    /// The largest number of live bytes, each request rounded up as PyTorch counts. A request is live until the
    /// program gives it back. O(events).
    pub fn peak_allocated(&self) -> u64 {
        self.live_curve().into_iter().map(|(_, live)| live).max().unwrap_or(0)
    }
}

/// Which format a file turned out to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own compact trace.
    Stalloc,
    /// A PyTorch memory snapshot.
    PytorchSnapshot,
    /// The text log of the paper's artifact.
    PaperLog,
    /// The text of PyTorch's error when memory ran out.
    ErrorText,
}

impl Format {
    /// Its name, as `stalloc info` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Stalloc => "stalloc trace",
            Format::PytorchSnapshot => "PyTorch snapshot",
            Format::PaperLog => "mem_log",
            Format::ErrorText => "PyTorch's error",
        }
    }
}

/// What one file holds: a trace per device that has one.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file's format.
    pub format: Format,
    /// A trace per device, in the order of devices; a device with a state only has a trace without events.
    pub traces: Vec<Trace>,
    /// What was odd but could be read, in sentences.
    pub warnings: Vec<String>,
}
