//! Streams that are busy until the recording says otherwise.
//!
//! A recording says when memory that other streams used was free again, not which streams those were. A replay has each
//! such block used by a stream of its own that is busy for just as long.

use stalloc_device::Stream;

/// Handles from here on are no streams of the program.
const BUSY: Stream = 1 << 63;

/// An event of a simulated device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SimulatedEvent {
    /// Complete when it was recorded: the program's streams are always idle.
    Done,
    /// Complete when the recording says so.
    Busy {
        /// Place of its stream.
        slot: usize,
        /// The stream's how many-th task it waits for.
        task: u64,
    },
}

/// All such streams.
#[derive(Debug, Default)]
pub(crate) struct BusyStreams {
    /// Tasks done, by stream.
    done: Vec<u64>,
    /// When each that is busy is idle again, microseconds of the recording.
    until: Vec<Option<u64>>,
    idle: Vec<usize>,
}

impl BusyStreams {
    /// An idle stream, busy from now until a time of the recording.
    pub fn start(&mut self, until: u64) -> Stream {
        let slot = self.idle.pop().unwrap_or_else(|| {
            self.done.push(0);
            self.until.push(None);
            self.done.len() - 1
        });
        self.until[slot] = Some(until);
        BUSY + slot as Stream
    }

    /// The stream is idle again.
    pub fn finish(&mut self, stream: Stream) {
        if let Some(slot) = self.slot(stream) {
            self.end(slot);
            self.idle.push(slot);
        }
    }

    /// What an event waits for is done, before the recording comes to it: somebody waits. When that is, microseconds of the recording; 0
    /// for one that has completed.
    pub fn wait(&mut self, event: &SimulatedEvent) -> u64 {
        match *event {
            SimulatedEvent::Busy { slot, .. } if !self.completed(event) => self.end(slot),
            _ => 0,
        }
    }

    /// All is done, as for [`wait`](Self::wait).
    pub fn wait_for_all(&mut self) -> u64 {
        (0..self.done.len()).map(|slot| self.end(slot)).max().unwrap_or(0)
    }

    fn end(&mut self, slot: usize) -> u64 {
        let until = self.until[slot].take();
        self.done[slot] += u64::from(until.is_some());
        until.unwrap_or(0)
    }

    /// An event on a stream.
    pub fn record(&self, stream: Stream) -> SimulatedEvent {
        let busy = self.slot(stream).filter(|slot| self.until[*slot].is_some());
        busy.map_or(SimulatedEvent::Done, |slot| SimulatedEvent::Busy { slot, task: self.done[slot] + 1 })
    }

    /// Whether an event has completed.
    pub fn completed(&self, event: &SimulatedEvent) -> bool {
        match *event {
            SimulatedEvent::Done => true,
            SimulatedEvent::Busy { slot, task } => self.done[slot] >= task,
        }
    }

    fn slot(&self, stream: Stream) -> Option<usize> {
        let slot = usize::try_from(stream.checked_sub(BUSY)?).ok()?;
        (slot < self.done.len()).then_some(slot)
    }
}
