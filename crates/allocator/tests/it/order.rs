//! Random programs on several streams of a device whose events complete late: no block is handed out, and none is unmapped,
//! while a stream may still use it: neither at its address, nor as memory that was behind another address before. What is ordered
//! before what is known from what the device was told, by vector clocks.
//!
//! `STALLOC_ORDER_CASES=100000 cargo test -p stalloc-allocator --test order` tries more.
use std::collections::BTreeMap;

use crate::common::*;
use proptest::prelude::*;
use stalloc_allocator::{Allocator, Script, Served};
use stalloc_device::{Address, Counting, Device, Error, MemoryInfo, Shared, Stream};
use stalloc_order::{Moment, WorkOrder};
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

/// A device that keeps the order of what it is told.
struct Ordered {
    memory: Counting,
    order: WorkOrder,
    /// Mappings: their bytes, and where their memory lies among all memory, each piece of which has a place of its own.
    mapped: BTreeMap<Address, (u64, Address)>,
    /// Where the next piece lies, and how often one was mapped a second time.
    next: Address,
    aliases: u64,
    /// The driver maps memory once only.
    maps_once: bool,
    /// No stream may be made to wait for another.
    forbids_waits: bool,
    /// What was wrong.
    wrong: Vec<String>,
    /// How often somebody waited.
    waits: [u64; 3],
}

/// Beyond all addresses of the device.
const PHYSICAL: Address = 1 << 60;

impl Ordered {
    fn new(memory: Counting, seed: u64) -> Self {
        let order = WorkOrder::new(Some(seed));
        let maps_once = seed.is_multiple_of(8);
        let forbids_waits = seed % 8 == 1;
        let (mapped, wrong) = (BTreeMap::new(), Vec::new());
        Ordered { memory, order, mapped, next: PHYSICAL, aliases: 0, maps_once, forbids_waits, wrong, waits: [0; 3] }
    }

    /// New memory is behind an address.
    fn put(&mut self, address: Address, bytes: u64) {
        self.mapped.insert(address, (bytes, self.next));
        self.next += bytes;
    }

    /// The memory behind a block, in pieces.
    fn behind(&mut self, start: Address, bytes: u64) -> Vec<(Address, u64)> {
        let mut pieces = Vec::new();
        let (mut at, end) = (start, start + bytes);
        while at < end {
            let mapping = self.mapped.range(..=at).next_back().filter(|(from, (size, _))| *from + size > at);
            let Some((&from, &(size, place))) = mapping else {
                self.wrong.push(format!("there is no memory at {at:#x}"));
                break;
            };
            let until = end.min(from + size);
            pieces.push((place + (at - from), until - at));
            at = until;
        }
        pieces
    }

    /// A block is handed out: its address, and the memory behind it. The answer: where that lies.
    fn handed_out(&mut self, start: Address, bytes: u64, stream: Stream) -> Vec<(Address, u64)> {
        let pieces = self.behind(start, bytes);
        for &(start, bytes) in pieces.iter().chain(&[(start, bytes)]) {
            let handed = self.order.handed_out(start, bytes, stream);
            self.wrong.extend(handed.err().map(|violation| violation.to_string()));
        }
        pieces
    }

    fn unmapped(&mut self, address: Address, bytes: u64) {
        self.wrong.extend(self.order.unmapped(address, bytes).err().map(|violation| violation.to_string()));
    }
}

impl Device for Ordered {
    type Event = Moment;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.memory.alloc(bytes)?;
        self.put(address, bytes);
        Ok(address)
    }
    // The driver waits for the device first.
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.order.wait_for_all();
        self.unmapped(address, 1);
        self.mapped.remove(&address);
        self.memory.free(address)
    }
    fn page_size(&self) -> Option<u64> {
        self.memory.page_size()
    }
    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory.reserve(bytes)
    }
    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory.release(address, bytes)
    }
    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        if self.mapped.contains_key(&address) {
            self.wrong.push(format!("{address:#x} is mapped twice"));
        }
        self.memory.map(address, bytes)?;
        self.put(address, bytes);
        Ok(())
    }
    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        if self.maps_once {
            return Err(Error::Unsupported("map a page twice"));
        }
        self.memory.alias(from, to, bytes)?;
        self.aliases += 1;
        self.mapped.insert(to, self.mapped[&from]);
        Ok(())
    }
    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.unmapped(address, bytes);
        self.memory.unmap(address, bytes)?;
        self.mapped.retain(|start, _| !(address..address + bytes).contains(start));
        Ok(())
    }
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.memory.memory_info()
    }
    fn record(&mut self, stream: Stream) -> Result<Moment, Error> {
        Ok(self.order.record(stream))
    }
    fn completed(&mut self, event: &Moment) -> Result<bool, Error> {
        Ok(self.order.completed(event))
    }
    fn wait(&mut self, event: &Moment) -> Result<(), Error> {
        self.waits[0] += 1;
        self.order.wait(event);
        Ok(())
    }
    fn queue_wait(&mut self, stream: Stream, event: &Moment) -> Result<(), Error> {
        // As in a job of several processes.
        if self.forbids_waits && !self.order.completed(event) {
            return Err(Error::Unsupported("take over what a stream still uses"));
        }
        self.waits[1] += 1;
        self.order.queue_wait(stream, event);
        Ok(())
    }
    fn synchronize(&mut self) -> Result<(), Error> {
        self.waits[2] += 1;
        self.order.wait_for_all();
        Ok(())
    }
}

/// What a program does next.
#[derive(Clone, Debug)]
enum Act {
    Malloc(u64, Stream),
    Free(usize),
    RecordStream(usize, Stream),
    /// The second stream waits for what the first was given so far.
    Wait(Stream, Stream),
    Synchronize,
    StepBegin,
    Adopt(bool),
    SetTight(bool),
    EmptyCache,
    GiveBackIdle,
}

const STREAMS: Stream = 4;

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => proptest::sample::select(vec![512u64, 1024, 65536, 1 << 20, 3 << 20, 8 << 20]),
        1 => (1..20_000u64).prop_map(|granules| granules * 512),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (size(), 0..STREAMS).prop_map(|(size, stream)| Act::Malloc(size, stream)),
        10 => any::<usize>().prop_map(Act::Free),
        3 => (any::<usize>(), 0..STREAMS).prop_map(|(block, stream)| Act::RecordStream(block, stream)),
        1 => (0..STREAMS, 0..STREAMS).prop_map(|(from, to)| Act::Wait(from, to)),
        1 => Just(Act::Synchronize),
        2 => Just(Act::StepBegin),
        1 => any::<bool>().prop_map(Act::Adopt),
        1 => any::<bool>().prop_map(Act::SetTight),
        1 => Just(Act::EmptyCache),
        1 => Just(Act::GiveBackIdle),
    ]
}

const ARENA: u64 = 24 << 20;

/// A plan of the sizes that programs ask for, its slots anywhere.
fn some_plan() -> impl Strategy<Value = Plan> {
    let slot = (size(), 0..ARENA / 512, 0..STREAMS as u32).prop_map(|(size, offset, stream)| Slot {
        size,
        offset: (offset * 512).min(ARENA - size),
        stream,
        lower: 0,
        upper: 1,
    });
    proptest::collection::vec(slot, 1..30).prop_map(|slots| {
        let entries = (0..slots.len() as u32).map(Entry::Slot).collect();
        let section = Section {
            kind: SectionKind::Repeating,
            name: String::new(),
            runs: 1,
            entries,
            releases: Vec::new(),
            followers: vec![0],
        };
        Plan { alignment: 512, arena: ARENA, slots, sections: vec![section], ..Plan::default() }
    })
}

/// Violations; how often somebody waited: the host for an event, a stream for an event, the host for the device; and how often memory was
/// mapped a second time. `more`: the arena
/// is one allocation, so many bytes larger than the plan. `scale`: blocks, not the plan's, are so many times larger.
fn play(plan: &Plan, acts: &[Act], mib: u64, more: Option<u64>, seed: u64, scale: u64) -> (Vec<String>, [u64; 4]) {
    let memory = if more.is_none() { Counting::new(mib * MIB) } else { Counting::without_pages(mib * MIB) };
    let device = Shared::new(Ordered::new(memory, seed));
    let mut checked = match more {
        None => over(plan, device.clone()),
        Some(more) => solid(plan, device.clone(), (ARENA + more).min(mib * MIB)),
    };
    let mut live: Vec<(Served, Vec<(Address, u64)>)> = Vec::new();
    for act in acts {
        match *act {
            Act::Malloc(size, stream) => {
                let size = size * scale;
                if let Ok(served) = checked.try_malloc(size, stream) {
                    let bytes = size.max(1).next_multiple_of(512);
                    let behind = device.lock().handed_out(served.address, bytes, stream);
                    live.push((served, behind));
                }
            }
            Act::Free(block) if !live.is_empty() => {
                let (block, behind) = live.swap_remove(block % live.len());
                for start in behind.iter().map(|(start, _)| *start).chain([block.address]) {
                    assert!(device.lock().order.given_back(start) > 0);
                }
                checked.free(block);
            }
            Act::RecordStream(block, stream) if !live.is_empty() => {
                let (block, behind) = &live[block % live.len()];
                checked.allocator.record_stream(block.address, stream).unwrap();
                let order = &mut device.lock().order;
                order.used_on(block.address, stream);
                behind.iter().for_each(|(start, _)| order.used_on(*start, stream));
            }
            Act::Wait(from, to) => {
                let order = &mut device.lock().order;
                let moment = order.record(from);
                order.queue_wait(to, &moment);
            }
            Act::Synchronize => device.lock().order.wait_for_all(),
            Act::StepBegin => checked.allocator.step_begin(),
            Act::Adopt(planned) => {
                let script = if planned { Script::new(plan).unwrap() } else { Script::default() };
                checked.adopt(script);
            }
            Act::SetTight(tight) => checked.allocator.arena_mut().set_tight(tight),
            Act::EmptyCache => checked.allocator.empty_cache().unwrap(),
            Act::GiveBackIdle => drop(checked.allocator.arena_mut().give_back_idle().unwrap()),
            _ => {}
        }
    }
    let device = device.lock();
    let [event, queued, all] = device.waits;
    (device.wrong.clone(), [event, queued, all, device.aliases])
}

/// So many cases; STALLOC_ORDER_CASES asks for others.
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("STALLOC_ORDER_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or_else(|| crate::cases(usual))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(3000)))]

    #[test]
    fn memory_passes_from_stream_to_stream_in_order(
        plan in some_plan(),
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 200 }),
        mib in 26..80u64,
        more in proptest::option::of((0..80u64).prop_map(|half| half * MIB / 2)),
        seed in any::<u64>(),
    ) {
        let (wrong, _) = play(&plan, &acts, mib, more, seed, 1);
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
}

proptest! {
    // Each takes ten times as long.
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn memory_in_large_handles_passes_from_stream_to_stream_in_order(
        plan in some_plan(),
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 200 }),
        mib in 26..80u64,
        room in prop_oneof![Just(1u64), Just(8)],
        seed in any::<u64>(),
    ) {
        let (wrong, _) = play(&plan, &acts, mib * room * 128, None, seed, 128);
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Programs that never pass memory between streams would show nothing.
#[test]
fn the_programs_make_streams_and_the_host_wait() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut waits = [0; 4];
    for seed in 0..300 {
        let plan = some_plan().new_tree(&mut runner).unwrap().current();
        let acts = proptest::collection::vec(act(), 200).new_tree(&mut runner).unwrap().current();
        let (_, waited) = play(&plan, &acts, 40, None, seed, 1);
        waits.iter_mut().zip(waited).for_each(|(sum, waits)| *sum += waits);
    }
    assert!(waits[1] > 100, "streams wait for events: {waits:?}");
    assert!(waits[0] + waits[2] > 30, "the host waits: {waits:?}");
    assert!(waits[3] > 100, "memory is remapped: {waits:?}");
}
