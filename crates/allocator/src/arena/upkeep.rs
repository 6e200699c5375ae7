//! What is done now and then: memory goes back, plans come and go.

use stalloc_device::Device;

use super::Arena;
use crate::Error;
use crate::frames::FrameSet;
use crate::script::Script;

impl<D: Device> Arena<D> {
    /// Gives memory that no block uses back to the device, until `bytes` are given back or there is no more. Returns
    /// how many were. While a graph is captured nothing is given back, since the device must not be waited for.
    pub fn give_back(&mut self, bytes: u64) -> Result<u64, Error> {
        if self.order.is_capturing() || self.sleep.is_asleep() {
            return Ok(0);
        }
        self.ledger.give_back();
        self.order.wait_for_device(&mut self.device)?;
        self.poll();
        let of_pools = self.pools.give_back(&mut self.device);
        self.ledger.note_pools(self.pools.reserved());
        Ok(of_pools + self.mapper().give_back(bytes, &(0..0))?)
    }

    /// In tight mode, gives back what no block needed since this was asked last, if it is much. To be asked now and then, between two
    /// steps, for a GPU that others use too. Returns the bytes. O(frames); waits for the device if anything is given back.
    ///
    /// # Errors
    /// [`Error::Device`] if the device refuses.
    pub fn give_back_idle(&mut self) -> Result<u64, Error> {
        let idle = self.memory.idle(&mut self.ledger);
        let is_wanted = idle > 0 && !self.order.is_capturing() && !self.sleep.is_asleep();
        Ok(if is_wanted { self.mapper().give_back(idle, &(0..0))? } else { 0 })
    }

    /// Whether it holds next to nothing but what blocks needed at most, however dear remapping is: for a GPU that others use too. What is
    /// above that goes when the next request needs memory.
    pub fn set_tight(&mut self, tight: bool) {
        self.memory.set_tight(tight);
    }

    /// See [`Device::allow_peer`].
    pub fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        Ok(self.device.allow_peer(peer)?)
    }

    /// Has a plan followed from the next step on (at once, where the program marks no steps), if there is memory for it: false
    /// if there is not. What lives stays where it is. `frames`: those of its offsets, by [`Script::frames`], and of what lives now
    /// and stays. O(1), and so is the step's beginning itself.
    pub fn propose(&mut self, script: Script, frames: &FrameSet) -> bool {
        let fits = script.is_empty()
            || self.place.has_room_for(&script)
                && (self.sleep.is_asleep() || self.memory.is_enough_for(frames, script.expected_peak, &self.ledger));
        if fits {
            self.switch_to(script);
        }
        fits
    }

    fn switch_to(&mut self, script: Script) {
        self.place.propose(script);
        if self.ledger.statistics().steps == 0 {
            self.adopt();
        }
    }

    /// Follows the plan that was proposed, if one was, from now on.
    #[cold]
    pub(super) fn adopt(&mut self) {
        if self.place.adopt() {
            self.ledger.adopt(self.place.planned());
        }
    }

    /// Gives a plan up under which remapping is dear, or more than without one.
    pub(super) fn review(&mut self) {
        if self.memory.review(&self.device, self.place.planned() > 0, &self.ledger) {
            self.ledger.count(1, |counted| &mut counted.withdrawn);
            self.switch_to(Script::default());
        }
    }

    /// The plan before, once it was replaced: whoever proposes plans drops it, so that no request has to.
    pub fn take_retired(&mut self) -> Option<Box<Script>> {
        self.place.take_retired()
    }

    /// Whether it is one allocation.
    pub fn is_solid(&self) -> bool {
        self.frame_bytes().is_none()
    }

    /// Bytes of a piece of memory, for [`Script::frames`]; `None` if the device maps no pages.
    pub fn frame_bytes(&self) -> Option<u64> {
        self.memory.frames().frame()
    }
}
