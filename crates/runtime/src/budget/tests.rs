//! Where memory ends, and what two ranks wait for.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use stalloc_allocator::Arena;
use stalloc_device::Counting;
use stalloc_plan::{Entry, FOREVER, Plan, Section, SectionKind, Slot};

use super::*;

const PAGE: u64 = 2 << 20;

#[test]
fn memory_ends_where_the_budget_does_and_comes_back_with_what_is_given_back() {
    static BUDGET: DeviceBudget = DeviceBudget::new();
    let mut device = Budgeted::new(Counting::new(1 << 30), &BUDGET);
    let base = device.reserve(16 * PAGE).unwrap();
    device.map(base, 2 * PAGE).unwrap();
    BUDGET.set_limit(4 * PAGE);
    BUDGET.set_fallback(PAGE);
    device.map(base + 2 * PAGE, PAGE).unwrap();
    assert!(matches!(device.map(base + 3 * PAGE, PAGE), Err(Error::OutOfMemory { free: 0, .. })));
    BUDGET.set_fallback(0);
    device.map(base + 3 * PAGE, PAGE).unwrap();
    assert!(device.map(base + 4 * PAGE, PAGE).is_err());
    device.unmap(base + 3 * PAGE, PAGE).unwrap();
    device.map(base + 4 * PAGE, PAGE).unwrap();
    BUDGET.set_limit(PAGE);
    assert!(device.map(base + 5 * PAGE, PAGE).is_err(), "what is held stays, and no more is taken");
    BUDGET.set_limit(u64::MAX);
    device.map(base + 5 * PAGE, 4 * PAGE).unwrap();
}

#[test]
fn a_run_is_mapped_as_far_as_the_budget_goes() {
    static BUDGET: DeviceBudget = DeviceBudget::new();
    let mut device = Budgeted::new(Counting::new(1 << 30), &BUDGET);
    let base = device.reserve(16 * PAGE).unwrap();
    BUDGET.set_limit(3 * PAGE);
    let run = [None, Some(base), None, None, None].map(|from| Backing { bytes: PAGE, from });
    let (count, result) = device.map_run(base, &run);
    assert_eq!((count, device.held, device.aliased), (4, 3 * PAGE, PAGE));
    assert!(matches!(result, Err(Error::OutOfMemory { free: 0, .. })), "{result:?}");
    assert_eq!(BUDGET.changes(), 1);
    device.unmap(base, 4 * PAGE).unwrap();
    assert_eq!((device.held, device.aliased), (0, 0));
}

#[test]
fn nothing_is_mapped_for_a_request_that_the_budget_cannot_hold() {
    static BUDGET: DeviceBudget = DeviceBudget::new();
    let mut arena = Arena::new(Budgeted::new(Counting::new(1 << 30), &BUDGET), &Plan::default()).unwrap();
    let first = arena.serve(4 * PAGE, 1).unwrap().address;
    let held = arena.reserved();
    BUDGET.set_limit(10 * PAGE);
    assert!(arena.serve(7 * PAGE, 1).is_none());
    assert_eq!(arena.statistics().peak_reserved, held);
    arena.serve(6 * PAGE, 1).unwrap();
    // What is held already may be used, whatever is allowed by now.
    BUDGET.set_limit(PAGE);
    arena.free(first).unwrap();
    arena.serve(3 * PAGE, 1).unwrap();
}

/// What a stream was given.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Record(usize),
    Wait(usize),
    /// Runs when the other rank's is at the head of a stream too.
    Collective(u32),
}

/// Two ranks, their streams and what is left to do on them.
#[derive(Default)]
struct World {
    streams: [BTreeMap<Stream, VecDeque<Work>>; 2],
    done: Vec<bool>,
}

impl World {
    /// Does all that can be done; whether nothing is left.
    fn run(&mut self) -> bool {
        while self.step() {}
        self.streams.iter().flat_map(BTreeMap::values).all(VecDeque::is_empty)
    }

    fn heads(&self, rank: usize) -> Vec<(Stream, Work)> {
        self.streams[rank].iter().filter_map(|(&stream, work)| Some((stream, *work.front()?))).collect()
    }

    fn step(&mut self) -> bool {
        for rank in [0, 1] {
            for (stream, work) in self.heads(rank) {
                let ready = match work {
                    Work::Record(event) => {
                        self.done[event] = true;
                        true
                    }
                    Work::Wait(event) => self.done[event],
                    Work::Collective(_) => {
                        let partner = self.heads(1 - rank).into_iter().find(|&(_, other)| other == work);
                        if let Some((other, _)) = partner {
                            self.streams[1 - rank].get_mut(&other).unwrap().pop_front();
                        }
                        partner.is_some()
                    }
                };
                if ready {
                    self.streams[rank].get_mut(&stream).unwrap().pop_front();
                    return true;
                }
            }
        }
        false
    }
}

/// The device of one rank.
#[derive(Clone)]
struct Rank {
    number: usize,
    memory: Arc<Mutex<Counting>>,
    world: Arc<Mutex<World>>,
}

impl Rank {
    fn give(&self, stream: Stream, work: Work) {
        self.world.lock().unwrap().streams[self.number].entry(stream).or_default().push_back(work);
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Counting> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Rank {
    type Event = usize;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory().alloc(bytes)
    }
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.memory().free(address)
    }
    fn page_size(&self) -> Option<u64> {
        self.memory().page_size()
    }
    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory().reserve(bytes)
    }
    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory().release(address, bytes)
    }
    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory().map(address, bytes)
    }
    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory().unmap(address, bytes)
    }
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.memory().memory_info()
    }
    fn record(&mut self, stream: Stream) -> Result<usize, Error> {
        let event = {
            let mut world = self.world.lock().unwrap();
            world.done.push(false);
            world.done.len() - 1
        };
        self.give(stream, Work::Record(event));
        Ok(event)
    }
    fn completed(&mut self, event: &usize) -> Result<bool, Error> {
        let mut world = self.world.lock().unwrap();
        world.run();
        Ok(world.done[*event])
    }
    fn wait(&mut self, _: &usize) -> Result<(), Error> {
        Err(Error::Unsupported("wait in this test"))
    }
    fn queue_wait(&mut self, stream: Stream, event: &usize) -> Result<(), Error> {
        self.give(stream, Work::Wait(*event));
        Ok(())
    }
    fn synchronize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A step whose second block, on the second stream, is where the first one was.
fn two_streams() -> Plan {
    let slot =
        |size: u64, offset: u64, stream: u32, lower: u32, upper: u32| Slot { size, offset, stream, lower, upper };
    let section = |kind, entries: std::ops::Range<u32>| Section {
        kind,
        name: String::new(),
        runs: 2,
        entries: entries.map(Entry::Slot).collect(),
        releases: Vec::new(),
        followers: vec![1],
    };
    Plan {
        alignment: 512,
        arena: 3072,
        lower_bound: 3072,
        slots: vec![slot(1024, 0, 0, 0, FOREVER), slot(2048, 1024, 0, 0, 1), slot(2048, 1024, 1, 1, 2)],
        sections: vec![section(SectionKind::Prologue, 0..1), section(SectionKind::Repeating, 1..3)],
        ..Plan::default()
    }
}

/// Two ranks give two collectives to two streams, each in another order; whether they come to their ends.
fn collectives_end(budgets: [&'static DeviceBudget; 2]) -> bool {
    let world = Arc::new(Mutex::new(World::default()));
    for (number, budget) in budgets.into_iter().enumerate() {
        let memory = Arc::new(Mutex::new(Counting::new(1 << 30)));
        let rank = Rank { number, memory, world: Arc::clone(&world) };
        let mut arena = Arena::new(Budgeted::new(rank.clone(), budget), &two_streams()).unwrap();
        // The first rank's first collective is the second one's second.
        let [first, second] = if number == 0 { [1, 2] } else { [2, 1] };
        arena.serve(1024, first).unwrap();
        arena.step_begin();
        let block = arena.serve(2048, first).unwrap().address;
        rank.give(first, Work::Collective(first as u32));
        arena.free(block).unwrap();
        // Where it would have to wait it is served elsewhere, or by the fallback.
        let _ = arena.serve(2048, second);
        rank.give(second, Work::Collective(second as u32));
        std::mem::forget(arena);
    }
    let mut world = world.lock().unwrap();
    world.run()
}

#[test]
fn where_streams_wait_for_each_other_two_ranks_can_wait_for_ever_and_where_they_may_not_they_never_do() {
    static WAITS: [DeviceBudget; 2] = [DeviceBudget::new(), DeviceBudget::new()];
    assert!(!collectives_end([&WAITS[0], &WAITS[1]]), "the ranks of this test do not wait for each other");
    static NO_WAITS: [DeviceBudget; 2] = [DeviceBudget::new(), DeviceBudget::new()];
    NO_WAITS.iter().for_each(DeviceBudget::forbid_waits);
    assert!(collectives_end([&NO_WAITS[0], &NO_WAITS[1]]));
}
