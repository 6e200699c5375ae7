//! What is ordered before what on a device's streams, by vector clocks, and whether memory passes from one stream to another
//! in that order. For tests and for the stand-in CUDA; nothing that serves a job needs it.
//!
//! A device does what it is given in an order that only streams, events and waits fix. A block that was given back may still be
//! used by work that its streams were given before; nobody may get its bytes, and they may not lose their memory, before that
//! work is done for certain. [`WorkOrder`] is told what the program and the allocator do and says where that was not so, whatever
//! the device really did meanwhile. Its events complete as late as a random number says.

#![forbid(unsafe_code)]

mod blocks;
mod clock;

pub use blocks::Violation;

use blocks::Blocks;
use clock::VectorClock;
use std::collections::BTreeMap;

/// A stream's handle.
pub type Stream = u64;

/// The host among streams: memory that the host itself uses is handed out to it. When it gives that back it is done with it.
pub const HOST: Stream = Stream::MAX;

/// A place in the order: all that a stream was given before an event, and all that this waited for.
#[derive(Clone, Debug, Default)]
pub struct Moment(VectorClock);

/// What is known of the order of work on a device.
#[derive(Debug)]
pub struct WorkOrder {
    streams: BTreeMap<Stream, VectorClock>,
    /// Work that is done for certain, as the host has seen; all that it gives comes after.
    host: VectorClock,
    /// Streams that take turns with a default stream, and which.
    blocking: BTreeMap<Stream, Stream>,
    blocks: Blocks,
    /// State of the random numbers; none: events are complete when they are asked.
    random: Option<u64>,
}

impl WorkOrder {
    /// Nothing was given yet. With a seed, events complete late.
    pub fn new(late: Option<u64>) -> Self {
        WorkOrder {
            streams: BTreeMap::new(),
            host: VectorClock::default(),
            blocking: BTreeMap::new(),
            blocks: Blocks::default(),
            random: late.map(|seed| seed ^ 0x9E37_79B9_7F4A_7C15),
        }
    }

    /// A stream that takes turns with a default stream.
    pub fn add_blocking(&mut self, stream: Stream, default: Stream) {
        self.blocking.insert(stream, default);
    }

    /// What a piece of work that a stream is given now comes after.
    fn clock(&mut self, stream: Stream) -> &mut VectorClock {
        let mut before = self.host.clone();
        let others = self.blocking.iter().filter_map(|(&other, &default)| {
            let turns = if stream == default { Some(other) } else { (stream == other).then_some(default) };
            self.streams.get(&turns?)
        });
        others.for_each(|clock| before.join(clock));
        let clock = self.streams.entry(stream).or_default();
        clock.join(&before);
        clock
    }

    /// A stream was given work, or may have been: its place in the order after it.
    fn work(&mut self, stream: Stream) -> u64 {
        self.clock(stream).advance(stream)
    }

    /// An event is recorded on a stream.
    pub fn record(&mut self, stream: Stream) -> Moment {
        self.work(stream);
        Moment(self.clock(stream).clone())
    }

    /// What a stream is given from now on comes after an event.
    pub fn queue_wait(&mut self, stream: Stream, moment: &Moment) {
        self.clock(stream).join(&moment.0);
    }

    /// Whether an event is complete: chance decides, unless the host knows already. It knows from then on.
    pub fn completed(&mut self, moment: &Moment) -> bool {
        if self.host.has(&moment.0) {
            return true;
        }
        if self.is_late() {
            return false;
        }
        self.wait(moment);
        true
    }

    /// Whether a stream is done with what it was given, as [`WorkOrder::completed`].
    pub fn stream_completed(&mut self, stream: Stream) -> bool {
        let moment = Moment(self.clock(stream).clone());
        self.completed(&moment)
    }

    /// The host waits for an event.
    pub fn wait(&mut self, moment: &Moment) {
        self.host.join(&moment.0);
    }

    /// The host waits for a stream.
    pub fn wait_for_stream(&mut self, stream: Stream) {
        let clock = self.clock(stream).clone();
        self.host.join(&clock);
    }

    /// The host waits for everything.
    pub fn wait_for_all(&mut self) {
        self.streams.values().for_each(|clock| self.host.join(clock));
    }

    /// Two in three times.
    fn is_late(&mut self) -> bool {
        let Some(state) = &mut self.random else { return false };
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % 3 != 0
    }

    /// An allocator hands a block out, to be used on a stream.
    ///
    /// # Errors
    /// A part of it is in use, or may still be: some stream was given work on it that the stream does not come after.
    pub fn handed_out(&mut self, start: u64, bytes: u64, stream: Stream) -> Result<(), Violation> {
        self.work(stream);
        let clock = self.clock(stream).clone();
        self.blocks.hand_out(start, bytes, stream, &clock)
    }

    /// A block is used on another stream too until it is given back. An address that lies in no block is ignored.
    pub fn used_on(&mut self, address: u64, stream: Stream) {
        self.blocks.use_on(address, stream);
    }

    /// A stream is given one piece of work that uses a block, and no other is known of. An address that lies in no block is ignored.
    pub fn used_once(&mut self, address: u64, stream: Stream) {
        let number = self.work(stream);
        self.blocks.use_once(address, stream, number);
    }

    /// A block is given back: the streams that use it may have been given work on it up to now. Bytes that it had; 0 if no
    /// block begins there.
    pub fn given_back(&mut self, start: u64) -> u64 {
        let streams = self.blocks.streams_of(start);
        let uses =
            streams.into_iter().filter(|&stream| stream != HOST).map(|stream| (stream, self.work(stream))).collect();
        self.blocks.give_back(start, uses)
    }

    /// A stream reads or writes memory now.
    ///
    /// # Errors
    /// It was a block's, and is none any more.
    pub fn accessed(&mut self, start: u64, bytes: u64, stream: Stream) -> Result<(), Violation> {
        self.blocks.access(start, bytes, stream)
    }

    /// Memory is taken from behind addresses while the device runs.
    ///
    /// # Errors
    /// A block there is in use, or a stream may still use it.
    pub fn unmapped(&mut self, start: u64, bytes: u64) -> Result<(), Violation> {
        self.blocks.unmap(start, bytes, &self.host)
    }

    /// How many blocks were handed out.
    pub fn handed_out_in_all(&self) -> u64 {
        self.blocks.count
    }
}

#[cfg(test)]
mod tests;
