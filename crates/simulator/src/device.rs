//! The simulated device: it hands out numbers, counts, and keeps a log of what was held when.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use stalloc_common::DriverPlaces;
use stalloc_device::{Address, Device, DriverWork, Error, MemoryInfo, Stream};
use stalloc_trace::Time;

use crate::SegmentSpan;
use crate::busy::{BusyStreams, SimulatedEvent};

/// Capacity where none was asked for: 16 TiB.
pub(crate) const UNLIMITED: u64 = 1 << 44;
/// Where the first address lies, unless an adopted state lies higher.
const BASE: Address = 1 << 40;
/// Below it lies nothing that a stand-in or a GPU of now hands out.
const LOWEST_RECORDED: Address = 1 << 44;
/// Size of a page, and what addresses are aligned to.
const PAGE: u64 = 2 << 20;

/// A simulated device; clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct SimGpu(Rc<RefCell<DeviceState>>);

struct DeviceState {
    capacity: u64,
    used: u64,
    next: Address,
    /// Where a recorded device put segments of these sizes, in order, as long as they are asked for in that order.
    recorded: VecDeque<(u64, Address)>,
    /// Where CUDA's driver puts what is not recorded.
    places: Option<DriverPlaces>,
    /// Ranges with memory behind them: bytes, and since when.
    held: BTreeMap<Address, (u64, Time)>,
    now: Time,
    peak: u64,
    reserved: Vec<(Time, u64)>,
    spans: Vec<SegmentSpan>,
    busy: BusyStreams,
    /// Old mappings of memory that is mapped elsewhere by now.
    left: BTreeMap<Address, u64>,
    work: DriverWork,
    /// Time that the program has run, where it is known how long its steps take.
    ran: Option<Duration>,
    /// Microseconds of each event since the first, where the recording has a clock.
    times: Vec<u64>,
    /// Time that the host has waited.
    waited: Duration,
    /// Until when it has, microseconds of the recording.
    waited_until: u64,
}

/// What a [`SimGpu`] saw.
pub(crate) struct DeviceLog {
    pub peak: u64,
    pub reserved: Vec<(Time, u64)>,
    pub spans: Vec<SegmentSpan>,
}

impl SimGpu {
    pub fn new(capacity: u64) -> Self {
        SimGpu(Rc::new(RefCell::new(DeviceState {
            capacity,
            used: 0,
            next: BASE,
            recorded: VecDeque::new(),
            places: None,
            held: BTreeMap::new(),
            now: 0,
            peak: 0,
            reserved: Vec::new(),
            spans: Vec::new(),
            busy: BusyStreams::default(),
            left: BTreeMap::new(),
            work: DriverWork::default(),
            ran: None,
            times: Vec::new(),
            waited: Duration::ZERO,
            waited_until: 0,
        })))
    }

    /// Lets time pass as in a recording.
    pub fn keep_time(&self, times_us: &[u64]) {
        let first = times_us.first().copied().unwrap_or(0);
        self.0.borrow_mut().times = times_us.iter().map(|time| time.saturating_sub(first)).collect();
    }

    /// Time that the host has waited.
    pub fn waited(&self) -> Duration {
        self.0.borrow().waited
    }

    /// Bytes that it has.
    pub fn capacity(&self) -> u64 {
        self.0.borrow().capacity
    }

    /// Sets the clock. What was taken and given back at one time, as pages of a request that failed, is in no peak.
    pub fn at(&self, now: Time) {
        let state = &mut *self.0.borrow_mut();
        state.peak = state.peak.max(state.used);
        state.now = now;
    }

    /// Has the program run for longer, besides the driver's work.
    pub fn pass(&self, time: Duration) {
        let ran = &mut self.0.borrow_mut().ran;
        *ran = Some(ran.unwrap_or_default().saturating_add(time));
    }

    /// Says that a range is in use already; `false` if it overlaps another one or ends beyond any address space.
    pub fn adopt(&self, address: Address, bytes: u64) -> bool {
        let state = &mut *self.0.borrow_mut();
        let Some(end) = address.checked_add(bytes) else { return false };
        if !state.is_free(address, bytes) {
            return false;
        }
        state.hold(address, bytes);
        state.keep_clear(end)
    }

    /// Sees to it that nothing new is handed out below an address; `false` if that is impossible.
    pub fn keep_clear(&self, end: Address) -> bool {
        self.0.borrow_mut().keep_clear(end)
    }

    /// Hands segments out where a recorded device put them, (bytes, address) in order, until something else is asked
    /// for. Best fit breaks ties by address, so what follows depends on it.
    pub fn follow(&self, recorded: impl Iterator<Item = (u64, Address)>) {
        let state = &mut *self.0.borrow_mut();
        state.recorded = recorded.collect();
        let end = state.recorded.iter().map(|&(bytes, address)| address.saturating_add(bytes)).max();
        if !state.keep_clear(end.unwrap_or(0)) {
            state.recorded.clear();
        }
    }

    /// Puts segments where CUDA's driver does, below all that is recorded, and not in the order of their age.
    pub fn place_as_driver(&self) {
        self.0.borrow_mut().places = Some(DriverPlaces::below(LOWEST_RECORDED));
    }

    /// A stream that is busy until [`finish`](Self::finish), which is at a time of the trace.
    pub fn start(&self, until: Time) -> Stream {
        let state = &mut *self.0.borrow_mut();
        state.busy.start(state.time(until))
    }

    /// A busy stream has done what it was given.
    pub fn finish(&self, stream: Stream) {
        self.0.borrow_mut().busy.finish(stream);
    }

    /// What happened up to `end`.
    pub fn log(&self, end: Time) -> DeviceLog {
        let state = &mut *self.0.borrow_mut();
        let mut spans = std::mem::take(&mut state.spans);
        state.peak = state.peak.max(state.used);
        spans.extend(state.held.iter().map(|(&address, &(size, begin))| SegmentSpan { address, size, begin, end }));
        DeviceLog { peak: state.peak, reserved: std::mem::take(&mut state.reserved), spans: joined(spans) }
    }
}

/// Joins pages that were mapped and unmapped together.
fn joined(mut spans: Vec<SegmentSpan>) -> Vec<SegmentSpan> {
    spans.sort_unstable_by_key(|span| (span.begin, span.end, span.address));
    spans.dedup_by(|next, span| {
        let joins = (next.begin, next.end) == (span.begin, span.end) && span.address + span.size == next.address;
        if joins {
            span.size += next.size;
        }
        joins
    });
    spans
}

impl DeviceState {
    /// When an event of the trace happens, microseconds since the first; the last one's time from there on, 0 without a clock.
    fn time(&self, event: Time) -> u64 {
        self.times.get(event as usize).or(self.times.last()).copied().unwrap_or(0)
    }

    /// The host waits until then. The trace stands still meanwhile: what it has waited for once is past for what follows.
    fn wait(&mut self, until: u64) {
        let from = self.time(self.now).max(self.waited_until);
        self.waited += Duration::from_micros(until.saturating_sub(from));
        self.waited_until = self.waited_until.max(until);
    }

    fn hold(&mut self, address: Address, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
        self.held.insert(address, (bytes, self.now));
        self.note();
    }

    fn drop(&mut self, address: Address) -> Option<u64> {
        let (size, begin) = self.held.remove(&address)?;
        self.used -= size;
        self.spans.push(SegmentSpan { address, size, begin, end: self.now });
        self.note();
        Some(size)
    }

    fn note(&mut self) {
        match self.reserved.last_mut() {
            Some(last) if last.0 == self.now => last.1 = self.used,
            _ => self.reserved.push((self.now, self.used)),
        }
    }

    fn room(&self, bytes: u64) -> Result<(), Error> {
        let free = self.capacity.saturating_sub(self.used);
        match bytes <= free {
            true => Ok(()),
            false => Err(Error::OutOfMemory { requested: bytes, free, total: self.capacity }),
        }
    }

    /// Where the recorded device put what is asked for now; nowhere, from the first thing on that it was not asked for.
    fn recorded_place(&mut self, bytes: u64) -> Option<Address> {
        let place = self.recorded.pop_front().filter(|&(size, address)| size == bytes && self.is_free(address, bytes));
        if place.is_none() {
            self.recorded.clear();
        }
        place.map(|(_, address)| address)
    }

    fn is_free(&self, address: Address, bytes: u64) -> bool {
        let below = self.held.range(..address.saturating_add(bytes)).next_back();
        below.is_none_or(|(&start, &(size, _))| start + size <= address)
    }

    fn range(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.next;
        let end = address.checked_add(bytes).filter(|&end| self.keep_clear(end));
        end.map(|_| address).ok_or(Error::Unsupported("reserve more than its address space"))
    }

    fn keep_clear(&mut self, end: Address) -> bool {
        match end.checked_next_multiple_of(PAGE) {
            Some(end) => {
                self.next = self.next.max(end);
                true
            }
            None => false,
        }
    }
}

/// Whole pages, one at least.
fn paged(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE)
}

impl Device for SimGpu {
    type Event = SimulatedEvent;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        let state = &mut *self.0.borrow_mut();
        state.room(bytes)?;
        let place = state.recorded_place(bytes).or_else(|| state.places.as_mut()?.take(paged(bytes)));
        let address = place.map_or_else(|| state.range(bytes.max(1)), Ok)?;
        state.hold(address, bytes);
        state.work.alloc();
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        state.work.free();
        let size = state.drop(address);
        if let (Some(places), Some(size)) = (&mut state.places, size) {
            places.give(address, paged(size));
        }
        size.map(|_| ()).ok_or(Error::Unsupported("free what it did not hand out"))
    }

    fn page_size(&self) -> Option<u64> {
        Some(PAGE)
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.0.borrow_mut().range(bytes)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        if state.next == address + bytes {
            state.next = address;
        }
        Ok(())
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        state.room(bytes)?;
        state.hold(address, bytes);
        state.work.map();
        Ok(())
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        if state.held.get(&from).is_none_or(|&(held, _)| held != bytes) {
            return Err(Error::Unsupported("map again what is not mapped"));
        }
        state.drop(from);
        state.left.insert(from, bytes);
        state.hold(to, bytes);
        state.work.map_again();
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        let mut at = address;
        while at < address + bytes {
            state.work.unmap();
            let mapped = state.left.remove(&at).or_else(|| {
                state.work.give_back();
                state.drop(at)
            });
            at += mapped.ok_or(Error::Unsupported("unmap what is not mapped"))?;
        }
        Ok(())
    }

    fn driver_work(&self) -> DriverWork {
        self.0.borrow().work
    }

    /// As the caller says, else as in the recording, plus the time of its own driver calls and waits.
    fn elapsed(&self) -> Option<Duration> {
        let state = self.0.borrow();
        let recorded = Duration::from_micros(state.time(state.now));
        let own = Duration::from_nanos(state.work.nanoseconds) + state.waited;
        state.ran.or_else(|| (!state.times.is_empty()).then(|| recorded + own))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let state = self.0.borrow();
        Ok(MemoryInfo { free: state.capacity.saturating_sub(state.used), total: state.capacity })
    }

    fn record(&mut self, stream: Stream) -> Result<SimulatedEvent, Error> {
        Ok(self.0.borrow().busy.record(stream))
    }

    fn completed(&mut self, event: &SimulatedEvent) -> Result<bool, Error> {
        Ok(self.0.borrow().busy.completed(event))
    }

    fn wait(&mut self, event: &SimulatedEvent) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        let until = state.busy.wait(event);
        state.wait(until);
        Ok(())
    }

    fn queue_wait(&mut self, _stream: Stream, _event: &SimulatedEvent) -> Result<(), Error> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        let until = state.busy.wait_for_all();
        state.wait(until);
        Ok(())
    }
}
