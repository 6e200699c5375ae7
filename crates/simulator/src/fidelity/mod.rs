//! Holds the code of PyTorch's caching allocator against what a snapshot recorded, event for event.
//!
//! The allocator gets the recorded requests and releases, over a device that follows the script of the recorded segment
//! events: it hands out the recorded addresses, and refuses where the recorded allocator did not get memory. Everything
//! that the allocator decides must then be what was recorded: when it asks the device for memory and for how much, what
//! it gives back and in which order, and the address of every request.
//!
//! Two things are read off the recording because it does not say them: a call of `empty_cache` shows as segments that
//! are given back, and that the device was out of memory shows as a failed request, or as segments given back before a
//! new one was taken.

mod script;

use rustc_hash::FxHashMap;
use stalloc_allocator::{Allocator, Error as AllocatorError};
use stalloc_caching::{Caching, Settings};
use stalloc_device::Stream;
use stalloc_trace::{Event, MemoryState, RequestId, SegmentAction, Time, Trace};

use crate::kind::recorded_settings;
use crate::program::{Op, Step, compile, next_request};
use crate::{Error, actual_peak_reserved, adopt};

pub use script::Mismatch;
use script::ScriptedDevice;

/// Whose rules a recording follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PyTorch's as it used to be: of blocks of the same size the one at the lowest address is used.
    Pytorch,
    /// PyTorch 2.15's: of blocks of the same size the one in the oldest segment is used.
    PytorchByAge,
    /// torch_npu's, which adds to every request and aligns large ones.
    TorchNpu,
}

impl Dialect {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Pytorch => "PyTorch",
            Dialect::PytorchByAge => "PyTorch, by age",
            Dialect::TorchNpu => "torch_npu",
        }
    }
}

/// How a recording and the allocator's code compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fidelity {
    /// Whether segments expand.
    pub expandable: bool,
    /// Whose rules explain the recording best.
    pub dialect: Dialect,
    /// Whether the trace starts with memory reserved.
    pub seeded: bool,
    /// Requests whose address is the recorded one.
    pub requests: usize,
    /// Recorded segment events that the allocator made as well.
    pub segment_events: usize,
    /// Times that `empty_cache` was inferred.
    pub emptied: usize,
    /// Most memory reserved by the allocator up to the first difference, bytes.
    pub peak_reserved: u64,
    /// Most memory reserved according to the recording, bytes.
    pub recorded_peak: Option<u64>,
    /// The first difference, if there is one; nothing is compared after it.
    pub difference: Option<(Time, Mismatch)>,
}

impl Fidelity {
    /// Whether everything that was recorded happened again.
    pub fn is_exact(&self) -> bool {
        self.difference.is_none()
    }
}

/// Compares a recorded trace with the allocator's code, by the rules of each [`Dialect`]; the
/// closest. `memory_limit` is what `set_per_process_memory_fraction` allowed the program, bytes: no snapshot says it, and
/// garbage collection goes by it.
pub fn compare(trace: &Trace, memory_limit: Option<u64>) -> Result<Fidelity, Error> {
    let mut best = compare_as(trace, Dialect::Pytorch, memory_limit)?;
    for dialect in [Dialect::PytorchByAge, Dialect::TorchNpu] {
        if best.is_exact() {
            break;
        }
        let other = compare_as(trace, dialect, memory_limit)?;
        if other.is_exact() || other.requests > best.requests {
            best = other;
        }
    }
    Ok(best)
}

fn compare_as(trace: &Trace, dialect: Dialect, memory_limit: Option<u64>) -> Result<Fidelity, Error> {
    let empty = MemoryState::default();
    let initial = trace.initial.as_ref().unwrap_or(&empty);
    let settings =
        Settings { expandable_segments: expandable(trace, initial), memory_limit, ..recorded_settings(trace) };
    let settings = match dialect {
        Dialect::Pytorch => settings,
        Dialect::PytorchByAge => Settings { older_segments_first: true, ..settings },
        Dialect::TorchNpu => settings.torch_npu(),
    };
    let script = ScriptedDevice::new(trace, initial.reserved());
    let mut caching = Caching::new(script.clone(), settings.clone());
    let mut last = 0;
    for segment in &initial.segments {
        if segment.address < last {
            return Err(Error::Overlap(segment.address));
        }
        last = segment.address.saturating_add(segment.size);
    }
    for segment in adopt::segments(trace, initial) {
        caching.cache_mut().adopt(&segment)?;
    }
    let mut walk = Walk {
        trace,
        caching,
        script,
        addresses: vec![None; trace.requests.len()],
        busy: FxHashMap::default(),
        stream: 0,
        requests: 0,
        emptied: 0,
    };
    let difference = walk.all(initial);
    Ok(Fidelity {
        expandable: settings.expandable_segments,
        dialect,
        seeded: !initial.segments.is_empty(),
        requests: walk.requests,
        segment_events: walk.script.happened(),
        emptied: walk.emptied,
        peak_reserved: walk.script.peak(),
        recorded_peak: actual_peak_reserved(trace),
        difference: difference.err(),
    })
}

/// Whether the recorded segments expand: as the settings say, or as the segments show.
fn expandable(trace: &Trace, initial: &MemoryState) -> bool {
    let mapped = |e: &Event| matches!(e, Event::Segment(s) if s.action == SegmentAction::Map);
    match &trace.settings {
        Some(settings) => settings.expandable_segments,
        None => initial.segments.iter().any(|s| s.expandable) || trace.events.iter().any(mapped),
    }
}

type Compared = Result<(), (Time, Mismatch)>;

struct Walk<'a> {
    trace: &'a Trace,
    caching: Caching<ScriptedDevice>,
    script: ScriptedDevice,
    /// Where live requests are.
    addresses: Vec<Option<u64>>,
    busy: FxHashMap<RequestId, Stream>,
    /// The stream of the latest request.
    stream: Stream,
    requests: usize,
    emptied: usize,
}

impl Walk<'_> {
    fn all(&mut self, initial: &MemoryState) -> Compared {
        let blocks = initial.segments.iter().flat_map(|segment| &segment.blocks);
        for block in blocks {
            if let Some(request) = block.request {
                self.addresses[request.index()] = Some(block.address);
            }
        }
        let trace = self.trace;
        let mut steps = compile(trace).into_iter().peekable();
        for (time, event) in trace.events.iter().enumerate() {
            let time = time as Time;
            if let Event::OutOfMemory { size, .. } = event {
                self.out_of_memory(time, *size)?;
            }
            while let Some(step) = steps.next_if(|step| step.time == time) {
                self.step(step)?;
            }
        }
        self.nothing_due(trace.end())
    }

    fn nothing_due(&self, time: Time) -> Compared {
        self.script.due(time).map_or(Ok(()), |event| Err((time, Mismatch::Missing(event))))
    }

    fn empty_cache(&mut self, time: Time) -> Compared {
        self.script.proceed(next_request(self.trace, time), false);
        self.emptied += 1;
        let result = self.caching.empty_cache();
        self.settle(time, result.map(|()| None))?;
        self.nothing_due(time + 1)
    }

    fn out_of_memory(&mut self, time: Time, size: u64) -> Compared {
        self.script.proceed(time, true);
        let result = self.caching.malloc(size, self.stream);
        match self.settle(time, result.map(Some))? {
            Some(_) => Err((time, Mismatch::Served(size))),
            None => self.nothing_due(time),
        }
    }

    /// What came of an operation: `None` if memory ran out.
    fn settle(&self, time: Time, result: Result<Option<u64>, AllocatorError>) -> Result<Option<u64>, (Time, Mismatch)> {
        match (self.script.difference(), result) {
            (Some(difference), _) => Err((time, difference)),
            (None, result) => Ok(result.ok().flatten()),
        }
    }

    fn step(&mut self, step: Step) -> Compared {
        let time = step.time;
        match step.op {
            Op::Malloc(id) => self.malloc(time, id),
            Op::Free(id) => {
                self.free(id, None);
                Ok(())
            }
            Op::FreeLater(id) => {
                let busy = self.script.start();
                self.free(id, Some(busy));
                Ok(())
            }
            Op::Complete(id) => {
                if let Some(busy) = self.busy.remove(&id) {
                    self.script.finish(busy);
                }
                Ok(())
            }
            Op::EmptyCache => self.empty_cache(time),
            Op::StepBegin => Ok(()),
        }
    }

    fn malloc(&mut self, time: Time, id: RequestId) -> Compared {
        let request = self.trace.request(id);
        self.stream = self.trace.streams.get(request.stream.0 as usize).copied().unwrap_or(0);
        self.script.proceed(time, false);
        let result = self.caching.malloc(request.size, self.stream);
        let Some(ours) = self.settle(time, result.map(Some))? else {
            return Err((time, Mismatch::Refused(request.size)));
        };
        self.nothing_due(time)?;
        if let Some(recorded) = request.address
            && recorded != ours
        {
            return Err((time, Mismatch::Address { size: request.size, ours, recorded }));
        }
        self.addresses[id.index()] = Some(ours);
        self.requests += 1;
        Ok(())
    }

    fn free(&mut self, id: RequestId, busy: Option<Stream>) {
        // What the recording frees and never placed lived in no segment that it knows of.
        let Some(address) = self.addresses[id.index()].take() else { return };
        if let Some(busy) = busy
            && self.caching.record_stream(address, busy).is_ok()
        {
            self.busy.insert(id, busy);
        }
        // Neither can fail: the address is live, and the device records any event.
        let _ = self.caching.free(address);
    }
}
