//! The arena's share of what `torch.cuda.memory_stats()` tells, counted as PyTorch's allocator counts its own.

use std::time::Duration;

/// Blocks up to this size count as small, bytes: PyTorch's border between its two pools.
pub const SMALL: u64 = 1 << 20;

/// One quantity: what there is, the most there was, and what came and went.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Now.
    pub current: u64,
    /// The most at once.
    pub peak: u64,
    /// All that ever came.
    pub allocated: u64,
    /// All that ever went.
    pub freed: u64,
}

impl Counter {
    /// So much came.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    /// So much went that had come.
    #[inline]
    pub fn remove(&mut self, amount: u64) {
        self.current -= amount;
        self.freed += amount;
    }

    /// There is this much now.
    #[inline]
    pub fn set(&mut self, amount: u64) {
        if amount > self.current {
            self.add(amount - self.current);
        } else {
            self.remove(self.current - amount);
        }
    }

    /// The peak begins again at what there is.
    pub fn restart_peak(&mut self) {
        self.peak = self.current;
    }

    /// What came and went is counted from here.
    pub fn restart_totals(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }
}

/// How long calls of one kind took, microseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// All together.
    pub total: u64,
    /// The longest.
    pub longest: u64,
    /// The shortest; 0 before the first.
    pub shortest: u64,
    /// How many.
    pub count: u64,
}

impl Durations {
    /// One more call took so long.
    pub fn add(&mut self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.total = self.total.saturating_add(took);
        self.count += 1;
        self.longest = self.longest.max(took);
        self.shortest = if self.shortest == 0 { took } else { self.shortest.min(took) };
    }

    /// The longest and the shortest are those from here on.
    pub fn restart_extremes(&mut self) {
        (self.longest, self.shortest) = (0, 0);
    }

    /// Calls are counted from here.
    pub fn restart_totals(&mut self) {
        (self.total, self.count) = (0, 0);
    }
}

/// Counts blocks of one class: how many, their rounded bytes, the bytes that were asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// How many.
    pub blocks: Counter,
    /// Their bytes, rounded up.
    pub bytes: Counter,
    /// The bytes asked for.
    pub requested: Counter,
}

impl PoolCounters {
    #[inline]
    fn add(&mut self, bytes: u64, requested: u64) {
        self.blocks.add(1);
        self.bytes.add(bytes);
        self.requested.add(requested);
    }

    #[inline]
    fn remove(&mut self, bytes: u64, requested: u64) {
        self.blocks.remove(1);
        self.bytes.remove(bytes);
        self.requested.remove(requested);
    }

    fn each(&mut self, change: fn(&mut Counter)) {
        [&mut self.blocks, &mut self.bytes, &mut self.requested].into_iter().for_each(change);
    }
}

/// Everything that is counted of one arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All blocks.
    pub all: PoolCounters,
    /// Those of at most 1 MiB.
    pub small: PoolCounters,
    /// The others.
    pub large: PoolCounters,
    /// Device memory behind the arena, bytes.
    pub reserved: Counter,
    /// Times that this became more.
    pub grown: u64,
    /// Times that it became less.
    pub shrunk: u64,
}

impl Counters {
    /// Nothing so far, for a constant.
    pub const fn new() -> Counters {
        let none = Counter { current: 0, peak: 0, allocated: 0, freed: 0 };
        let empty = PoolCounters { blocks: none, bytes: none, requested: none };
        Counters { all: empty, small: empty, large: empty, reserved: none, grown: 0, shrunk: 0 }
    }

    #[inline]
    fn pool(&mut self, bytes: u64) -> &mut PoolCounters {
        if bytes <= SMALL { &mut self.small } else { &mut self.large }
    }

    /// A block came.
    #[inline]
    pub fn add(&mut self, bytes: u64, requested: u64) {
        self.all.add(bytes, requested);
        self.pool(bytes).add(bytes, requested);
    }

    /// A block went that had come.
    #[inline]
    pub fn remove(&mut self, bytes: u64, requested: u64) {
        self.all.remove(bytes, requested);
        self.pool(bytes).remove(bytes, requested);
    }

    /// There is this much memory behind the arena now.
    #[inline]
    pub fn set_reserved(&mut self, bytes: u64) {
        self.grown += u64::from(bytes > self.reserved.current);
        self.shrunk += u64::from(bytes < self.reserved.current);
        self.reserved.set(bytes);
    }

    fn each(&mut self, change: fn(&mut Counter)) {
        for pool in [&mut self.all, &mut self.small, &mut self.large] {
            pool.each(change);
        }
        change(&mut self.reserved);
    }

    /// Peaks begin again at what there is.
    pub fn restart_peaks(&mut self) {
        self.each(Counter::restart_peak);
    }

    /// What came and went is counted from here.
    pub fn restart_totals(&mut self) {
        self.each(Counter::restart_totals);
        (self.grown, self.shrunk) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_in_its_pool_and_in_all_from_its_request_to_its_end() {
        let mut counters = Counters::default();
        counters.add(1024, 1000);
        counters.add(2 << 20, 2 << 20);
        counters.remove(1024, 1000);
        assert_eq!(counters.small.bytes, Counter { current: 0, peak: 1024, allocated: 1024, freed: 1024 });
        assert_eq!(counters.large.blocks, Counter { current: 1, peak: 1, allocated: 1, freed: 0 });
        assert_eq!(counters.all.requested.peak, (2 << 20) + 1000);
        assert_eq!((counters.all.blocks.current, counters.all.blocks.peak), (1, 2));
    }

    #[test]
    fn peaks_and_totals_begin_again_where_they_are_told_to() {
        let mut counters = Counters::default();
        counters.add(512, 1);
        counters.add(512, 1);
        counters.remove(512, 1);
        counters.set_reserved(4096);
        counters.set_reserved(1024);
        counters.set_reserved(1024);
        assert_eq!((counters.grown, counters.shrunk), (1, 1));
        assert_eq!(counters.reserved, Counter { current: 1024, peak: 4096, allocated: 4096, freed: 3072 });
        counters.restart_peaks();
        counters.restart_totals();
        assert_eq!(counters.all.blocks, Counter { current: 1, peak: 1, allocated: 0, freed: 0 });
        assert_eq!(counters.reserved, Counter { current: 1024, peak: 1024, allocated: 0, freed: 0 });
        assert_eq!((counters.grown, counters.shrunk), (0, 0));
    }
}
