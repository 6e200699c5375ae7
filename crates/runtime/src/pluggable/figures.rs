//! The statistics of one device, arena and fallback together, counted as PyTorch counts its own.

use crate::counters::{Counter, Counters, Pool};

/// A quantity of all requests, of small and of large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// All, bytes or a count.
    pub all: Counter,
    /// Of the small pool.
    pub small: Counter,
    /// Of the large pool.
    pub large: Counter,
}

impl Stats {
    const ZERO: Stats = Stats { all: Counter::ZERO, small: Counter::ZERO, large: Counter::ZERO };

    /// Becomes what there is of small and of large ones.
    fn set(&mut self, small: u64, large: u64) {
        self.all.set(small + large);
        self.small.set(small);
        self.large.set(large);
    }

    /// The same with so much of what counted as large as small. The large ones' peak stays: it is the most that it can have been.
    fn with_small(mut self, bytes: u64) -> Stats {
        let bytes = bytes.min(self.large.current);
        self.small.current += bytes;
        self.small.allocated += bytes;
        self.small.peak = self.small.peak.max(self.small.current);
        self.large.current -= bytes;
        self.large.freed += bytes;
        self
    }

    fn each(&mut self) -> [&mut Counter; 3] {
        [&mut self.all, &mut self.small, &mut self.large]
    }

    /// The same with as much more as there is of small and of large ones now.
    fn with(mut self, small: u64, large: u64) -> Stats {
        for (counter, now) in self.each().into_iter().zip([small + large, small, large]) {
            let more = now.saturating_sub(counter.current);
            counter.current += more;
            counter.peak = counter.peak.max(counter.current);
            counter.freed = counter.freed.saturating_sub(more);
        }
        self
    }
}

/// So many things, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub blocks: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// What is counted of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Blocks that the program holds, counted as they come and go.
    held: Counters,
    /// Segments that are held.
    pub segment: Stats,
    /// Device memory that is held, bytes.
    pub reserved_bytes: Stats,
    /// Blocks that the program holds or that another stream has not done with. As of when they were last looked at.
    pub active: Stats,
    /// Their bytes.
    pub active_bytes: Stats,
    /// Free blocks of segments that cannot be given back, as of then.
    pub inactive_split: Stats,
    /// Their bytes.
    pub inactive_split_bytes: Stats,
    /// Requests that could not be served.
    pub out_of_memory: u64,
    /// Times that everything was waited for to give cached memory back.
    pub waits: u64,
    /// What the arena and the fallback held when their reserved memory was last looked at, bytes.
    looked_at: (u64, u64),
    /// Segments and bytes of the fallback's small and large pools then.
    fallback: [Held; 2],
}

impl Figures {
    /// Nothing happened yet.
    pub const ZERO: Figures = Figures {
        held: Counters::NONE,
        segment: Stats::ZERO,
        reserved_bytes: Stats::ZERO,
        active: Stats::ZERO,
        active_bytes: Stats::ZERO,
        inactive_split: Stats::ZERO,
        inactive_split_bytes: Stats::ZERO,
        out_of_memory: 0,
        waits: 0,
        looked_at: (0, 0),
        fallback: [Held { blocks: 0, bytes: 0 }; 2],
    };

    /// Blocks that the program holds.
    pub fn allocation(&self) -> Stats {
        self.of(|pool| pool.blocks)
    }

    /// Their bytes, rounded.
    pub fn allocated_bytes(&self) -> Stats {
        self.of(|pool| pool.bytes)
    }

    /// Their bytes as asked for.
    pub fn requested_bytes(&self) -> Stats {
        self.of(|pool| pool.requested)
    }

    fn of(&self, quantity: fn(&Pool) -> Counter) -> Stats {
        Stats { all: quantity(&self.held.all), small: quantity(&self.held.small), large: quantity(&self.held.large) }
    }

    /// A block is handed out.
    #[inline]
    pub fn add(&mut self, size: u64, requested: u64) {
        self.held.add(size, requested);
    }

    /// A block is given back that was handed out.
    #[inline]
    pub fn remove(&mut self, size: u64, requested: u64) {
        self.held.remove(size, requested);
    }

    /// The arena and the fallback hold so much now; `fallback_pools` tells how the fallback's memory is shared out
    /// between its small and large pools, and is only asked if that may have changed.
    #[inline]
    pub fn reserve(&mut self, arena: u64, fallback: u64, fallback_pools: impl FnOnce() -> [Held; 2]) {
        if self.looked_at == (arena, fallback) {
            return;
        }
        if self.looked_at.1 != fallback {
            self.fallback = fallback_pools();
        }
        self.looked_at = (arena, fallback);
        let [small, large] = self.fallback;
        // The arena counts as one segment of the large pool.
        self.segment.set(small.blocks, large.blocks + u64::from(arena > 0));
        self.reserved_bytes.set(small.bytes, large.bytes + arena);
    }

    /// Active and inactive blocks, small and large, as they are now. What was held between two looks was active.
    pub fn look(&mut self, active: [Held; 2], inactive: [Held; 2]) {
        self.active = self.allocation().with(active[0].blocks, active[1].blocks);
        self.active_bytes = self.allocated_bytes().with(active[0].bytes, active[1].bytes);
        self.inactive_split.set(inactive[0].blocks, inactive[1].blocks);
        self.inactive_split_bytes.set(inactive[0].bytes, inactive[1].bytes);
    }

    /// The figures with so many of the arena's reserved bytes under small blocks.
    pub fn with_small(self, bytes: u64) -> Figures {
        Figures { reserved_bytes: self.reserved_bytes.with_small(bytes), ..self }
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Counter> {
        let stats =
            [&mut self.segment, &mut self.reserved_bytes, &mut self.inactive_split, &mut self.inactive_split_bytes];
        stats.into_iter().flat_map(Stats::each)
    }

    /// Peaks start again from what is now.
    pub fn restart_peaks(&mut self) {
        self.held.restart_peaks();
        self.each().for_each(Counter::restart_peak);
    }

    /// What came and went is counted from 0 again.
    pub fn restart_totals(&mut self) {
        self.held.restart_totals();
        self.each().for_each(Counter::restart_totals);
        (self.out_of_memory, self.waits) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_of_the_sum_and_survive_what_is_given_back() {
        let mut figures = Figures::ZERO;
        figures.add(512, 100);
        figures.add(4 << 20, 4 << 20);
        figures.remove(4 << 20, 4 << 20);
        figures.add(1 << 20, 1 << 20);
        let bytes = figures.allocated_bytes();
        assert_eq!((bytes.all.current, bytes.all.peak), (512 + (1 << 20), 512 + (4 << 20)));
        assert_eq!((bytes.small.current, bytes.large.current), (512 + (1 << 20), 0));
        assert_eq!(bytes.all.allocated - bytes.all.freed, bytes.all.current);
        assert_eq!(figures.requested_bytes().small.current, 100 + (1 << 20));
        assert_eq!(figures.allocation().all.current, 2);
        figures.restart_peaks();
        assert_eq!(figures.allocated_bytes().all.peak, 512 + (1 << 20));
        figures.restart_totals();
        assert_eq!((figures.allocated_bytes().all.allocated, figures.allocated_bytes().all.freed), (0, 0));
    }

    #[test]
    fn reserved_is_the_arenas_and_the_fallbacks_at_once() {
        let mut figures = Figures::ZERO;
        figures.reserve(10, 0, || unreachable!("the fallback holds what it held"));
        figures.reserve(10, 5, || [Held { blocks: 1, bytes: 2 }, Held { blocks: 1, bytes: 3 }]);
        assert_eq!((figures.reserved_bytes.all.current, figures.segment.all.current), (15, 3));
        figures.reserve(4, 5, || unreachable!("the fallback holds what it held"));
        assert_eq!((figures.reserved_bytes.all.current, figures.reserved_bytes.all.peak), (9, 15));
        assert_eq!((figures.reserved_bytes.small.current, figures.reserved_bytes.large.current), (2, 7));
        let by_pool = figures.with_small(1).reserved_bytes;
        assert_eq!((by_pool.all.current, by_pool.small.current, by_pool.large.current), (9, 3, 6));
        assert_eq!(by_pool.large.allocated - by_pool.large.freed, 6);
        figures.restart_peaks();
        assert_eq!(figures.reserved_bytes.all.peak, 9);
    }

    #[test]
    fn what_the_program_holds_is_active_also_between_two_looks() {
        let mut figures = Figures::ZERO;
        figures.add(4096, 4096);
        figures.remove(4096, 4096);
        figures.look([Held { blocks: 1, bytes: 512 }, Held::default()], [Held::default(); 2]);
        let active = figures.active_bytes.all;
        assert_eq!((active.current, active.peak, active.allocated - active.freed), (512, 4096, 512));
    }
}
