//! Blocks in a few large regions of memory that stays where it is: page-locked host memory, say, which cannot be remapped.
//!
//! This is the bookkeeping alone. Whoever owns it takes regions from the device, and gives them back, without holding it locked; so
//! nothing here calls a driver. A block lies in one region: drivers need not copy across two.

use std::collections::BTreeMap;
use std::ops::Range;

use stalloc_device::Address;

use crate::gaps::Gaps;
use crate::tuning::{merge_share, region_share};

/// What blocks are made of, bytes: a page of the host. Programs hand pinned blocks to direct input and output, which needs whole pages.
pub const UNIT: u64 = 4096;

/// A region is at least so large, bytes.
const LEAST_REGION: u64 = 2 << 20;

/// Memory that was taken from the device as a whole.
#[derive(Clone, Copy, Debug)]
struct Region {
    address: Address,
    units: u32,
    /// Units of it that blocks have.
    used: u32,
}

/// A block, by its first unit.
#[derive(Clone, Copy, Debug)]
struct Block {
    units: u32,
    /// First unit of its region.
    region: u32,
}

/// Regions, and who has what of them. Units are numbered through all regions, with one that nobody has behind each.
#[derive(Debug)]
pub struct Regions {
    /// Units that are in no region.
    spare: Gaps,
    /// Units of regions that are free.
    gaps: Gaps,
    regions: BTreeMap<u32, Region>,
    by_address: BTreeMap<Address, u32>,
    blocks: BTreeMap<u32, Block>,
    reserved: u64,
    /// Regions without a block, and their bytes.
    idle_regions: usize,
    idle: u64,
}

impl Default for Regions {
    fn default() -> Self {
        Regions::new()
    }
}

impl Regions {
    /// No region yet.
    pub fn new() -> Self {
        let mut gaps = Gaps::new(u32::MAX);
        gaps.take(0..u32::MAX);
        Regions {
            spare: Gaps::new(u32::MAX),
            gaps,
            regions: BTreeMap::new(),
            by_address: BTreeMap::new(),
            blocks: BTreeMap::new(),
            reserved: 0,
            idle_regions: 0,
            idle: 0,
        }
    }

    /// Serves `size` bytes where they fit best; `None` if they fit nowhere. O(log n).
    pub fn serve(&mut self, size: u64) -> Option<Address> {
        let units = units(size)?;
        let start = self.gaps.fits(0..u32::MAX, units).next()?.start;
        let (&first, region) = self.regions.range_mut(..=start).next_back()?;
        let block = start..start + units;
        // What is free is decided by the blocks alone, however a place was found.
        let before = self.blocks.range(..block.end).next_back();
        let is_free = before.is_none_or(|(&other, held)| other + held.units <= start);
        if !is_free || block.end > first + region.units {
            debug_assert!(false, "the gaps hold {block:?}, which is taken or in no region");
            return None;
        }
        if region.used == 0 {
            self.idle_regions -= 1;
            self.idle -= u64::from(region.units) * UNIT;
        }
        region.used += units;
        let address = region.address + u64::from(start - first) * UNIT;
        self.gaps.take(block);
        self.blocks.insert(start, Block { units, region: first });
        Some(address)
    }

    /// Bytes that a new region should have for a request that fits nowhere: its own, and of as many others like it as make a share of
    /// what is held. `None` if there can be none.
    fn wanted(&self, size: u64) -> Option<u64> {
        let own = u64::from(units(size)?) * UNIT;
        let share = (self.reserved / region_share()).max(LEAST_REGION);
        Some((share / own).max(1) * own)
    }

    /// Adds a region, page-aligned; false if it cannot be counted.
    pub fn add(&mut self, address: Address, bytes: u64) -> bool {
        let Ok(units) = u32::try_from(bytes / UNIT) else { return false };
        if units == 0 || units == u32::MAX || !address.is_multiple_of(UNIT) {
            return false;
        }
        let Some(first) = self.spare.fits(0..u32::MAX, units + 1).next().map(|range| range.start) else { return false };
        self.spare.take(first..first + units + 1);
        self.gaps.give(first..first + units);
        self.regions.insert(first, Region { address, units, used: 0 });
        self.by_address.insert(address, first);
        self.reserved += u64::from(units) * UNIT;
        self.idle += u64::from(units) * UNIT;
        self.idle_regions += 1;
        true
    }

    /// The first unit of the region that an address lies in, and the unit.
    fn unit(&self, address: Address) -> Option<u32> {
        let (_, &first) = self.by_address.range(..=address).next_back()?;
        let region = self.regions.get(&first)?;
        let unit = (address - region.address) / UNIT;
        (unit < u64::from(region.units)).then(|| first + unit as u32)
    }

    /// The block that an address lies in: its addresses.
    pub fn around(&self, address: Address) -> Option<Range<Address>> {
        let unit = self.unit(address)?;
        let (&start, block) = self.blocks.range(..=unit).next_back()?;
        let region = self.regions.get(&block.region)?;
        let begins = region.address + u64::from(start - block.region) * UNIT;
        (unit < start + block.units).then(|| begins..begins + u64::from(block.units) * UNIT)
    }

    /// Frees the block that begins at an address; its bytes, or `None` if there is none.
    pub fn free(&mut self, address: Address) -> Option<u64> {
        let start = self.unit(address)?;
        if self.around(address)?.start != address {
            return None;
        }
        let block = self.blocks.remove(&start)?;
        self.gaps.give(start..start + block.units);
        if let Some(region) = self.regions.get_mut(&block.region) {
            region.used -= block.units;
            if region.used == 0 {
                self.idle_regions += 1;
                self.idle += u64::from(region.units) * UNIT;
            }
        }
        Some(u64::from(block.units) * UNIT)
    }

    /// Forgets regions without a block, the smallest first, until they have so many bytes; the caller gives them back to the device:
    /// address and bytes of each.
    pub fn take_idle(&mut self, bytes: u64) -> Vec<(Address, u64)> {
        let idle = self.regions.iter().filter(|(_, region)| region.used == 0);
        let mut idle: Vec<_> = idle.map(|(&first, &region)| (first, region)).collect();
        idle.sort_by_key(|&(first, region)| (region.units, first));
        let mut taken = Vec::new();
        let mut sum = 0;
        for (first, region) in idle {
            if sum >= bytes {
                break;
            }
            taken.push(self.remove(first, region));
            sum += u64::from(region.units) * UNIT;
        }
        taken
    }

    /// For a request that fits nowhere: idle regions that go, and the bytes of the one that takes their place, as much as they had and
    /// as the request needs. So what is held grows only by what is not there. `None` if there can be no such region.
    pub fn merge_for(&mut self, size: u64) -> Option<(Vec<(Address, u64)>, u64)> {
        let wanted = self.wanted(size)?;
        let idle = self.take_idle(wanted);
        let bytes = idle.iter().map(|&(_, bytes)| bytes).sum::<u64>().max(wanted);
        Some((idle, bytes))
    }

    /// Where much of what is held is idle and lies in pieces: all idle regions, and the bytes of the one that takes their place. Steps of
    /// other sizes fit in it as they would not in the pieces. There is less to merge each time, and soon nothing. O(1) if there is nothing.
    pub fn merge_idle(&mut self) -> Option<(Vec<(Address, u64)>, u64)> {
        if self.idle_regions < 2 || self.idle < self.reserved / merge_share() {
            return None;
        }
        let bytes = self.idle;
        Some((self.take_idle(u64::MAX), bytes))
    }

    fn remove(&mut self, first: u32, region: Region) -> (Address, u64) {
        let bytes = u64::from(region.units) * UNIT;
        self.gaps.take(first..first + region.units);
        self.spare.give(first..first + region.units + 1);
        self.regions.remove(&first);
        self.by_address.remove(&region.address);
        self.reserved -= bytes;
        self.idle -= bytes;
        self.idle_regions -= 1;
        (region.address, bytes)
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Bytes of all regions.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Every block, in no order that means anything: its addresses.
    pub fn blocks(&self) -> impl Iterator<Item = Range<Address>> + '_ {
        self.blocks.iter().filter_map(|(&start, block)| {
            let begins = self.regions.get(&block.region)?.address + u64::from(start - block.region) * UNIT;
            Some(begins..begins + u64::from(block.units) * UNIT)
        })
    }
}

/// Units of a block.
fn units(size: u64) -> Option<u32> {
    u32::try_from(size.max(1).div_ceil(UNIT)).ok().filter(|&units| units < u32::MAX)
}

#[cfg(test)]
mod tests;
