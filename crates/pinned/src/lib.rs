//! Blocks in a few large regions of memory that stays where it is: page-locked host memory, say, which cannot be remapped.
//!
//! To lock a page takes ten times as long as to copy it (2.1 and 51 GiB/s were measured on an H100), so what is exchanged for a better
//! fit is paid in time. PyTorch's allocator exchanges nothing and holds more: regions are exchanged only while the bytes that were ever
//! taken stay within what it would have taken, or where more would be held than by it.
//!
//! This is the bookkeeping alone. Whoever owns it takes regions from the device, and gives them back, without holding it locked; so
//! nothing here calls a driver. A block lies in one region: drivers need not copy across two.

#![forbid(unsafe_code)]

mod native;
mod tuning;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use stalloc_device::Address;
use stalloc_gaps::Gaps;

use crate::native::Native;
use crate::tuning::{excess_share, idle_share, loose_share, region_share};

pub use tuning::TUNED;

/// What blocks are made of, bytes: a page of the host. Programs hand pinned blocks to direct input and output, which needs whole pages.
pub const UNIT: u64 = 4096;

/// A region is at least so large, bytes, if others of its blocks' size may follow.
const LEAST_REGION: u64 = 512 << 10;

/// Units of the largest block that lies in regions of small ones. One of those would keep a large region from being idle.
const SMALL: u32 = 32;

/// Memory that was taken from the device as a whole.
#[derive(Clone, Copy, Debug)]
struct PinnedRegion {
    address: Address,
    units: u32,
    /// Units of it that blocks have.
    used: u32,
    /// Units of the blocks that it was taken for.
    made_for: u32,
}

impl PinnedRegion {
    fn is_small(&self) -> bool {
        self.made_for <= SMALL
    }
}

/// A block, by its first unit.
#[derive(Clone, Copy, Debug)]
struct PinnedBlock {
    units: u32,
    /// First unit of its region.
    region: u32,
}

/// Regions of blocks of one kind, large or small.
#[derive(Debug)]
struct BlockClass {
    /// Units that are free in regions with a block.
    gaps: Gaps,
    /// Regions without one: units of the blocks that each was taken for, its own, and the first.
    idle: BTreeSet<(u32, u32, u32)>,
}

impl BlockClass {
    fn new() -> Self {
        let mut gaps = Gaps::new(u32::MAX);
        gaps.take(0..u32::MAX);
        BlockClass { gaps, idle: BTreeSet::new() }
    }
}

/// Regions, and who has what of them. Units are numbered through all regions, with one that nobody has behind each.
#[derive(Debug)]
pub struct Regions {
    /// Units that are in no region.
    spare: Gaps,
    large: BlockClass,
    small: BlockClass,
    regions: BTreeMap<u32, PinnedRegion>,
    by_address: BTreeMap<Address, u32>,
    blocks: BTreeMap<u32, PinnedBlock>,
    reserved: u64,
    /// Bytes of blocks, and the most that they were.
    used: u64,
    most_used: u64,
    /// Bytes that were ever taken from the device.
    taken: u64,
    /// What PyTorch's allocator would have taken for the same blocks.
    native: Native,
    /// Bytes of idle regions of large blocks.
    idle: u64,
}

impl Default for Regions {
    fn default() -> Self {
        Regions {
            spare: Gaps::new(u32::MAX),
            large: BlockClass::new(),
            small: BlockClass::new(),
            regions: BTreeMap::new(),
            by_address: BTreeMap::new(),
            blocks: BTreeMap::new(),
            reserved: 0,
            used: 0,
            most_used: 0,
            taken: 0,
            native: Native::default(),
            idle: 0,
        }
    }
}

impl Regions {
    fn kind(&mut self, is_small: bool) -> &mut BlockClass {
        if is_small { &mut self.small } else { &mut self.large }
    }

    /// Serves `size` bytes where they fit well; `None` if they fit nowhere, or only in an idle region that had better stay whole. O(log n).
    pub fn serve(&mut self, size: u64) -> Option<Address> {
        self.place(size, false)
    }

    /// Serves `size` bytes where they fit best, however badly; `None` if they fit nowhere. O(log n).
    pub fn serve_anywhere(&mut self, size: u64) -> Option<Address> {
        self.place(size, true)
    }

    fn place(&mut self, size: u64, anywhere: bool) -> Option<Address> {
        let units = units(size)?;
        let start = self.choose(units, anywhere)?;
        let (&first, &region) = self.regions.range(..=start).next_back()?;
        let block = start..start + units;
        // What is free is decided by the blocks alone, however a place was found.
        let before = self.blocks.range(..block.end).next_back();
        let is_free = before.is_none_or(|(&other, held)| other + held.units <= start);
        if !is_free || block.end > first + region.units {
            debug_assert!(false, "the gaps hold {block:?}, which is taken or in no region");
            return None;
        }
        if region.used == 0 {
            self.set_idle(first, region, false);
            self.kind(region.is_small()).gaps.give(first..first + region.units);
        }
        self.regions.entry(first).and_modify(|region| region.used += units);
        self.kind(region.is_small()).gaps.take(block);
        self.blocks.insert(start, PinnedBlock { units, region: first });
        self.used += u64::from(units) * UNIT;
        self.most_used = self.most_used.max(self.used);
        self.native.serve(units);
        Some(region.address + u64::from(start - first) * UNIT)
    }

    /// The first unit of where a block goes: the tightest range in a region with blocks, or an idle region. One that was taken for
    /// blocks like it is as good as a tight one. Any other would keep a part free, and it can be given back as a whole only: it is left whole,
    /// unless much is idle, or to keep it costs too much. O(log n), and O(idle regions) if none is like it.
    fn choose(&mut self, units: u32, anywhere: bool) -> Option<u32> {
        let is_small = units <= SMALL;
        let kind = self.kind(is_small);
        let gap = kind.gaps.fits(0..u32::MAX, units).next();
        let loose = units + units / loose_share();
        let like = kind.idle.range((units, units, 0)..).next().filter(|idle| idle.0 <= loose).copied();
        let widest = |idle: &&(u32, u32, u32)| idle.1 >= units;
        let idle = like.or_else(|| kind.idle.iter().filter(widest).min_by_key(|idle| idle.1).copied());
        let is_tighter = |width: u32| gap.as_ref().is_none_or(|gap| width < gap.end - gap.start);
        let Some((_, width, first)) = idle.filter(|idle| is_tighter(idle.1)) else { return gap.map(|gap| gap.start) };
        let is_good = is_small || like.is_some() || width <= loose;
        let is_plenty = self.idle >= self.reserved / idle_share();
        if anywhere || is_good || is_plenty {
            return Some(first);
        }
        let is_dear = !self.may_take(units, u64::from(units) * UNIT);
        gap.map(|gap| gap.start).or(is_dear.then_some(first))
    }

    /// Whether so many bytes may be taken from the device for a further block: the time that it takes is within PyTorch's.
    fn may_take(&self, units: u32, bytes: u64) -> bool {
        self.taken + bytes <= self.native.taken_with(units)
    }

    /// What may be held for a further block, before idle regions go: little more than blocks need, if there is time left to exchange
    /// some; else as much as PyTorch would.
    fn most_held(&self, units: u32) -> u64 {
        let own = u64::from(units) * UNIT;
        let used = self.most_used.max(self.used + own);
        let tight = used + used / excess_share();
        if self.may_take(units, own) { tight } else { tight.max(self.native.taken_with(units)) }
    }

    /// For a request that is not served: idle regions that go, so that what is held stays near what it has to be, and the bytes of
    /// a new region, for the request and for others like it, if there is room for them. `None` if there can be no such region.
    pub fn grow_for(&mut self, size: u64) -> Option<(Vec<(Address, u64)>, u64)> {
        let units = units(size)?;
        let own = u64::from(units) * UNIT;
        let share = (self.reserved / region_share()).max(LEAST_REGION) / UNIT * UNIT;
        if units <= SMALL {
            return Some((Vec::new(), share));
        }
        let wanted = (share / own).max(1) * own;
        let most = self.most_held(units);
        let idle = self.take_idle_large((self.reserved + wanted).saturating_sub(most));
        let bytes = if self.reserved + wanted > most { own } else { wanted };
        Some((idle, bytes))
    }

    /// Adds a region, page-aligned, for requests like one of `size` bytes; false if it cannot be counted.
    pub fn add(&mut self, address: Address, bytes: u64, size: u64) -> bool {
        let made_for = units(size).unwrap_or(u32::MAX);
        let Ok(units) = u32::try_from(bytes / UNIT) else { return false };
        if units == 0 || units == u32::MAX || !address.is_multiple_of(UNIT) {
            return false;
        }
        let Some(first) = self.spare.fits(0..u32::MAX, units + 1).next().map(|range| range.start) else { return false };
        self.spare.take(first..first + units + 1);
        let region = PinnedRegion { address, units, used: 0, made_for };
        self.regions.insert(first, region);
        self.by_address.insert(address, first);
        self.reserved += u64::from(units) * UNIT;
        self.taken += u64::from(units) * UNIT;
        self.set_idle(first, region, true);
        true
    }

    /// A region has no block any more, or is about to have one.
    fn set_idle(&mut self, first: u32, region: PinnedRegion, is_idle: bool) {
        let kind = self.kind(region.is_small());
        let bytes = u64::from(region.units) * UNIT;
        if is_idle {
            kind.idle.insert((region.made_for, region.units, first));
        } else {
            kind.idle.remove(&(region.made_for, region.units, first));
        }
        if !region.is_small() {
            self.idle = if is_idle { self.idle + bytes } else { self.idle - bytes };
        }
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
        let bytes = u64::from(block.units) * UNIT;
        self.used -= bytes;
        self.native.free(block.units);
        let region = self.regions.get_mut(&block.region)?;
        region.used -= block.units;
        let region = *region;
        let gaps = &mut self.kind(region.is_small()).gaps;
        gaps.give(start..start + block.units);
        if region.used == 0 {
            gaps.take(block.region..block.region + region.units);
            self.set_idle(block.region, region, true);
        }
        Some(bytes)
    }

    /// Forgets all regions without a block; the caller gives them back to the device: address and bytes of each. What was needed and
    /// what was taken so far count no more.
    pub fn take_idle(&mut self) -> Vec<(Address, u64)> {
        let small: Vec<_> = self.small.idle.iter().map(|idle| idle.2).collect();
        let mut taken = self.take_idle_large(u64::MAX);
        taken.extend(small.into_iter().filter_map(|first| self.remove(first)));
        self.taken = self.reserved;
        self.most_used = self.used;
        self.native.trim();
        taken
    }

    /// Forgets idle regions of large blocks, the smallest first, until they have so many bytes.
    fn take_idle_large(&mut self, bytes: u64) -> Vec<(Address, u64)> {
        let mut idle: Vec<_> = self.large.idle.iter().filter(|_| bytes > 0).map(|idle| (idle.1, idle.2)).collect();
        idle.sort_unstable();
        let (mut taken, mut sum) = (Vec::new(), 0);
        for (_, first) in idle {
            if sum < bytes
                && let Some(region) = self.remove(first)
            {
                sum += region.1;
                taken.push(region);
            }
        }
        taken
    }

    /// Forgets an idle region.
    fn remove(&mut self, first: u32) -> Option<(Address, u64)> {
        let region = self.regions.remove(&first)?;
        self.set_idle(first, region, false);
        self.spare.give(first..first + region.units + 1);
        self.by_address.remove(&region.address);
        let bytes = u64::from(region.units) * UNIT;
        self.reserved -= bytes;
        Some((region.address, bytes))
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
