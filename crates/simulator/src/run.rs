//! The replay itself: one loop over the compiled trace.

use std::time::{Duration, Instant};

use stalloc_allocator::{Arena, Error as AllocatorError, PlannedAllocator};
use stalloc_caching::Caching;
use stalloc_device::{Address, Device, Stream};
use stalloc_plan::Plan;
use stalloc_trace::pace::Pace;
use stalloc_trace::{Event, RequestId, SegmentAction, Trace, rounded};

use crate::auto::Auto;
use crate::device::{SimGpu, UNLIMITED};
use crate::gmlake::Gmlake;
use crate::kind::recorded_settings;
use crate::program::{Op, Step, compile, initial};
use crate::serve::Serve;
use crate::{Error, Kind, Options, PlacedBy, Placement, Replay, adopt};

/// How often progress is reported, operations.
const REPORT: usize = 1 << 16;

pub(crate) fn replay(
    trace: &Trace,
    kind: Kind,
    options: &Options<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replay, Error> {
    let capacity = options.capacity.unwrap_or(UNLIMITED);
    let device = SimGpu::new(capacity);
    if trace.clock().is_some() {
        device.keep_time(&trace.times_us);
    }
    let mut settings = options.settings.clone().unwrap_or_else(|| recorded_settings(trace));
    settings.expandable_segments = kind == Kind::PytorchExpandable;
    if settings.garbage_collection_threshold > 0.0 && settings.memory_limit.is_none() {
        settings.memory_limit = options.capacity;
    }
    match kind {
        Kind::Pytorch | Kind::PytorchExpandable => {
            let by_age = goes_by_age(trace);
            settings.older_segments_first = by_age == Some(true);
            let mut caching = Caching::new(device.clone(), settings);
            let adopted = adopt_initial(trace, &mut caching, &device)?;
            if kind == Kind::Pytorch {
                if by_age == Some(false) {
                    device.place_as_driver();
                }
                // The stand-in's are the same rule's, which is then known from the first segment on.
                if by_age != Some(false) || !trace.metadata.contains_key("dry_run") {
                    device.follow(recorded_segments(trace));
                }
            }
            ReplayRun::new(trace, caching, device, adopted, options.step).finish(kind, progress)
        }
        Kind::Gmlake => {
            let model = Gmlake::new(device.clone(), options.gmlake.clone());
            ReplayRun::new(trace, model, device, false, options.step).finish(kind, progress)
        }
        Kind::StallocOpen => {
            let open = arena(&Plan::default(), &device, settings)?;
            ReplayRun::new(trace, open, device, false, options.step).finish(kind, progress)
        }
        Kind::Stalloc => {
            let planned = arena(options.plan.ok_or(Error::NoPlan)?, &device, settings)?;
            ReplayRun::new(trace, planned, device, false, options.step).finish(kind, progress)
        }
        Kind::StallocAuto => {
            let auto = Auto::new(arena(&Plan::default(), &device, settings)?, device.capacity());
            ReplayRun::new(trace, auto, device, false, options.step).finish(kind, progress)
        }
    }
}

/// Our own arena, before PyTorch's allocator.
fn arena(
    plan: &Plan,
    device: &SimGpu,
    settings: stalloc_caching::Settings,
) -> Result<PlannedAllocator<SimGpu, Caching<SimGpu>>, Error> {
    let arena = Arena::new(device.clone(), plan).map_err(Error::Allocator)?;
    Ok(PlannedAllocator::new(arena, Caching::new(device.clone(), settings)))
}

/// Whether the recorded PyTorch took of cached blocks of one size that of the oldest segment, as it has done since 2.15, and not the lowest;
/// none where its version is not known.
fn goes_by_age(trace: &Trace) -> Option<bool> {
    let mut numbers = trace.metadata.get("torch")?.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??) >= (2, 15))
}

/// Segments that the recorded allocator took: (bytes, address).
fn recorded_segments(trace: &Trace) -> impl Iterator<Item = (u64, Address)> + '_ {
    trace.events.iter().filter_map(|event| match event {
        Event::Segment(segment) if segment.action == SegmentAction::Alloc => Some((segment.size, segment.address)),
        _ => None,
    })
}

/// Starts an allocator from the state that the trace starts from, if it is one that this allocator could be in; whether
/// it is.
pub(crate) fn adopt_initial(trace: &Trace, caching: &mut Caching<SimGpu>, device: &SimGpu) -> Result<bool, Error> {
    let Some(state) = &trace.initial else { return Ok(false) };
    let expandable = caching.cache().settings().expandable_segments;
    // Nor could it be in one that the device has no room for: then the requests in it are asked for instead.
    if state.segments.iter().any(|segment| segment.expandable != expandable) || state.reserved() > device.capacity() {
        return Ok(false);
    }
    for segment in &state.segments {
        if !device.adopt(segment.address, segment.size) {
            return Err(Error::Overlap(segment.address));
        }
    }
    for segment in adopt::segments(trace, state) {
        let end = segment.parts.iter().fold(segment.address, |end, part| end.saturating_add(part.size()));
        if !device.keep_clear(end) {
            return Err(Error::Overlap(segment.address));
        }
        caching.cache_mut().adopt(&segment)?;
    }
    Ok(true)
}

/// A replay under way.
struct ReplayRun<'a, A> {
    trace: &'a Trace,
    allocator: A,
    device: SimGpu,
    /// Where each live request is.
    addresses: Vec<Option<u64>>,
    /// The streams that keep released requests busy.
    busy: rustc_hash::FxHashMap<RequestId, Stream>,
    placements: Vec<Placement>,
    allocated: u64,
    peak_allocated: u64,
    /// Remaps before each step began, and nanoseconds in the driver.
    remaps_at_steps: Vec<u64>,
    driver_at_steps: Vec<u64>,
    /// Time that a step takes, where it is known.
    step: Option<Duration>,
    waited_at_steps: Vec<u64>,
}

impl<'a, A: Serve> ReplayRun<'a, A> {
    fn new(trace: &'a Trace, allocator: A, device: SimGpu, adopted: bool, step: Option<Duration>) -> Self {
        let mut run = ReplayRun {
            trace,
            allocator,
            device,
            addresses: vec![None; trace.requests.len()],
            busy: rustc_hash::FxHashMap::default(),
            placements: Vec::with_capacity(trace.requests.len()),
            allocated: 0,
            peak_allocated: 0,
            remaps_at_steps: Vec::new(),
            driver_at_steps: Vec::new(),
            step,
            waited_at_steps: Vec::new(),
        };
        if adopted {
            let blocks = trace.initial.iter().flat_map(|s| &s.segments).flat_map(|s| &s.blocks);
            for block in blocks.filter(|block| block.state != stalloc_trace::BlockState::Inactive) {
                if let Some(request) = block.request {
                    run.place(request, block.address, PlacedBy::Online);
                }
            }
        }
        run
    }

    fn place(&mut self, request: RequestId, address: u64, source: PlacedBy) {
        self.addresses[request.index()] = Some(address);
        self.placements.push(Placement { request, address, source });
        self.allocated += rounded(self.trace.request(request).size);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    fn finish(mut self, kind: Kind, progress: &mut dyn FnMut(u64, u64)) -> Result<Replay, Error> {
        let before: Vec<RequestId> =
            initial(self.trace).filter(|request| self.addresses[request.index()].is_none()).collect();
        let first = before.into_iter().map(|request| Step { time: 0, op: Op::Malloc(request) });
        let steps: Vec<Step> = first.chain(compile(self.trace)).collect();
        let total = steps.len() as u64;
        let started = Instant::now();
        let mut oom = None;
        let mut done = 0;
        'all: for chunk in steps.chunks(REPORT) {
            for step in chunk {
                done += 1;
                self.device.at(step.time);
                if !self.step(step)? {
                    oom = Some(step.time);
                    break 'all;
                }
            }
            progress(done, total);
        }
        let elapsed = started.elapsed();
        let end = oom.unwrap_or(self.trace.end());
        let log = self.device.log(end);
        let (remaps, work) = (self.allocator.remaps(), self.device.driver_work());
        let all = remaps.map_or(0, |(times, _)| times);
        let by_step = |at_steps: &[u64], end: u64| -> Vec<u64> {
            let ends = at_steps.iter().skip(1).copied().chain([end]);
            at_steps.iter().zip(ends).map(|(before, after)| after - before).collect()
        };
        let driver = by_step(&self.driver_at_steps, work.nanoseconds);
        let waited = self.device.waited().as_nanos() as u64;
        let waited_by_step = by_step(&self.waited_at_steps, waited);
        Ok(Replay {
            allocator: kind.name(),
            peak_reserved: log.peak,
            peak_allocated: self.peak_allocated,
            oom,
            ns_per_op: elapsed.as_nanos() as f64 / done.max(1) as f64,
            remaps: remaps.map(|(times, _)| times),
            remapped_bytes: remaps.map(|(_, bytes)| bytes),
            remaps_by_step: by_step(&self.remaps_at_steps, all),
            driver_ms_by_step: driver.iter().map(|&nanoseconds| nanoseconds as f64 / 1e6).collect(),
            planned: self.allocator.planned(),
            driver_calls: work.calls,
            driver_ms: work.nanoseconds as f64 / 1e6,
            waited_ms: waited as f64 / 1e6,
            step_ms: self.trace.pace().map(|pace| step_ms(pace, &driver, &waited_by_step)),
            reserved: log.reserved,
            placements: self.placements,
            segments: log.spans,
        })
    }

    /// Takes one step; `false` if memory ran out.
    fn step(&mut self, step: &Step) -> Result<bool, Error> {
        match step.op {
            Op::Malloc(id) => {
                let request = self.trace.request(id);
                let stream = self.trace.streams.get(request.stream.0 as usize).copied().unwrap_or(0);
                match self.allocator.serve(request.size, stream) {
                    Ok((address, source)) => self.place(id, address, source),
                    Err(AllocatorError::OutOfMemory { .. }) => return Ok(false),
                    Err(error) => return Err(Error::Allocator(error)),
                }
            }
            Op::Free(id) => self.free(id, None)?,
            Op::FreeLater(id) => {
                let busy = self.device.start(self.trace.request(id).free_completed.unwrap_or(self.trace.end()));
                self.free(id, Some(busy))?;
            }
            Op::Complete(id) => {
                if let Some(busy) = self.busy.remove(&id) {
                    self.device.finish(busy);
                }
            }
            Op::EmptyCache => self.allocator.empty_cache().map_err(Error::Allocator)?,
            Op::StepBegin => {
                self.step.into_iter().for_each(|step| self.device.pass(step));
                self.remaps_at_steps.extend(self.allocator.remaps().map(|(times, _)| times));
                self.driver_at_steps.push(self.device.driver_work().nanoseconds);
                self.waited_at_steps.push(self.device.waited().as_nanos() as u64);
                self.allocator.step_begin();
            }
        }
        Ok(true)
    }

    fn free(&mut self, id: RequestId, busy: Option<Stream>) -> Result<(), Error> {
        // What was never placed cannot be taken back: only a damaged trace asks for it.
        let Some(address) = self.addresses[id.index()].take() else { return Ok(()) };
        if let Some(busy) = busy {
            self.allocator.record_stream(address, busy).map_err(Error::Allocator)?;
            self.busy.insert(id, busy);
        }
        self.allocator.free(address).map_err(Error::Allocator)?;
        self.allocated -= rounded(self.trace.request(id).size);
        Ok(())
    }
}

/// Milliseconds of a step: the recorded one, and what the allocator's driver calls and waits take of the mean step after the first beyond
/// the time in which the host waits for the device anyway.
fn step_ms(pace: Pace, driver: &[u64], waited: &[u64]) -> f64 {
    let first = usize::from(driver.len() > 1);
    let own: u64 = driver.iter().zip(waited).skip(first).map(|(driver, waited)| driver + waited).sum();
    let mean = own / driver.len().saturating_sub(first).max(1) as u64;
    (pace.step_us as f64 + (mean / 1000).saturating_sub(pace.waited_us) as f64) / 1e3
}
