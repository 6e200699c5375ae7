//! What PyTorch's own allocator would have held for the requests that an arena served: the model of it, with and without expandable
//! segments, is asked for the same.

use rustc_hash::FxHashMap;
use stalloc_allocator::{Allocator, Event, GRANULE};
use stalloc_caching::{Caching, Settings};
use stalloc_device::{Address, Counting};

/// Room of the models' devices, bytes: more than any GPU has. With less they would give cached memory back before they run out.
const ROOM: u64 = 1 << 44;

/// The most device memory that PyTorch's allocator would have held so far, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RivalsHeld {
    /// As it is by default.
    pub pytorch: u64,
    /// With expandable segments.
    pub expandable: u64,
}

/// One model.
struct Model {
    allocator: Caching<Counting>,
    /// Where each live block of the arena is, by its first granule.
    live: FxHashMap<u32, Address>,
    peak: u64,
}

impl Model {
    fn new(expandable_segments: bool) -> Self {
        let settings = Settings { expandable_segments, ..Settings::default() };
        Model { allocator: Caching::new(Counting::new(ROOM), settings), live: FxHashMap::default(), peak: 0 }
    }

    /// Asks for the same; `None` where the model fails, which says nothing of PyTorch then.
    fn hear(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Alloc { start, granules, stream } => {
                let bytes = u64::from(granules) * GRANULE;
                let address = self.allocator.malloc(bytes, stream.into()).ok()?;
                self.peak = self.peak.max(self.allocator.reserved());
                match self.live.insert(start, address) {
                    None => Some(()),
                    Some(before) => self.allocator.free(before).ok(),
                }
            }
            Event::Free { start } => match self.live.remove(&start) {
                None => Some(()),
                Some(address) => self.allocator.free(address).ok(),
            },
            Event::GivenBack => self.allocator.empty_cache().ok(),
            Event::StepBegin => Some(()),
        }
    }
}

/// Follows an arena's journal. Takes memory by what is alive.
pub(crate) struct Rivals(Option<[Model; 2]>);

impl Default for Rivals {
    fn default() -> Self {
        Rivals(Some([false, true].map(Model::new)))
    }
}

impl Rivals {
    /// Takes a part of the journal into account; `is_whole`: nothing is missing in it. What misses something says nothing any more.
    pub fn hear(&mut self, events: &[Event], is_whole: bool) {
        let Some(models) = &mut self.0 else { return };
        let mut hear_all = || events.iter().try_for_each(|&event| models.iter_mut().try_for_each(|m| m.hear(event)));
        if !is_whole || hear_all().is_none() {
            self.0 = None;
        }
    }

    /// What they would have held; `None` if they did not hear everything.
    pub fn held(&self) -> Option<RivalsHeld> {
        let [pytorch, expandable] = self.0.as_ref()?;
        Some(RivalsHeld { pytorch: pytorch.peak, expandable: expandable.peak })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn alloc(start: u32, bytes: u64) -> Event {
        Event::Alloc { start, granules: (bytes / GRANULE) as u32, stream: 0 }
    }

    #[test]
    fn pytorch_keeps_what_a_larger_request_cannot_use_and_expandable_segments_grow_it() {
        let mut rivals = Rivals::default();
        rivals.hear(&[alloc(0, 60 * MIB), Event::Free { start: 0 }, alloc(0, 80 * MIB)], true);
        assert_eq!(rivals.held(), Some(RivalsHeld { pytorch: 140 * MIB, expandable: 80 * MIB }));
    }

    #[test]
    fn what_the_program_gives_back_pytorch_would_have_given_back_too() {
        let mut rivals = Rivals::default();
        rivals.hear(&[alloc(0, 60 * MIB), Event::Free { start: 0 }, Event::GivenBack, alloc(0, 80 * MIB)], true);
        assert_eq!(rivals.held(), Some(RivalsHeld { pytorch: 80 * MIB, expandable: 80 * MIB }));
    }

    #[test]
    fn who_missed_a_part_says_nothing() {
        let mut rivals = Rivals::default();
        rivals.hear(&[alloc(0, MIB)], false);
        rivals.hear(&[alloc(8192, MIB)], true);
        assert_eq!(rivals.held(), None);
    }
}
