//! Where CUDA's driver puts what `cudaMalloc` gives out.

use std::collections::BTreeMap;

/// What regions are multiples of.
const REGION: u64 = 32 << 20;

/// Regions of whole multiples of 32 MiB. What fits into the free rest of one goes to the lowest such place; else a new region begins in the highest
/// hole of the address space, and one that is empty is given back. So segments of 20 MiB and more lie below the ones before them, as in
/// recordings of real GPUs, and of cached blocks of one size the lowest, which PyTorch prefers, is the newest.
#[derive(Clone, Debug)]
pub struct DriverPlaces {
    end: u64,
    regions: BTreeMap<u64, u64>,
    free: BTreeMap<u64, u64>,
}

impl DriverPlaces {
    /// All places lie below an address.
    pub fn below(end: u64) -> Self {
        DriverPlaces { end, regions: BTreeMap::new(), free: BTreeMap::new() }
    }

    /// The place of `bytes`; none if there is no such hole.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let rest = self.free.iter().find(|&(_, &free)| free >= bytes).map(|(&start, &free)| (start, free));
        let (start, free) = match rest {
            Some(rest) => rest,
            None => {
                let size = bytes.checked_next_multiple_of(REGION)?;
                let mut top = self.end;
                for (&start, &length) in self.regions.iter().rev() {
                    if top - (start + length) >= size {
                        break;
                    }
                    top = start;
                }
                let start = top.checked_sub(size)?;
                self.regions.insert(start, size);
                (start, size)
            }
        };
        self.free.remove(&start);
        if free > bytes {
            self.free.insert(start + bytes, free - bytes);
        }
        Some(start)
    }

    /// Takes back what was given out.
    pub fn give(&mut self, start: u64, bytes: u64) {
        let below = self.regions.range(..=start).next_back();
        let Some((&region, &length)) = below.filter(|&(&region, &length)| start < region + length) else { return };
        let (mut from, mut to) = (start, start + bytes);
        if to < region + length {
            to += self.free.remove(&to).unwrap_or(0);
        }
        if let Some((&before, &free)) = self.free.range(region..start).next_back()
            && before + free == start
        {
            self.free.remove(&before);
            from = before;
        }
        if (from, to) == (region, region + length) {
            self.regions.remove(&region);
        } else {
            self.free.insert(from, to - from);
        }
    }
}

#[cfg(test)]
mod tests;
