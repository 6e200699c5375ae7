//! Random programs under random options: what must hold whatever happens.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Malloc { size: u64, stream: Stream },
    Free(usize),
    Record { place: usize, stream: Stream },
    Complete(usize),
    Empty,
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4 * KIB,
        3 => 0..2 * MIB,
        3 => MIB..30 * MIB,
        2 => prop::sample::select(vec![512, MIB, MIB + 1, 2 * MIB, 10 * MIB, 20 * MIB, 40 * MIB]),
        1 => 30 * MIB..200 * MIB,
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (sizes(), 0u64..3).prop_map(|(size, stream)| Step::Malloc { size, stream }),
        8 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0u64..4).prop_map(|(place, stream)| Step::Record { place, stream }),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => Just(Step::Empty),
    ];
    prop::collection::vec(step, 0..200)
}

fn settings() -> impl Strategy<Value = Settings> {
    let divisions = prop::sample::select(vec![vec![], vec![(MIB, 4)], vec![(MIB, 1), (16 * MIB, 8)], vec![(MIB, 3)]]);
    let large = prop::sample::select(vec![20 * MIB, 32 * MIB]);
    let limit = prop::option::of((0.1..0.9, 1u64..600));
    (any::<bool>(), any::<bool>(), prop::option::of(20 * MIB..100 * MIB), divisions, large, limit).prop_map(
        |(expandable_segments, npu, max_split_size, roundup_power2_divisions, large_segment, limit)| {
            let settings = Settings {
                expandable_segments,
                max_split_size,
                roundup_power2_divisions,
                large_segment,
                garbage_collection_threshold: limit.map_or(0.0, |l| l.0),
                memory_limit: limit.map(|l| l.1 * MIB),
                ..Settings::default()
            };
            if npu { settings.torch_npu() } else { settings }
        },
    )
}

/// A request that is live or still used by a stream.
struct Held {
    address: Address,
    size: u64,
    stream: Stream,
    others: HashSet<Stream>,
}

fn overlaps(a: (Address, u64), b: (Address, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn live_blocks_never_overlap_and_the_books_balance(
        steps in steps(),
        settings in settings(),
        capacity in prop::sample::select(vec![100 * MIB, 500 * MIB, 1 << 40]),
    ) {
        let limit = settings.memory_limit;
        let (mut allocator, watch) = on(capacity, settings);
        watch.borrow_mut().slow = true;
        let mut live: Vec<Held> = Vec::new();
        let mut waiting: Vec<(Held, Vec<u64>)> = Vec::new();
        for step in steps {
            match step {
                Step::Malloc { size, stream } => match allocator.malloc(size, stream) {
                    Ok(address) => {
                        let pending = watch.borrow().pending.clone();
                        waiting.retain(|(_, events)| events.iter().any(|e| pending.contains(e)));
                        let place = (address, size.max(1));
                        prop_assert!(address % 512 == 0);
                        for held in live.iter().chain(waiting.iter().map(|w| &w.0)) {
                            prop_assert!(!overlaps(place, (held.address, held.size.max(1))));
                        }
                        live.push(Held { address, size, stream, others: HashSet::new() });
                    }
                    Err(error) => prop_assert!(matches!(error, Error::OutOfMemory { .. }), "{}", error),
                },
                Step::Free(place) if !live.is_empty() => {
                    let held = live.swap_remove(place % live.len());
                    let before = watch.borrow().events;
                    allocator.free(held.address).unwrap();
                    let events: Vec<u64> = (before + 1..=watch.borrow().events).collect();
                    prop_assert_eq!(events.len(), held.others.len());
                    waiting.push((held, events));
                }
                Step::Record { place, stream } if !live.is_empty() => {
                    let place = place % live.len();
                    allocator.record_stream(live[place].address, stream).unwrap();
                    if stream != live[place].stream {
                        live[place].others.insert(stream);
                    }
                }
                Step::Complete(place) => {
                    let mut watch = watch.borrow_mut();
                    let mut pending: Vec<u64> = watch.pending.iter().copied().collect();
                    pending.sort_unstable();
                    if !pending.is_empty() {
                        watch.pending.remove(&pending[place % pending.len()]);
                    }
                }
                Step::Empty => allocator.empty_cache().unwrap(),
                _ => {}
            }
            let rounded: u64 = live.iter().map(|held| held.size.max(1).next_multiple_of(512)).sum();
            prop_assert_eq!(allocator.allocated(), rounded);
            prop_assert!(allocator.reserved() >= allocator.allocated());
            prop_assert_eq!(allocator.reserved(), watch.borrow().used);
            prop_assert!(allocator.reserved() <= limit.map_or(capacity, |limit| limit + 32 * MIB));
        }
        for held in live {
            allocator.free(held.address).unwrap();
        }
        allocator.empty_cache().unwrap();
        prop_assert_eq!((allocator.allocated(), allocator.reserved(), watch.borrow().used), (0, 0, 0));
    }
}
