//! What PyTorch's own allocator would have held for the requests that an arena served: the model of it, with and without expandable
//! segments, is asked for the same.

use rustc_hash::FxHashMap;
use stalloc_allocator::{Allocator, Error, GRANULE, JournalEvent};
use stalloc_device::{Address, Counting};

use crate::{Caching, Settings};

/// The most device memory that PyTorch's allocator would have held so far, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RivalsHeld {
    /// As it is by default.
    pub pytorch: u64,
    /// With expandable segments.
    pub expandable: u64,
    /// Whether it, and it with expandable segments, would have run out of memory with the room that the job had.
    pub runs_out: [bool; 2],
}

/// What both hold now, as far as the journal was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RivalsNow {
    /// Bytes that the better of those holds that did not run out of memory; 0 if both did.
    pub least: u64,
    /// How often the arena had given back what it cached.
    pub given_back: u64,
}

/// One model.
struct Model {
    allocator: Caching<Counting>,
    /// Where each live block of the arena is, by its first granule.
    live: FxHashMap<u32, Address>,
    peak: u64,
    /// It ran out of memory, and the job would have ended there.
    runs_out: bool,
}

impl Model {
    fn new(expandable_segments: bool, room: u64) -> Self {
        let allocator = Caching::new(Counting::new(room), Settings { expandable_segments, ..Settings::default() });
        Model { allocator, live: FxHashMap::default(), peak: 0, runs_out: false }
    }

    /// Asks for the same; `None` where the model fails, which says nothing of PyTorch then.
    fn hear(&mut self, event: JournalEvent) -> Option<()> {
        match event {
            _ if self.runs_out => Some(()),
            JournalEvent::Alloc { start, granules, stream } => {
                let bytes = u64::from(granules) * GRANULE;
                // As PyTorch it gives back what it caches and asks once more before it fails.
                let address = match self.allocator.malloc(bytes, stream.into()) {
                    Err(Error::OutOfMemory { .. }) => {
                        (self.runs_out, self.live) = (true, FxHashMap::default());
                        return Some(());
                    }
                    other => other.ok()?,
                };
                self.peak = self.peak.max(self.allocator.reserved());
                match self.live.insert(start, address) {
                    None => Some(()),
                    Some(before) => self.allocator.free(before).ok(),
                }
            }
            JournalEvent::Free { start } => match self.live.remove(&start) {
                None => Some(()),
                Some(address) => self.allocator.free(address).ok(),
            },
            JournalEvent::GivenBack => self.allocator.empty_cache().ok(),
            JournalEvent::StepBegin => Some(()),
        }
    }
}

/// Follows an arena's journal. Takes memory by what is alive, and O(log n) time for an event.
pub struct Rivals {
    models: Option<[Model; 2]>,
    given_back: u64,
}

impl Rivals {
    /// `room`: bytes that the device had free when the arena was opened.
    pub fn new(room: u64) -> Self {
        Rivals { models: Some([false, true].map(|expandable| Model::new(expandable, room))), given_back: 0 }
    }

    /// Takes a part of the journal into account; `is_whole`: nothing is missing in it. What misses something says nothing any more.
    pub fn hear(&mut self, events: &[JournalEvent], is_whole: bool) {
        let Some(models) = &mut self.models else { return };
        let mut hear_all = || {
            events.iter().try_for_each(|&event| {
                self.given_back += u64::from(event == JournalEvent::GivenBack);
                models.iter_mut().try_for_each(|model| model.hear(event))
            })
        };
        if !is_whole || hear_all().is_none() {
            self.models = None;
        }
    }

    /// What they would have held; `None` if they did not hear everything.
    pub fn held(&self) -> Option<RivalsHeld> {
        let [pytorch, expandable] = self.models.as_ref()?;
        let runs_out = [pytorch.runs_out, expandable.runs_out];
        Some(RivalsHeld { pytorch: pytorch.peak, expandable: expandable.peak, runs_out })
    }

    /// What they hold now; `None` if they did not hear everything.
    pub fn now(&self) -> Option<RivalsNow> {
        let alive = self.models.as_ref()?.iter().filter(|model| !model.runs_out);
        let least = alive.map(|model| model.allocator.reserved()).min().unwrap_or(0);
        Some(RivalsNow { least, given_back: self.given_back })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn alloc(start: u32, bytes: u64) -> JournalEvent {
        JournalEvent::Alloc { start, granules: (bytes / GRANULE) as u32, stream: 0 }
    }

    #[test]
    fn pytorch_keeps_what_a_larger_request_cannot_use_and_expandable_segments_grow_it() {
        let mut rivals = Rivals::new(1 << 44);
        rivals.hear(&[alloc(0, 60 * MIB), JournalEvent::Free { start: 0 }, alloc(0, 80 * MIB)], true);
        assert_eq!(
            rivals.held(),
            Some(RivalsHeld { pytorch: 140 * MIB, expandable: 80 * MIB, ..RivalsHeld::default() })
        );
    }

    #[test]
    fn what_the_better_holds_now_is_known_and_falls_when_it_is_given_back() {
        let mut rivals = Rivals::new(1 << 44);
        rivals.hear(&[alloc(0, 60 * MIB), JournalEvent::Free { start: 0 }, alloc(0, 80 * MIB)], true);
        assert_eq!(rivals.now(), Some(RivalsNow { least: 80 * MIB, given_back: 0 }));
        rivals.hear(&[JournalEvent::Free { start: 0 }, JournalEvent::GivenBack, alloc(0, 20 * MIB)], true);
        assert_eq!(rivals.now(), Some(RivalsNow { least: 20 * MIB, given_back: 1 }));
        rivals.hear(&[], false);
        assert_eq!(rivals.now(), None, "a part is missing");
    }

    #[test]
    fn what_the_program_gives_back_pytorch_would_have_given_back_too() {
        let mut rivals = Rivals::new(1 << 44);
        rivals.hear(
            &[alloc(0, 60 * MIB), JournalEvent::Free { start: 0 }, JournalEvent::GivenBack, alloc(0, 80 * MIB)],
            true,
        );
        assert_eq!(
            rivals.held(),
            Some(RivalsHeld { pytorch: 80 * MIB, expandable: 80 * MIB, ..RivalsHeld::default() })
        );
    }

    #[test]
    fn with_the_room_that_the_job_had_pytorch_gives_back_what_it_caches_and_where_that_is_too_little_it_ends() {
        // A tensor that is made anew, larger each time: the one before it lives until it is there.
        let grown = |steps: u32| {
            let at = |step: u32| alloc((step % 2) << 20, u64::from(step + 1) * 20 * MIB);
            (1..steps)
                .flat_map(|step| [at(step), JournalEvent::Free { start: ((step - 1) % 2) << 20 }])
                .collect::<Vec<_>>()
        };
        let held = |steps: u32| {
            let mut rivals = Rivals::new(400 * MIB);
            rivals.hear(&[alloc(0, 20 * MIB)], true);
            rivals.hear(&grown(steps), true);
            rivals.held().unwrap()
        };
        assert_eq!(held(9).runs_out, [false; 2], "180 and 160 MiB at once");
        assert!(held(9).pytorch <= 400 * MIB, "what it caches is given back");
        let more = held(12);
        assert_eq!(more.runs_out, [true; 2], "220 and 200 MiB at once");
        assert!(more.pytorch <= 400 * MIB && more.expandable <= 400 * MIB);
    }

    #[test]
    fn who_missed_a_part_says_nothing() {
        let mut rivals = Rivals::new(1 << 44);
        rivals.hear(&[alloc(0, MIB)], false);
        rivals.hear(&[alloc(8192, MIB)], true);
        assert_eq!(rivals.held(), None);
    }
}
