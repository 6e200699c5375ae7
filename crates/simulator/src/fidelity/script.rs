//! A device that does what a recording says.

use std::cell::RefCell;
use std::rc::Rc;

use stalloc_device::{Address, Device, Error, MemoryInfo, Stream};
use stalloc_trace::{Event, SegmentAction, SegmentEvent, Time, Trace};
use thiserror::Error as ThisError;

use crate::busy::{BusyStreams, SimulatedEvent};
use crate::device::UNLIMITED;

/// What the allocator's code did and the recording did not, or the other way round.
#[derive(Clone, Debug, ThisError, PartialEq, Eq)]
pub enum Mismatch {
    /// A request was put elsewhere.
    #[error("a request of {size} bytes was put at {ours:#x}, recorded is {recorded:#x}")]
    Address {
        /// Bytes asked for.
        size: u64,
        /// Where the allocator put it.
        ours: Address,
        /// Where it was.
        recorded: Address,
    },
    /// Memory was taken from the device.
    #[error("{bytes} bytes were taken from the device, recorded is {}", recorded(.next))]
    Took {
        /// How much.
        bytes: u64,
        /// What the recording has here.
        next: Option<SegmentEvent>,
    },
    /// Memory was given back to the device.
    #[error("{bytes} bytes at {address:#x} were given back, recorded is {}", recorded(.next))]
    GaveBack {
        /// Where.
        address: Address,
        /// How much.
        bytes: u64,
        /// What the recording has here.
        next: Option<SegmentEvent>,
    },
    /// A recorded event did not happen.
    #[error("nothing was done, recorded is {}", recorded(&Some(*.0)))]
    Missing(SegmentEvent),
    /// A request could not be served.
    #[error("a request of {0} bytes was refused, recorded is that it was served")]
    Refused(u64),
    /// A request was served.
    #[error("a request of {0} bytes was served, recorded is that memory ran out")]
    Served(u64),
}

fn recorded(event: &Option<SegmentEvent>) -> String {
    let Some(event) = event else { return "nothing here".into() };
    let what = match event.action {
        SegmentAction::Alloc => "a new segment",
        SegmentAction::Free => "a segment given back",
        SegmentAction::Map => "pages mapped",
        SegmentAction::Unmap => "pages unmapped",
    };
    format!("{what} ({} bytes at {:#x})", event.size, event.address)
}

/// The device; clones are handles to the same one.
#[derive(Clone)]
pub(super) struct ScriptedDevice(Rc<RefCell<ScriptState>>);

struct ScriptState {
    events: Vec<(Time, SegmentEvent)>,
    /// The event that comes next.
    next: usize,
    /// Bytes of it that have been mapped already.
    mapped: u64,
    /// Only events before this time can happen now.
    until: Time,
    /// Whether the device is out of memory where the recording has no event.
    full: bool,
    difference: Option<Mismatch>,
    /// Address space for ranges that the recording never uses.
    unused: Address,
    used: u64,
    peak: u64,
    busy: BusyStreams,
}

impl ScriptedDevice {
    /// The script of a trace; `used` bytes are reserved before it starts.
    pub fn new(trace: &Trace, used: u64) -> Self {
        let events = trace.events.iter().enumerate().filter_map(|(time, event)| match event {
            Event::Segment(event) => Some((time as Time, *event)),
            _ => None,
        });
        ScriptedDevice(Rc::new(RefCell::new(ScriptState {
            events: events.collect(),
            next: 0,
            mapped: 0,
            until: 0,
            full: false,
            difference: None,
            unused: 1 << 62,
            used,
            peak: used,
            busy: BusyStreams::default(),
        })))
    }

    /// From here on, events before `until` can happen; `full`: out of memory where there are none.
    pub fn proceed(&self, until: Time, full: bool) {
        let state = &mut *self.0.borrow_mut();
        (state.until, state.full) = (until, full);
    }

    /// The first event that has not happened yet, if it is before a time.
    pub fn due(&self, before: Time) -> Option<SegmentEvent> {
        let state = self.0.borrow();
        state.events.get(state.next).filter(|(time, _)| *time < before).map(|(_, event)| *event)
    }

    /// How many events have happened.
    pub fn happened(&self) -> usize {
        self.0.borrow().next
    }

    /// Most bytes in use at once.
    pub fn peak(&self) -> u64 {
        self.0.borrow().peak
    }

    /// What the allocator wanted that is not in the script.
    pub fn difference(&self) -> Option<Mismatch> {
        self.0.borrow().difference.clone()
    }

    /// A stream that is busy until [`finish`](Self::finish).
    pub fn start(&self) -> Stream {
        self.0.borrow_mut().busy.start(0)
    }

    /// A busy stream has done what it was given.
    pub fn finish(&self, stream: Stream) {
        self.0.borrow_mut().busy.finish(stream);
    }
}

impl ScriptState {
    fn now(&self) -> Option<SegmentEvent> {
        self.events.get(self.next).filter(|(time, _)| *time < self.until).map(|(_, event)| *event)
    }

    fn took(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Refuses `bytes` that the recording does not take here.
    fn refuse(&mut self, bytes: u64) -> Error {
        let next = self.now();
        let releasing = next.is_some_and(|e| matches!(e.action, SegmentAction::Free | SegmentAction::Unmap));
        if releasing || (next.is_none() && self.full) {
            return Error::OutOfMemory { requested: bytes, free: 0, total: self.used };
        }
        self.fail(Mismatch::Took { bytes, next })
    }

    fn fail(&mut self, difference: Mismatch) -> Error {
        self.difference.get_or_insert(difference);
        Error::Unsupported("do what is not recorded")
    }

    fn give_back(&mut self, action: SegmentAction, address: Address, bytes: Option<u64>) -> Result<(), Error> {
        match self.now() {
            Some(event)
                if (event.action, event.address, bytes.unwrap_or(event.size)) == (action, address, event.size) =>
            {
                self.used = self.used.saturating_sub(event.size);
                self.next += 1;
                Ok(())
            }
            next => Err(self.fail(Mismatch::GaveBack { address, bytes: bytes.unwrap_or(0), next })),
        }
    }
}

impl Device for ScriptedDevice {
    type Event = SimulatedEvent;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        let state = &mut *self.0.borrow_mut();
        match state.now() {
            Some(event) if (event.action, event.size) == (SegmentAction::Alloc, bytes) => {
                state.next += 1;
                state.took(bytes);
                Ok(event.address)
            }
            _ => Err(state.refuse(bytes)),
        }
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.0.borrow_mut().give_back(SegmentAction::Free, address, None)
    }

    fn page_size(&self) -> Option<u64> {
        Some(2 << 20)
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        let state = &mut *self.0.borrow_mut();
        match state.now() {
            Some(event) if event.action == SegmentAction::Map => Ok(event.address),
            _ => {
                state.unused += bytes;
                Ok(state.unused - bytes)
            }
        }
    }

    fn release(&mut self, _address: Address, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        let state = &mut *self.0.borrow_mut();
        match state.now() {
            Some(event)
                if event.action == SegmentAction::Map
                    && event.address + state.mapped == address
                    && bytes <= event.size - state.mapped =>
            {
                state.mapped += bytes;
                state.took(bytes);
                if state.mapped == event.size {
                    state.mapped = 0;
                    state.next += 1;
                }
                Ok(())
            }
            _ => Err(state.refuse(bytes)),
        }
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.0.borrow_mut().give_back(SegmentAction::Unmap, address, Some(bytes))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        Ok(MemoryInfo { free: UNLIMITED, total: UNLIMITED })
    }

    fn record(&mut self, stream: Stream) -> Result<SimulatedEvent, Error> {
        Ok(self.0.borrow().busy.record(stream))
    }

    fn completed(&mut self, event: &SimulatedEvent) -> Result<bool, Error> {
        Ok(self.0.borrow().busy.completed(event))
    }

    fn wait(&mut self, _event: &SimulatedEvent) -> Result<(), Error> {
        Ok(())
    }

    fn queue_wait(&mut self, _stream: Stream, _event: &SimulatedEvent) -> Result<(), Error> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
