//! Random programs on several streams of a device whose events complete late: no block is handed out, and none is unmapped,
//! while a stream may still use it. What is ordered before what is known from what the device was told, by vector clocks.
//!
//! `STALLOC_ORDER_CASES=100000 cargo test -p stalloc-allocator --test order` tries more.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use proptest::prelude::*;
use stalloc_allocator::{Allocator, Budget, Script, Served};
use stalloc_device::{Address, Counting, Device, Error, MemoryInfo, Shared, Stream};
use stalloc_order::{Moment, Order};
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

/// A device that keeps the order of what it is told.
struct Ordered {
    memory: Counting,
    order: Order,
    /// What was wrong.
    wrong: Vec<String>,
    /// How often somebody waited.
    waits: [u64; 3],
}

impl Ordered {
    fn unmapped(&mut self, address: Address, bytes: u64) {
        self.wrong.extend(self.order.unmapped(address, bytes).err().map(|violation| violation.to_string()));
    }
}

impl Device for Ordered {
    type Event = Moment;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory.alloc(bytes)
    }
    // The driver waits for the device first.
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.order.wait_for_all();
        self.unmapped(address, 1);
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
        self.memory.map(address, bytes)
    }
    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.unmapped(address, bytes);
        self.memory.unmap(address, bytes)
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
    SetBudget(Budget),
    EmptyCache,
}

const STREAMS: Stream = 3;

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
        1 => proptest::sample::select(vec![Budget::Device, Budget::Tight]).prop_map(Act::SetBudget),
        1 => Just(Act::EmptyCache),
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

/// Violations, and how often somebody waited: the host for an event, a stream for an event, the host for the device. `more`: the arena
/// is one allocation, so many bytes larger than the plan.
fn play(plan: &Plan, acts: &[Act], mib: u64, more: Option<u64>, seed: u64) -> (Vec<String>, [u64; 3]) {
    let memory = if more.is_none() { Counting::new(mib * MIB) } else { Counting::without_pages(mib * MIB) };
    let device = Shared::new(Ordered { memory, order: Order::new(Some(seed)), wrong: Vec::new(), waits: [0; 3] });
    let mut checked = match more {
        None => over(plan, device.clone()),
        Some(more) => solid(plan, device.clone(), (ARENA + more).min(mib * MIB)),
    };
    let mut live: Vec<Served> = Vec::new();
    for act in acts {
        match *act {
            Act::Malloc(size, stream) => {
                if let Ok(served) = checked.try_malloc(size, stream) {
                    let device = &mut *device.lock();
                    let bytes = size.max(1).next_multiple_of(512);
                    let handed = device.order.handed_out(served.address, bytes, stream);
                    device.wrong.extend(handed.err().map(|violation| violation.to_string()));
                    live.push(served);
                }
            }
            Act::Free(block) if !live.is_empty() => {
                let block = live.swap_remove(block % live.len());
                assert!(device.lock().order.given_back(block.address) > 0);
                checked.free(block);
            }
            Act::RecordStream(block, stream) if !live.is_empty() => {
                let address = live[block % live.len()].address;
                checked.allocator.record_stream(address, stream).unwrap();
                device.lock().order.used_on(address, stream);
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
                let arena = checked.allocator.arena_mut();
                let frames = arena.frame_bytes().map_or(Default::default(), |size| script.frames(size));
                arena.propose(script, &frames);
                checked.allocator.step_begin();
                drop(checked.allocator.arena_mut().take_retired());
            }
            Act::SetBudget(budget) => checked.allocator.arena_mut().set_budget(budget),
            Act::EmptyCache => checked.allocator.empty_cache().unwrap(),
            _ => {}
        }
    }
    let device = device.lock();
    (device.wrong.clone(), device.waits)
}

fn cases() -> u32 {
    let asked = std::env::var("STALLOC_ORDER_CASES").ok().and_then(|cases| cases.parse().ok());
    if cfg!(miri) { 3 } else { asked.unwrap_or(3000) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn memory_passes_from_stream_to_stream_in_order(
        plan in some_plan(),
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 200 }),
        mib in 26..80u64,
        more in proptest::option::of((0..80u64).prop_map(|half| half * MIB / 2)),
        seed in any::<u64>(),
    ) {
        let (wrong, _) = play(&plan, &acts, mib, more, seed);
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Programs that never pass memory between streams would show nothing.
#[test]
fn the_programs_make_streams_and_the_host_wait() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut waits = [0; 3];
    for seed in 0..300 {
        let plan = some_plan().new_tree(&mut runner).unwrap().current();
        let acts = proptest::collection::vec(act(), 200).new_tree(&mut runner).unwrap().current();
        let (_, waited) = play(&plan, &acts, 40, None, seed);
        waits.iter_mut().zip(waited).for_each(|(sum, waits)| *sum += waits);
    }
    assert!(waits[1] > 100, "streams wait for events: {waits:?}");
    assert!(waits[0] + waits[2] > 30, "the host waits: {waits:?}");
}
