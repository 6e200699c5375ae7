//! The statistics of one device, counted as PyTorch counts them.

/// Requests up to this size, rounded, are PyTorch's small pool's.
const SMALL: u64 = 1 << 20;

/// A quantity that rises and falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// The most since the peaks were reset.
    pub peak: u64,
    /// All that was added.
    pub allocated: u64,
    /// All that was taken away.
    pub freed: u64,
}

impl Stat {
    fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    fn take(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed += amount;
    }

    /// Becomes `value`.
    pub fn set(&mut self, value: u64) {
        if value > self.current {
            self.add(value - self.current);
        } else {
            self.take(self.current - value);
        }
    }
}

/// A quantity of all requests, of small and of large ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// All, bytes or a count.
    pub all: Stat,
    /// Of the small pool.
    pub small: Stat,
    /// Of the large pool.
    pub large: Stat,
}

impl Stats {
    fn pool(&mut self, small: bool) -> &mut Stat {
        if small { &mut self.small } else { &mut self.large }
    }

    fn add(&mut self, small: bool, amount: u64) {
        self.all.add(amount);
        self.pool(small).add(amount);
    }

    fn take(&mut self, small: bool, amount: u64) {
        self.all.take(amount);
        self.pool(small).take(amount);
    }

    /// Becomes what is held for small and for large requests.
    pub fn set(&mut self, small: u64, large: u64) {
        self.all.set(small + large);
        self.small.set(small);
        self.large.set(large);
    }

    /// Was never less than `other`.
    fn cover(&mut self, other: &Stats) {
        for (stat, other) in self.each().into_iter().zip([other.all, other.small, other.large]) {
            stat.peak = stat.peak.max(other.peak);
            stat.allocated = stat.allocated.max(other.allocated);
            stat.freed = stat.allocated.saturating_sub(stat.current);
        }
    }

    fn each(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small, &mut self.large]
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

/// Everything that is counted as it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Blocks that the program holds.
    pub allocation: Stats,
    /// Their bytes, rounded.
    pub allocated_bytes: Stats,
    /// Their bytes as asked for.
    pub requested_bytes: Stats,
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
    pub const fn new() -> Self {
        const STAT: Stat = Stat { current: 0, peak: 0, allocated: 0, freed: 0 };
        const STATS: Stats = Stats { all: STAT, small: STAT, large: STAT };
        Figures {
            allocation: STATS,
            allocated_bytes: STATS,
            requested_bytes: STATS,
            segment: STATS,
            reserved_bytes: STATS,
            active: STATS,
            active_bytes: STATS,
            inactive_split: STATS,
            inactive_split_bytes: STATS,
            out_of_memory: 0,
            waits: 0,
            looked_at: (0, 0),
            fallback: [Held { blocks: 0, bytes: 0 }; 2],
        }
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

    /// A block is handed out.
    pub fn add(&mut self, size: u64, requested: u64) {
        let small = size <= SMALL;
        for (stats, amount) in
            [(&mut self.allocation, 1), (&mut self.allocated_bytes, size), (&mut self.requested_bytes, requested)]
        {
            stats.add(small, amount);
        }
    }

    /// A block is given back.
    pub fn take(&mut self, size: u64, requested: u64) {
        let small = size <= SMALL;
        for (stats, amount) in
            [(&mut self.allocation, 1), (&mut self.allocated_bytes, size), (&mut self.requested_bytes, requested)]
        {
            stats.take(small, amount);
        }
    }

    /// Active and inactive blocks, small and large, as they are now. What was held between two looks was active.
    pub fn look(&mut self, active: [Held; 2], inactive: [Held; 2]) {
        self.active.set(active[0].blocks, active[1].blocks);
        self.active_bytes.set(active[0].bytes, active[1].bytes);
        self.inactive_split.set(inactive[0].blocks, inactive[1].blocks);
        self.inactive_split_bytes.set(inactive[0].bytes, inactive[1].bytes);
        self.active.cover(&self.allocation);
        self.active_bytes.cover(&self.allocated_bytes);
    }

    fn every(&mut self) -> [&mut Stats; 9] {
        [
            &mut self.allocation,
            &mut self.allocated_bytes,
            &mut self.requested_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.active,
            &mut self.active_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ]
    }

    /// Peaks start again from what is now.
    pub fn reset_peaks(&mut self) {
        for stats in self.every() {
            for stat in stats.each() {
                stat.peak = stat.current;
            }
        }
    }

    /// What was added and taken away is counted from 0 again.
    pub fn reset_accumulated(&mut self) {
        for stats in self.every() {
            for stat in stats.each() {
                (stat.allocated, stat.freed) = (0, 0);
            }
        }
        (self.out_of_memory, self.waits) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_of_the_sum_and_survive_what_is_given_back() {
        let mut figures = Figures::new();
        figures.add(512, 100);
        figures.add(4 << 20, 4 << 20);
        figures.take(4 << 20, 4 << 20);
        figures.add(1 << 20, 1 << 20);
        let bytes = figures.allocated_bytes;
        assert_eq!((bytes.all.current, bytes.all.peak), (512 + (1 << 20), 512 + (4 << 20)));
        assert_eq!((bytes.small.current, bytes.large.current), (512 + (1 << 20), 0));
        assert_eq!(bytes.all.allocated - bytes.all.freed, bytes.all.current);
        assert_eq!((figures.requested_bytes.small.current, figures.allocation.all.current), (100 + (1 << 20), 2));
        figures.reset_peaks();
        assert_eq!(figures.allocated_bytes.all.peak, 512 + (1 << 20));
        figures.reset_accumulated();
        assert_eq!((figures.allocated_bytes.all.allocated, figures.allocated_bytes.all.freed), (0, 0));
    }

    #[test]
    fn reserved_is_the_arenas_and_the_fallbacks_at_once() {
        let mut figures = Figures::new();
        figures.reserve(10, 0, || unreachable!("the fallback holds what it held"));
        figures.reserve(10, 5, || [Held { blocks: 1, bytes: 2 }, Held { blocks: 1, bytes: 3 }]);
        assert_eq!((figures.reserved_bytes.all.current, figures.segment.all.current), (15, 3));
        figures.reserve(4, 5, || unreachable!("the fallback holds what it held"));
        assert_eq!((figures.reserved_bytes.all.current, figures.reserved_bytes.all.peak), (9, 15));
        assert_eq!((figures.reserved_bytes.small.current, figures.reserved_bytes.large.current), (2, 7));
    }
}
