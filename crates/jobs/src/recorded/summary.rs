//! What a trace amounts to, and which traces are alike.

use std::hash::{Hash, Hasher};
use std::path::Path;

use rustc_hash::{FxHashMap, FxHasher};
use serde::Serialize;
use stalloc_trace::{Event, Frame, Mark, Trace};

/// The figures of one trace. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The file's name.
    pub file: String,
    /// The process's rank.
    pub rank: u32,
    /// The device within the process.
    pub device: u32,
    /// Events, marks included.
    pub events: u64,
    /// Allocations.
    pub requests: u64,
    /// Steps, as `stalloc info` counts them.
    pub steps: u64,
    /// Largest live size.
    pub peak_allocated: u64,
    /// Most memory that the recorded allocator held, where the trace says.
    pub peak_reserved: Option<u64>,
    /// Where the program read values back from the device: where it saw zeros first, then the most frequent place.
    pub host_reads: Vec<HostReadSite>,
    /// Largest live size where no element is chosen of those that are guessed about, if there are any and that was tried.
    pub peak_if_none: Option<u64>,
    /// Events that could not be written, as on a full disk: the trace ends before them.
    pub lost_events: u64,
    /// An earlier trace with the same events, GPUs, addresses and times aside.
    pub same_as: Option<String>,
    /// Hash of the events, GPUs, addresses and times aside.
    #[serde(skip)]
    pub content: u64,
}

/// Values read back at one place of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostReadSite {
    /// How often.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// What gave the answers; none: the program saw zeros.
    pub answer: Option<String>,
    /// Whether it may decide how much memory the program asks for; otherwise it is answered, or one floating-point number.
    pub may_change_memory: bool,
    /// The most elements of which it was guessed how many are chosen.
    pub guessed: Option<u64>,
    /// `FILE:LINE in FUNCTION`, innermost first.
    pub stack: Vec<String>,
}

/// Sums up the trace that `path` holds.
pub fn of(path: &Path, trace: &Trace) -> Summary {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Summary {
        rank: super::rank_and_device(&name).map_or(0, |(rank, _)| rank),
        file: name,
        device: trace.device,
        events: trace.events.len() as u64,
        requests: trace.requests.len() as u64,
        steps: stalloc_synthesizer::steps(trace).requests.len() as u64,
        peak_allocated: trace.peak_allocated(),
        peak_reserved: trace.peak_reserved(),
        host_reads: host_reads(trace),
        peak_if_none: None,
        lost_events: trace.metadata.get("lost_events").and_then(|count| count.parse().ok()).unwrap_or(0),
        same_as: None,
        content: content(trace),
    }
}

impl Summary {
    /// Whether sizes hang on guesses.
    pub fn is_guessed(&self) -> bool {
        self.host_reads.iter().any(|read| read.guessed.is_some())
    }
}

/// Names, in each of `summaries`, the first that has the same events, if that is of another rank.
pub fn find_alike(summaries: &mut [Summary]) {
    let mut first: FxHashMap<(u64, u64), (u32, String)> = FxHashMap::default();
    for summary in summaries {
        let key = (summary.content, summary.events);
        match first.get(&key) {
            Some((rank, _)) if *rank == summary.rank => {}
            Some((_, file)) => summary.same_as = Some(file.clone()),
            None => _ = first.insert(key, (summary.rank, summary.file.clone())),
        }
    }
}

fn host_reads(trace: &Trace) -> Vec<HostReadSite> {
    let text =
        |frame: &Frame| format!("{}:{} in {}", trace.string(frame.file), frame.line, trace.string(frame.function));
    let place = |read: stalloc_trace::HostReads| HostReadSite {
        count: read.count,
        bytes: read.bytes,
        answer: read.answer.map(|answer| trace.string(answer).to_owned()),
        may_change_memory: read.may_change_memory(),
        guessed: read.guessed,
        stack: trace.stacks.get(read.stack).iter().map(text).collect(),
    };
    trace.host_reads().into_iter().map(place).collect()
}

/// Hash of everything that the program decided: the order of events, sizes, streams and marks. Ranks of one machine do the same
/// each on a GPU of its own, whose number does not count.
pub(super) fn content(trace: &Trace) -> u64 {
    let mut hasher = FxHasher::default();
    for event in &trace.events {
        std::mem::discriminant(event).hash(&mut hasher);
        match event {
            Event::Alloc(id) => {
                let request = trace.request(*id);
                (request.size, request.stream.0).hash(&mut hasher);
            }
            Event::FreeRequested(id) | Event::FreeCompleted(id) => id.0.hash(&mut hasher),
            Event::Segment(segment) => (segment.action, segment.size, segment.stream.0).hash(&mut hasher),
            Event::OutOfMemory { size, .. } => size.hash(&mut hasher),
            Event::Snapshot => {}
            Event::Mark(mark) => mark_content(trace, mark, &mut hasher),
        }
    }
    hasher.finish()
}

fn mark_content(trace: &Trace, mark: &Mark, hasher: &mut FxHasher) {
    std::mem::discriminant(mark).hash(hasher);
    match mark {
        Mark::StepBegin | Mark::StepEnd => {}
        Mark::Phase { kind, micro_batch } => (trace.string(*kind), micro_batch).hash(hasher),
        Mark::ModuleEnter(name) | Mark::ModuleExit(name) | Mark::AnnotationBegin(name) | Mark::AnnotationEnd(name) => {
            trace.string(*name).hash(hasher);
        }
        Mark::HostRead { bytes, answer, .. } => (bytes, answer.map(|answer| trace.string(answer))).hash(hasher),
    }
}
