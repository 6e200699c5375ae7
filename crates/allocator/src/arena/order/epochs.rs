//! Epochs: now and then events say which uses are done, so that they are forgotten.

use std::ops::Range;
use std::sync::Arc;

use stalloc_device::{Device, Error};

use super::Order;
use crate::tuning::{epoch, poll_epoch};

/// An epoch ends after so many blocks where a step takes for ever, so that what is noted stays little.
const LONGEST: u32 = 65_536;

/// An event that was recorded on a stream and has not been seen complete.
#[derive(Debug)]
pub(super) struct Flying<E> {
    pub tick: u64,
    pub event: Arc<E>,
}

impl<E> Clone for Flying<E> {
    fn clone(&self) -> Self {
        Flying { tick: self.tick, event: Arc::clone(&self.event) }
    }
}

impl<D: Device> Order<D> {
    /// As [`Order::admit`], where other streams are known of.
    pub(super) fn admit_another<I: Iterator<Item = Range<u32>>>(&mut self, stream: u16, mapped: impl FnOnce() -> I) {
        if let Some(alone) = self.owners.admit(stream) {
            for part in mapped() {
                self.owners.note(part, alone);
            }
        }
        let count = usize::from(stream) + 1;
        if self.flying.len() < count {
            self.flying.resize_with(count, Vec::new);
        }
    }

    /// Notes that a stream, one of several, has used a range until now, after it was [admitted](Self::admit). `by_steps`: an epoch ends
    /// with a step.
    pub fn note_use(&mut self, device: &mut D, range: Range<u32>, stream: u16, by_steps: bool) {
        let noted = self.owners.note(range, stream);
        if noted >= if by_steps { LONGEST } else { epoch() } {
            self.end_epoch(device);
        } else if noted.is_multiple_of(poll_epoch()) {
            self.poll_flying(device);
        }
    }

    /// Records an event on a stream and keeps it. Of each stream two are kept: the one that will be complete first, and the last.
    pub(super) fn record(&mut self, device: &mut D, stream: u16) -> Result<Flying<D::Event>, Error> {
        let event = Arc::new(device.record(self.streams.handle(stream))?);
        let recorded = Flying { tick: self.owners.recorded(), event };
        let flying = &mut self.flying[usize::from(stream)];
        flying.truncate(1);
        flying.push(recorded.clone());
        Ok(recorded)
    }

    /// Asks a stream's events whether they are complete. One that cannot be asked is not.
    pub(super) fn poll_stream(&mut self, device: &mut D, stream: u16) {
        let flying = &mut self.flying[usize::from(stream)];
        while let Some(first) = flying.first()
            && device.completed(&first.event).unwrap_or(false)
        {
            self.owners.completed(stream, first.tick);
            flying.remove(0);
        }
    }

    fn poll_flying(&mut self, device: &mut D) {
        if self.capturing {
            return;
        }
        for stream in 0..self.flying.len() {
            self.poll_stream(device, stream as u16);
        }
        self.owners.drop_done();
    }

    /// An epoch ends: one event on each stream whose uses should be known to be done.
    pub fn end_epoch(&mut self, device: &mut D) {
        if self.capturing {
            return;
        }
        self.poll_flying(device);
        for (stream, tick) in self.owners.end_epoch() {
            if self.flying[usize::from(stream)].iter().all(|flying| flying.tick < tick) {
                // One that takes no event is asked again after the next epoch.
                let _ = self.record(device, stream);
            }
        }
    }

    /// Waits until the device has done all that it was given: no memory is anybody's then.
    pub fn wait_for_device(&mut self, device: &mut D) -> Result<(), Error> {
        device.synchronize()?;
        self.flying.iter_mut().for_each(Vec::clear);
        self.owners.all_completed();
        Ok(())
    }
}
