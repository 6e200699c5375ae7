//! What a malloc and its free cost: from the plan, by the search in the arena, and in the model of PyTorch's caching
//! allocator, on the same request sequence. Nothing here asks a real device, so this is bookkeeping alone.
//!
//! `cargo bench -p stalloc-caching`; an item is a pair.

use divan::Bencher;
use divan::counter::ItemsCount;
use stalloc_allocator::{Allocator, Arena, PlannedAllocator, Statistics};
use stalloc_caching::{Caching, Settings};
use stalloc_device::{Address, Counting, Shared};
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

const CAPACITY: u64 = 80 << 30;

/// An event: allocate this many bytes, or free the block of an earlier request.
enum Event {
    Malloc(u64),
    Free(u32),
}

/// A training step of a transformer: each layer keeps activations for the backward pass and uses workspaces, the
/// backward pass gives them back in reverse. 32 layers, 4 micro-batches, about 12,000 requests of 24 sizes.
fn step() -> Vec<Event> {
    let (mut events, mut requests) = (Vec::new(), 0u32);
    let malloc = |events: &mut Vec<Event>, requests: &mut u32, size: u64| {
        events.push(Event::Malloc(size));
        *requests += 1;
        *requests - 1
    };
    for _ in 0..4 {
        let mut kept = Vec::new();
        for layer in 0..32u64 {
            for part in 0..16u64 {
                kept.push(malloc(&mut events, &mut requests, (part + 1) * (1 << 20) + (layer % 2) * 4096));
                let small = malloc(&mut events, &mut requests, 512 << (part % 6));
                let workspace = malloc(&mut events, &mut requests, (part % 4 + 1) << 22);
                events.extend([Event::Free(small), Event::Free(workspace)]);
            }
        }
        while let Some(activation) = kept.pop() {
            let gradient = malloc(&mut events, &mut requests, 8 << 20);
            let workspace = malloc(&mut events, &mut requests, 2 << 20);
            events.extend([Event::Free(activation), Event::Free(workspace), Event::Free(gradient)]);
        }
    }
    events
}

/// A plan for the step: lowest free offset first.
fn plan(events: &[Event]) -> Plan {
    let mut plan = Plan { alignment: 512, ..Plan::default() };
    let mut live: Vec<(u64, u64, u32)> = Vec::new();
    for event in events {
        match *event {
            Event::Malloc(size) => {
                let number = plan.slots.len() as u32;
                let mut offset = 0;
                let mut place = 0;
                for (index, &(start, end, _)) in live.iter().enumerate() {
                    if start >= offset + size {
                        break;
                    }
                    (offset, place) = (end, index + 1);
                }
                live.insert(place, (offset, offset + size, number));
                plan.arena = plan.arena.max(offset + size);
                plan.slots.push(Slot { size, offset, stream: 0, lower: number, upper: number + 1 });
            }
            Event::Free(number) => live.retain(|&(_, _, other)| other != number),
        }
    }
    plan.sections.push(Section {
        kind: SectionKind::Repeating,
        name: "step".into(),
        runs: 1,
        entries: (0..plan.slots.len() as u32).map(Entry::Slot).collect(),
        releases: Vec::new(),
        followers: vec![0],
    });
    plan
}

fn replay(allocator: &mut impl Allocator, events: &[Event], addresses: &mut Vec<Address>) {
    addresses.clear();
    for event in events {
        match *event {
            Event::Malloc(size) => addresses.push(allocator.malloc(size, 0).expect("the device is large enough")),
            Event::Free(request) => allocator.free(addresses[request as usize]).expect("the block is live"),
        }
    }
}

fn measure(bencher: Bencher, allocator: &mut impl Allocator, events: &[Event]) {
    let pairs = events.iter().filter(|event| matches!(event, Event::Malloc(_))).count();
    let mut addresses = Vec::with_capacity(pairs);
    // Memory is mapped and tables have grown after the first step.
    replay(allocator, events, &mut addresses);
    bencher.counter(ItemsCount::new(pairs)).bench_local(|| replay(allocator, events, &mut addresses));
}

/// Measures what a plan serves; every request must be found the way that is measured.
fn measure_arena(bencher: Bencher, plan: &Plan, is_all: impl Fn(&Statistics) -> bool) {
    let events = step();
    let device = Shared::new(Counting::new(CAPACITY));
    let arena = Arena::new(device.clone(), plan).expect("the plan is sound");
    let mut allocator = PlannedAllocator::new(arena, Caching::new(device, Settings::default()));
    measure(bencher, &mut allocator, &events);
    assert!(is_all(&allocator.statistics()), "{:?}", allocator.statistics());
}

#[divan::bench]
fn planned(bencher: Bencher) {
    measure_arena(bencher, &plan(&step()), |statistics| statistics.planned == statistics.requests);
}

#[divan::bench]
fn open(bencher: Bencher) {
    measure_arena(bencher, &Plan::default(), |statistics| statistics.open == statistics.requests);
}

#[divan::bench]
fn caching(bencher: Bencher) {
    measure(bencher, &mut Caching::new(Counting::new(CAPACITY), Settings::default()), &step());
}

fn main() {
    divan::main();
}
