//! Memory that passes from stream to stream, and epochs: now and then events say which uses are done, so that they are forgotten.

use std::ops::Range;

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
    event: E,
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
        let covers = |flying: &Flying<D::Event>| flying.tick >= tick;
        let is_known = self.flying[usize::from(user)].iter().any(covers);
        if !is_known && self.record(user).is_err() {
            // A stream that takes no event any more: the program has destroyed it.
            return self.wait_for_device();
        }
        let flying = self.flying[usize::from(user)].iter().find(|flying| covers(flying));
        let Some(Flying { tick, event }) = flying else { return Ok(()) };
        self.device.queue_wait(self.streams.handle(stream), event)?;
        self.owners.waits(stream, user, *tick, !is_known);
        Ok(())
    }

    /// Records an event on a stream and keeps it. Of each stream two are kept: the one that will be complete first, and the last.
    fn record(&mut self, stream: u16) -> Result<(), Error> {
        let event = self.device.record(self.streams.handle(stream))?;
        let tick = self.owners.recorded();
        let flying = &mut self.flying[usize::from(stream)];
        flying.truncate(1);
        flying.push(Flying { tick, event });
        Ok(())
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

    /// Events behind the last use of some frames; a stream comes after them from now on.
    pub(super) fn come_after<'a>(
        &mut self,
        handles: impl Iterator<Item = &'a Handle>,
        stream: u16,
    ) -> Result<Vec<D::Event>, Error> {
        let mut users: Vec<u16> = Vec::new();
        for handle in handles {
            let of_handle = self.owners.users(&self.frames.granules_of(handle), stream, true);
            users.extend(of_handle.into_iter().map(|(user, _)| user));
        }
        users.sort_unstable();
        users.dedup();
        let mut events = Vec::with_capacity(users.len());
        for user in users {
            let event = self.device.record(self.streams.handle(user))?;
            let tick = self.owners.recorded();
            if user != stream {
                if self.device.queue_wait(self.streams.handle(stream), &event).is_ok() {
                    self.owners.waits(stream, user, tick, true);
                } else {
                    // A wait of one stream for another can be forbidden; the host's is not.
                    self.device.wait(&event)?;
                    self.owners.completed(user, tick);
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
