//! Memory that passes from stream to stream, and epochs: now and then events say which uses are done, so that they are forgotten.

use std::ops::Range;
use std::sync::Arc;

use stalloc_device::{Device, Error};

use super::{Arena, Block};
use crate::frames::Handle;
use crate::tuning::{epoch, poll_epoch};

/// An epoch ends after so many blocks where a step takes for ever, so that what is noted stays little.
const LONGEST: u32 = 65_536;

/// An event that was recorded on a stream and has not been seen complete.
#[derive(Debug)]
pub(super) struct Flying<E> {
    tick: u64,
    event: Arc<E>,
}

impl<E> Clone for Flying<E> {
    fn clone(&self) -> Self {
        Flying { tick: self.tick, event: Arc::clone(&self.event) }
    }
}

impl<D: Device> Arena<D> {
    /// A stream is going to use memory: as long as it is the only one, nothing is noted.
    #[inline]
    pub(super) fn admit(&mut self, stream: u16) {
        if !self.owners.is_alone(stream) {
            self.admit_another(stream);
        }
    }

    fn admit_another(&mut self, stream: u16) {
        if let Some(alone) = self.owners.admit(stream) {
            for part in self.frames.mapped_parts(0..self.taken.len() as u32).collect::<Vec<_>>() {
                self.owners.note(part, alone);
            }
        }
        let count = usize::from(stream) + 1;
        if self.flying.len() < count {
            self.flying.resize_with(count, Vec::new);
        }
    }

    /// A block of a stream is free from now on: nobody uses it later than now.
    #[inline]
    pub(super) fn note_use(&mut self, block: Block, range: Range<u32>) {
        if !self.owners.is_alone(block.stream) {
            self.note_use_of_several(block, range);
        }
    }

    fn note_use_of_several(&mut self, block: Block, range: Range<u32>) {
        self.admit_another(block.stream);
        let noted = self.owners.note(range, block.stream);
        if noted >= if self.statistics.steps == 0 { epoch() } else { LONGEST } {
            self.end_epoch();
        } else if noted.is_multiple_of(poll_epoch()) {
            self.poll_flying();
        }
    }

    /// Lets a stream follow whoever used a range last: what it is given from now on runs after what they were given
    /// until now. One wait for each stream, whatever the range consists of.
    #[inline]
    pub(super) fn take_over(&mut self, range: &Range<u32>, stream: u16) -> Result<(), Error> {
        if self.owners.is_alone(stream) {
            return Ok(());
        }
        for (user, tick) in self.owners.users(range, stream, false) {
            self.poll_stream(user);
            if !self.owners.is_completed(user, tick) {
                self.follow(stream, user, tick)?;
            }
        }
        Ok(())
    }

    /// Has a stream wait for the uses of another up to a tick.
    fn follow(&mut self, stream: u16, user: u16, tick: u64) -> Result<(), Error> {
        let Ok((Flying { tick, event }, is_new)) = self.event_behind(user, tick) else {
            // A stream that takes no event any more: the program has destroyed it.
            return self.wait_for_device();
        };
        self.device.queue_wait(self.streams.handle(stream), &event)?;
        self.owners.waits(stream, user, tick, is_new);
        Ok(())
    }

    /// An event behind a stream's uses up to a tick: one that was recorded before, or a new one, and which it is.
    fn event_behind(&mut self, stream: u16, tick: u64) -> Result<(Flying<D::Event>, bool), Error> {
        match self.flying[usize::from(stream)].iter().find(|flying| flying.tick >= tick) {
            Some(flying) => Ok((flying.clone(), false)),
            None => Ok((self.record(stream)?, true)),
        }
    }

    /// Records an event on a stream and keeps it. Of each stream two are kept: the one that will be complete first, and the last.
    fn record(&mut self, stream: u16) -> Result<Flying<D::Event>, Error> {
        let event = Arc::new(self.device.record(self.streams.handle(stream))?);
        let recorded = Flying { tick: self.owners.recorded(), event };
        let flying = &mut self.flying[usize::from(stream)];
        flying.truncate(1);
        flying.push(recorded.clone());
        Ok(recorded)
    }

    /// Asks a stream's events whether they are complete. One that cannot be asked is not.
    fn poll_stream(&mut self, stream: u16) {
        let flying = &mut self.flying[usize::from(stream)];
        while let Some(first) = flying.first()
            && self.device.completed(&first.event).unwrap_or(false)
        {
            self.owners.completed(stream, first.tick);
            flying.remove(0);
        }
    }

    fn poll_flying(&mut self) {
        if self.capturing {
            return;
        }
        for stream in 0..self.flying.len() {
            self.poll_stream(stream as u16);
        }
        self.owners.drop_done();
    }

    /// An epoch ends: one event on each stream whose uses should be known to be done.
    pub(super) fn end_epoch(&mut self) {
        if self.capturing {
            return;
        }
        self.poll_flying();
        for (stream, tick) in self.owners.end_epoch() {
            if self.flying[usize::from(stream)].iter().all(|flying| flying.tick < tick) {
                // One that takes no event is asked again after the next epoch.
                let _ = self.record(stream);
            }
        }
    }

    /// Events behind the last use of some frames; a stream comes after them from now on. What is done by now needs none, and one that
    /// was recorded before will do: remaps come in bursts.
    pub(super) fn come_after<'a>(
        &mut self,
        handles: impl Iterator<Item = &'a Handle>,
        stream: u16,
    ) -> Result<Vec<Arc<D::Event>>, Error> {
        let mut users: Vec<(u16, u64)> = Vec::new();
        for handle in handles {
            users.extend(self.owners.users(&self.frames.granules_of(handle), stream, true));
        }
        // Of each stream the last use.
        users.sort_unstable_by(|one, other| other.cmp(one));
        users.dedup_by_key(|(user, _)| *user);
        let mut events = Vec::with_capacity(users.len());
        for (user, tick) in users {
            self.poll_stream(user);
            if self.owners.is_completed(user, tick) {
                continue;
            }
            let (Flying { tick: recorded, event }, is_new) = self.event_behind(user, tick)?;
            if !self.owners.comes_after(stream, user, tick) {
                if self.device.queue_wait(self.streams.handle(stream), &event).is_ok() {
                    self.owners.waits(stream, user, recorded, is_new);
                } else {
                    // A wait of one stream for another can be forbidden; the host's is not.
                    self.device.wait(&event)?;
                    self.owners.completed(user, recorded);
                }
            }
            events.push(event);
        }
        Ok(events)
    }

    /// Waits until the device has done all that it was given: no memory is anybody's then.
    pub(super) fn wait_for_device(&mut self) -> Result<(), Error> {
        self.device.synchronize()?;
        self.flying.iter_mut().for_each(Vec::clear);
        self.owners.all_completed();
        Ok(())
    }
}
