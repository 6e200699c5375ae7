//! The order of uses: which stream used memory last, which streams come after that, and which blocks wait until others have done with them.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_device::{Device, Error, Stream};

use crate::streams::{Owners, Streams};

mod epochs;
mod handover;
mod pending;

use epochs::Flying;
use pending::Pending;

/// The program's streams, whose memory is, and the events that say which uses are done.
#[derive(Debug)]
pub(super) struct Order<D: Device> {
    streams: Streams,
    owners: Owners,
    /// Events that were recorded on each stream for what passes on to others, by ordinal.
    flying: Vec<Vec<Flying<D::Event>>>,
    /// Streams that blocks were recorded on, by the block's first granule.
    recorded: FxHashMap<u32, Vec<Stream>>,
    /// What blocks that were given back wait for, by stream.
    pending: Vec<Pending<D::Event>>,
    /// On how many streams each of them waits still.
    waits: FxHashMap<u32, u32>,
    /// Blocks that were given back during a capture: their events are recorded after it.
    deferred: Vec<u32>,
    capturing: bool,
}

impl<D: Device> Order<D> {
    /// No stream has used anything.
    pub fn new() -> Self {
        Order {
            streams: Streams::default(),
            owners: Owners::new(),
            flying: Vec::new(),
            recorded: FxHashMap::default(),
            pending: Vec::new(),
            waits: FxHashMap::default(),
            deferred: Vec::new(),
            capturing: false,
        }
    }

    /// A stream's ordinal; `None` if there are too many.
    #[inline]
    pub fn ordinal(&mut self, stream: Stream) -> Option<u16> {
        self.streams.ordinal(stream)
    }

    /// The stream of an ordinal.
    #[inline]
    pub fn handle(&self, ordinal: u16) -> Stream {
        self.streams.handle(ordinal)
    }

    /// The last users of each range, for a search that begins.
    #[inline]
    pub fn search(&mut self) -> &mut Owners {
        self.owners.begin_search();
        &mut self.owners
    }

    /// Whether no other stream's use is known of.
    #[inline]
    pub fn is_alone(&self, stream: u16) -> bool {
        self.owners.is_alone(stream)
    }

    /// A stream is going to use memory: as long as it is the only one, nothing is noted. With another one, all memory is the first one's:
    /// the parts that are `mapped`.
    #[inline]
    pub fn admit<I: Iterator<Item = Range<u32>>>(&mut self, stream: u16, mapped: impl FnOnce() -> I) {
        if !self.is_alone(stream) {
            self.admit_another(stream, mapped);
        }
    }

    /// Lets a stream follow whoever used a range last: what it is given from now on runs after what they were given
    /// until now. One wait for each stream, whatever the range consists of. Says whether one was queued.
    #[inline]
    pub fn take_over(&mut self, device: &mut D, range: &Range<u32>, stream: u16) -> Result<bool, Error> {
        if self.is_alone(stream) { Ok(false) } else { self.follow_users(device, range, stream) }
    }

    /// True while some stream is captured: no event is used then.
    #[inline]
    pub fn is_capturing(&self) -> bool {
        self.capturing
    }

    /// A capture begins or has ended. After it, what was put off is recorded.
    pub fn set_capturing(&mut self, device: &mut D, capturing: bool) {
        self.capturing = capturing;
        if !capturing {
            for start in std::mem::take(&mut self.deferred) {
                self.wait_for_streams(device, start);
            }
        }
    }

    /// New memory is behind a range, for a stream.
    pub fn give(&mut self, range: Range<u32>, stream: u16) {
        self.owners.note(range, stream);
    }

    /// What a range had is no more: nobody uses what will be there.
    pub fn forget(&mut self, range: Range<u32>) {
        self.owners.forget(range);
    }
}

#[cfg(test)]
mod tests;
