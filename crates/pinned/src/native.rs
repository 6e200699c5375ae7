//! What PyTorch's allocator of pinned memory would have taken from the driver for the same blocks.
//!
//! It takes each block alone, of the next power of two, hands out a free one of that size again, and gives none back before it is told to
//! (`CachingHostAllocator`).

use crate::UNIT;

/// Blocks of one power of two: those that are used, and the most that ever were.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    used: u64,
    most: u64,
}

/// Counts the bytes that PyTorch's own pinned allocator would have taken for the same blocks. O(1) for each call.
#[derive(Debug, Default)]
pub struct Native {
    bins: [Bin; 32],
    taken: u64,
}

/// The power of two that so many units are rounded up to, at most 2^31.
fn power(units: u32) -> usize {
    u64::from(units).next_power_of_two().trailing_zeros().min(31) as usize
}

fn bytes(power: usize) -> u64 {
    UNIT << power
}

impl Native {
    /// Bytes that it would have taken if a further block of so many units were served.
    pub fn taken_with(&self, units: u32) -> u64 {
        let power = power(units);
        let bin = self.bins[power];
        self.taken + if bin.used == bin.most { bytes(power) } else { 0 }
    }

    /// A block of so many units is served.
    pub fn serve(&mut self, units: u32) {
        self.taken = self.taken_with(units);
        let bin = &mut self.bins[power(units)];
        bin.used += 1;
        bin.most = bin.most.max(bin.used);
    }

    /// A block of so many units is free again.
    pub fn free(&mut self, units: u32) {
        let bin = &mut self.bins[power(units)];
        bin.used = bin.used.saturating_sub(1);
    }

    /// It was told to give back what is free.
    pub fn trim(&mut self) {
        self.bins.iter_mut().for_each(|bin| bin.most = bin.used);
        self.taken = self.bins.iter().enumerate().map(|(power, bin)| bin.used * bytes(power)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_block_of_the_same_power_of_two_is_handed_out_again() {
        let mut native = Native::default();
        native.serve(5);
        assert_eq!(native.taken_with(9), 24 * UNIT);
        native.free(5);
        native.serve(7);
        assert_eq!((native.taken, native.taken_with(1)), (8 * UNIT, 9 * UNIT));
        native.serve(8);
        native.free(7);
        native.trim();
        assert_eq!(native.taken, 8 * UNIT);
    }
}
