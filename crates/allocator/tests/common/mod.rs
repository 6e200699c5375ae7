//! Plans, programs and an overlap checker that knows nothing of the allocator.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;

use stalloc_allocator::{Allocator, Arena, Error, PlannedAllocator, Script, Served};
use stalloc_device::{Address, Counting, Device, Shared, Stream};
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

pub const MIB: u64 = 1 << 20;

/// A fallback without a cache: each block is the device's own.
pub struct Direct<D> {
    pub device: D,
    pub sizes: BTreeMap<Address, u64>,
}

impl<D: Device> Allocator for Direct<D> {
    fn malloc(&mut self, size: u64, _stream: Stream) -> Result<Address, Error> {
        let size = size.max(1).next_multiple_of(512);
        let address = self.device.alloc(size)?;
        self.sizes.insert(address, size);
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.sizes.remove(&address).ok_or(Error::UnknownAddress(address))?;
        Ok(self.device.free(address)?)
    }

    fn record_stream(&mut self, _address: Address, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }

    fn allocated(&self) -> u64 {
        self.sizes.values().sum()
    }

    fn reserved(&self) -> u64 {
        self.sizes.values().sum()
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// An allocator whose every answer is checked against all live blocks.
pub struct Checked<D: Device + Clone> {
    pub allocator: PlannedAllocator<D, Direct<D>>,
    pub live: BTreeMap<Address, u64>,
}

pub fn over_counting(plan: &Plan, device: Counting) -> Checked<Shared<Counting>> {
    over(plan, Shared::new(device))
}

pub fn over<D: Device + Clone>(plan: &Plan, device: D) -> Checked<D> {
    let arena = Arena::new(device.clone(), plan).unwrap();
    let fallback = Direct { device, sizes: BTreeMap::new() };
    Checked { allocator: PlannedAllocator::new(arena, fallback), live: BTreeMap::new() }
}

/// In one allocation of so many bytes.
pub fn solid<D: Device + Clone>(plan: &Plan, device: D, bytes: u64) -> Checked<D> {
    let arena = Arena::solid(device.clone(), plan, bytes).unwrap();
    let fallback = Direct { device, sizes: BTreeMap::new() };
    Checked { allocator: PlannedAllocator::new(arena, fallback), live: BTreeMap::new() }
}

impl<D: Device + Clone> Checked<D> {
    pub fn try_malloc(&mut self, size: u64, stream: Stream) -> Result<Served, Error> {
        let served = self.allocator.serve(size, stream)?;
        let rounded = size.max(1).next_multiple_of(512);
        let (start, end) = (served.address, served.address + rounded);
        assert_eq!(start % 512, 0);
        if let Some((&other, &size)) = self.live.range(..end).next_back() {
            assert!(other + size <= start, "{start:#x}..{end:#x} overlaps {other:#x}..{:#x}", other + size);
        }
        self.live.insert(start, rounded);
        assert_eq!(self.allocator.allocated(), self.live.values().sum::<u64>());
        Ok(served)
    }

    pub fn malloc(&mut self, size: u64) -> Served {
        self.try_malloc(size, 0).unwrap()
    }

    /// Offers a script, and says whether the arena takes it at the next step.
    pub fn propose(&mut self, script: Script) -> bool {
        let arena = self.allocator.arena_mut();
        let frames = arena.frame_bytes().map_or(Default::default(), |size| script.frames(size));
        arena.propose(script, &frames)
    }

    /// Begins a step with a script, if the arena takes it.
    pub fn adopt(&mut self, script: Script) {
        self.propose(script);
        self.allocator.step_begin();
        drop(self.allocator.arena_mut().take_retired());
    }

    pub fn free(&mut self, served: Served) {
        self.live.remove(&served.address).unwrap();
        self.allocator.free(served.address).unwrap();
    }
}

/// A planned request for the builder: size, and how many later requests of the section it outlives (0: freed before
/// the next one is made). `None`: for ever.
pub type Life = Option<u32>;

/// What a section of a program does: the requests in order.
pub fn section(kind: SectionKind, requests: &[(u64, Life)]) -> (SectionKind, Vec<(u64, Life)>) {
    (kind, requests.to_vec())
}

/// A plan for sections of requests on one stream, lowest free offset first; correct if no section's temporary blocks
/// outlive it.
pub fn plan(sections: &[(SectionKind, Vec<(u64, Life)>)]) -> Plan {
    let mut plan = Plan { alignment: 512, ..Plan::default() };
    let mut forever: Vec<(u64, u64)> = Vec::new();
    for (number, (kind, requests)) in sections.iter().enumerate() {
        let mut live: Vec<(u64, u64, u32)> = Vec::new();
        let mut entries = Vec::new();
        for (time, &(size, life)) in requests.iter().enumerate() {
            let time = time as u32;
            live.retain(|&(_, _, end)| end > time);
            let mut taken: Vec<_> = live.iter().map(|&(start, end, _)| (start, end)).chain(forever.clone()).collect();
            taken.sort_unstable();
            let mut offset = 0;
            for (start, end) in taken {
                if start >= offset + size {
                    break;
                }
                offset = offset.max(end);
            }
            let upper = life.map_or(u32::MAX, |life| time + life + 1);
            match life {
                Some(_) => live.push((offset, offset + size, upper)),
                None => forever.push((offset, offset + size)),
            }
            entries.push(Entry::Slot(plan.slots.len() as u32));
            plan.slots.push(Slot { size, offset, stream: 0, lower: time, upper });
            plan.arena = plan.arena.max(offset + size);
        }
        let followers = vec![(number as u32 + 1).min(sections.len() as u32 - 1)];
        plan.sections.push(Section {
            kind: *kind,
            name: String::new(),
            runs: 1,
            entries,
            releases: Vec::new(),
            followers,
        });
    }
    plan
}

/// Adds a request without an offset before entry `index` of a section.
pub fn add_open(plan: &mut Plan, section: u32, index: usize, size: u64) {
    plan.sections[section as usize].entries.insert(index, Entry::WithoutOffset { size, stream: 0 });
}

/// Runs requests of a section: each is freed after as many later requests as it says.
pub fn run(checked: &mut Checked<impl Device + Clone>, requests: &[(u64, Life)]) -> Vec<Served> {
    let mut live: Vec<(u32, Served)> = Vec::new();
    let mut all = Vec::new();
    for (time, &(size, life)) in requests.iter().enumerate() {
        let time = time as u32;
        for (_, served) in live.extract_if(.., |(end, _)| *end <= time) {
            checked.free(served);
        }
        let served = checked.malloc(size);
        all.push(served);
        if let Some(life) = life {
            live.push((time + life + 1, served));
        }
    }
    for (_, served) in live {
        checked.free(served);
    }
    all
}
