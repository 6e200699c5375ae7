//! Memory that passes from stream to stream: who is given it waits for whoever used it last.

use std::ops::Range;
use std::sync::Arc;

use stalloc_device::{Device, Error};

use super::Order;
use super::epochs::Flying;

impl<D: Device> Order<D> {
    /// As [`Order::take_over`], where other streams are known of.
    pub(super) fn follow_users(&mut self, device: &mut D, range: &Range<u32>, stream: u16) -> Result<bool, Error> {
        let mut waits = false;
        for (user, tick) in self.owners.users(range, stream, false) {
            self.poll_stream(device, user);
            if !self.owners.is_completed(user, tick) {
                self.follow(device, stream, user, tick)?;
                waits = true;
            }
        }
        Ok(waits)
    }

    /// Has a stream wait for the uses of another up to a tick.
    fn follow(&mut self, device: &mut D, stream: u16, user: u16, tick: u64) -> Result<(), Error> {
        let Ok((Flying { tick, event }, is_new)) = self.event_behind(device, user, tick) else {
            // A stream that takes no event any more: the program has destroyed it.
            return self.wait_for_device(device);
        };
        device.queue_wait(self.streams.handle(stream), &event)?;
        self.owners.waits(stream, user, tick, is_new);
        Ok(())
    }

    /// An event behind a stream's uses up to a tick: one that was recorded before, or a new one, and which it is.
    fn event_behind(&mut self, device: &mut D, stream: u16, tick: u64) -> Result<(Flying<D::Event>, bool), Error> {
        match self.flying[usize::from(stream)].iter().find(|flying| flying.tick >= tick) {
            Some(flying) => Ok((flying.clone(), false)),
            None => Ok((self.record(device, stream)?, true)),
        }
    }

    /// Events behind the last use of some ranges; a stream comes after them from now on. What is done by now needs none, and one that
    /// was recorded before will do: remaps come in bursts.
    pub fn come_after(
        &mut self,
        device: &mut D,
        ranges: impl Iterator<Item = Range<u32>>,
        stream: u16,
    ) -> Result<Vec<Arc<D::Event>>, Error> {
        let mut users: Vec<(u16, u64)> = Vec::new();
        for range in ranges {
            users.extend(self.owners.users(&range, stream, true));
        }
        // Of each stream the last use.
        users.sort_unstable_by(|one, other| other.cmp(one));
        users.dedup_by_key(|(user, _)| *user);
        let mut events = Vec::with_capacity(users.len());
        for (user, tick) in users {
            self.poll_stream(device, user);
            if self.owners.is_completed(user, tick) {
                continue;
            }
            let (Flying { tick: recorded, event }, is_new) = self.event_behind(device, user, tick)?;
            if !self.owners.comes_after(stream, user, tick) {
                if device.queue_wait(self.streams.handle(stream), &event).is_ok() {
                    self.owners.waits(stream, user, recorded, is_new);
                } else {
                    // A wait of one stream for another can be forbidden; the host's is not.
                    device.wait(&event)?;
                    self.owners.completed(user, recorded);
                }
            }
            events.push(event);
        }
        Ok(events)
    }
}
