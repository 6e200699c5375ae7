//! Random programs against random, mostly wrong, plans: no two live blocks ever overlap.
use crate::common::*;
use proptest::prelude::*;
use stalloc_allocator::{Allocator, Script, Served};
use stalloc_device::{Counting, Shared};
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

/// Few sizes, so that random programs meet random plans.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => proptest::sample::select(vec![512u64, 1024, 65536, 1 << 20, 3 << 20, 8 << 20]),
        1 => (1..20_000u64).prop_map(|granules| granules * 512),
    ]
}

const ARENA: u64 = 32 << 20;

fn random_plan() -> impl Strategy<Value = Plan> {
    let slot = (size(), 0..ARENA / 512, 0..3u32).prop_map(|(size, offset, stream)| Slot {
        size,
        offset: (offset * 512).min(ARENA - size),
        stream,
        lower: 0,
        upper: 1,
    });
    let entry = |slots: u32| {
        let open = (size(), 0..3u32).prop_map(|(size, stream)| Entry::WithoutOffset { size, stream });
        prop_oneof![5 => (0..slots).prop_map(Entry::Slot), 1 => open]
    };
    proptest::collection::vec(slot, 1..40).prop_flat_map(move |slots| {
        let entries = proptest::collection::vec(entry(slots.len() as u32), 0..60);
        let section = (entries, proptest::collection::vec(0..4u32, 0..3)).prop_map(|(entries, followers)| Section {
            kind: SectionKind::Repeating,
            name: String::new(),
            runs: 1,
            entries,
            releases: Vec::new(),
            followers,
        });
        proptest::collection::vec(section, 1..4).prop_map(move |sections| Plan {
            alignment: 512,
            arena: ARENA,
            slots: slots.clone(),
            sections,
            ..Plan::default()
        })
    })
}

/// What a program does next.
#[derive(Clone, Debug)]
enum Act {
    Malloc(u64, u64),
    /// What the plan would like to see next, from this entry of this section on.
    Follow(usize, usize, usize),
    Free(usize),
    RecordStream(usize, u64),
    StepBegin,
    /// Another plan from now on, or none.
    Adopt(usize),
    SetTight(bool),
    EmptyCache,
    GiveBackIdle,
    Capture(bool),
    FreeNonsense(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (size(), 0..3u64).prop_map(|(size, stream)| Act::Malloc(size, stream)),
        6 => (any::<usize>(), any::<usize>(), 1..30usize).prop_map(|(section, from, count)| Act::Follow(section, from, count)),
        14 => any::<usize>().prop_map(Act::Free),
        2 => (any::<usize>(), 0..3u64).prop_map(|(block, stream)| Act::RecordStream(block, stream)),
        2 => Just(Act::StepBegin),
        1 => (0..4usize).prop_map(Act::Adopt),
        1 => any::<bool>().prop_map(Act::SetTight),
        1 => Just(Act::EmptyCache),
        1 => Just(Act::GiveBackIdle),
        1 => any::<bool>().prop_map(Act::Capture),
        1 => any::<u64>().prop_map(Act::FreeNonsense),
    ]
}

/// Where the arena's memory is from.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Pages,
    NoPages,
    /// One allocation, so many bytes larger than the plan.
    Solid(u64),
}

fn memory() -> impl Strategy<Value = Memory> {
    let more = (0..40u64).prop_map(|mib| Memory::Solid(mib * MIB / 2));
    prop_oneof![2 => Just(Memory::Pages), 1 => Just(Memory::NoPages), 2 => more]
}

/// `scale`: blocks that are not the plan's are so many times larger.
fn play(plans: &[Plan], acts: &[Act], bytes: u64, memory: Memory, scale: u64) {
    let mut plan = &plans[0];
    let (mut checked, idle) = match memory {
        Memory::Pages => (over_counting(plan, Counting::new(bytes)), 0),
        Memory::NoPages => {
            // As much as the plan's own offsets need.
            let checked = over_counting(plan, Counting::without_pages(bytes));
            let idle = checked.allocator.reserved();
            assert!(idle <= ARENA);
            (checked, idle)
        }
        Memory::Solid(more) => {
            let size = (ARENA + more).min(bytes);
            (solid(plan, Shared::new(Counting::new(bytes)), size), size)
        }
    };
    let mut live: Vec<Served> = Vec::new();
    let serve = |checked: &mut Checked<_>, live: &mut Vec<Served>, size, stream| {
        live.extend(checked.try_malloc(size, stream).ok());
    };
    for act in acts {
        match *act {
            Act::Malloc(size, stream) => serve(&mut checked, &mut live, size * scale, stream),
            Act::Adopt(number) => {
                plan = plans.get(number).unwrap_or(plan);
                let script = plans.get(number).map_or(Script::default(), |plan| Script::new(plan).unwrap());
                checked.adopt(script);
            }
            Act::SetTight(tight) => checked.allocator.arena_mut().set_tight(tight),
            Act::Follow(section, from, count) => {
                let entries = &plan.sections[section % plan.sections.len()].entries;
                for entry in entries.iter().skip(from % (entries.len() + 1)).take(count) {
                    let (size, stream) = match *entry {
                        Entry::Slot(slot) => (plan.slots[slot as usize].size, plan.slots[slot as usize].stream),
                        Entry::WithoutOffset { size, stream } => (size, stream),
                    };
                    serve(&mut checked, &mut live, size, stream.into());
                    if live.len() > 20 {
                        let block = live.remove(0);
                        checked.free(block);
                    }
                }
            }
            Act::Free(block) if !live.is_empty() => {
                let block = live.swap_remove(block % live.len());
                checked.free(block);
                assert!(checked.allocator.free(block.address).is_err(), "a second free is refused");
            }
            Act::RecordStream(block, stream) if !live.is_empty() => {
                checked.allocator.record_stream(live[block % live.len()].address, stream).unwrap();
            }
            Act::StepBegin => checked.allocator.step_begin(),
            Act::EmptyCache => checked.allocator.empty_cache().unwrap(),
            Act::GiveBackIdle => drop(checked.allocator.arena_mut().give_back_idle().unwrap()),
            Act::Capture(capturing) => checked.allocator.set_capturing(capturing),
            Act::FreeNonsense(address) if !live.iter().any(|served| served.address == address) => {
                assert!(checked.allocator.free(address).is_err());
            }
            _ => {}
        }
        let statistics = checked.allocator.statistics();
        assert_eq!(statistics.requests, statistics.planned + statistics.best_fit + statistics.fallback);
    }
    for block in live {
        checked.free(block);
    }
    assert_eq!(checked.allocator.allocated(), 0);
    checked.allocator.set_capturing(false);
    checked.allocator.empty_cache().unwrap();
    assert_eq!(checked.allocator.reserved(), idle);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(3000)))]

    #[test]
    fn no_two_live_blocks_overlap(
        plans in proptest::collection::vec(random_plan(), 1..4),
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 150 }),
        mib in 34..200u64,
        memory in memory(),
    ) {
        play(&plans, &acts, mib * MIB, memory, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(600)))]

    #[test]
    fn no_two_live_blocks_overlap_in_large_handles(
        plans in proptest::collection::vec(random_plan(), 1..4),
        acts in proptest::collection::vec(act(), 1..if cfg!(miri) { 20 } else { 150 }),
        mib in 34..200u64,
        room in prop_oneof![Just(1u64), Just(8)],
    ) {
        play(&plans, &acts, mib * MIB * room * 128, Memory::Pages, 128);
    }
}
