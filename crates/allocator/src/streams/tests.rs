#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

/// Where so many granules are a stream's own.
fn own(owners: &mut Owners, range: Range<u32>, width: u32, stream: u16) -> Option<u32> {
    owners.begin_search();
    owners.own(range, width, stream).ok()
}

/// Three streams of which the first two have used memory.
fn two(first: Range<u32>, second: Range<u32>) -> Owners {
    let mut owners = Owners::new();
    assert_eq!(owners.admit(0), None);
    assert_eq!(owners.admit(1), Some(0));
    assert_eq!(owners.admit(2), None);
    owners.note(first, 0);
    owners.note(second, 1);
    owners
}

#[test]
fn one_stream_owns_everything_without_being_written_down() {
    let mut owners = Owners::new();
    owners.admit(0);
    owners.note(0..100, 0);
    assert!(owners.is_alone(0) && owners.pieces.is_empty());
    assert_eq!(own(&mut owners, 0..100, 100, 0), Some(0));
    assert_eq!(owners.users(&(0..100), 1, false), [(0, 1)]);
}

#[test]
fn an_event_covers_what_its_stream_used_before_and_nothing_later() {
    let mut owners = two(0..10, 10..20);
    assert_eq!(own(&mut owners, 0..30, 10, 2), Some(20));
    assert_eq!(own(&mut owners, 0..30, 11, 2), None);
    assert_eq!(own(&mut owners, 0..30, 10, 1), Some(10));
    assert_eq!(owners.users(&(0..20), 2, false), [(0, 1), (1, 1)]);
    let tick = owners.recorded();
    owners.note(5..7, 0);
    owners.completed(0, tick);
    owners.waits(2, 1, tick, true);
    assert_eq!(owners.users(&(10..20), 2, false), [], "it waited");
    assert_eq!(owners.users(&(10..20), 0, false), [(1, 1)], "that one did not");
    assert_eq!(owners.users(&(0..10), 2, false), [(0, 2)], "a part of what was joined was used later");
    owners.completed(0, 2);
    assert_eq!(own(&mut owners, 0..20, 20, 2), Some(0));
}

#[test]
fn a_search_that_finds_nothing_learns_whose_the_range_is_if_it_looked_at_all_of_it() {
    let mut owners = two(0..10, 10..20);
    let mut search = |range: Range<u32>, width, stream| {
        owners.begin_search();
        owners.own(range, width, stream)
    };
    assert_eq!(search(0..20, 15, 0), Err(0b11));
    assert_eq!(search(0..20, 10, 2), Err(0b11));
    assert_eq!(search(10..20, 1, 2), Err(0b10));
    assert_eq!(search(0..20, 10, 1), Ok(10));
    owners.work = 2;
    assert_eq!(owners.own(0..20, 15, 0), Err(u64::MAX), "no work is left for the last part");
    owners.waits(2, 1, 1, false);
    owners.begin_search();
    assert_eq!(owners.own(0..20, 15, 2), Err(0b101), "what it comes after is its own");
}

#[test]
fn a_stream_that_waits_comes_after_all_that_the_other_has_waited_for_by_then() {
    let mut owners = two(0..10, 10..20);
    let tick = owners.recorded();
    owners.waits(1, 0, tick, true);
    let next = owners.recorded();
    owners.waits(2, 1, next, false);
    assert_eq!(owners.users(&(0..20), 2, false), [(0, 1)], "an event of before covers no more than its stream");
    owners.waits(2, 1, next, true);
    assert_eq!(owners.users(&(0..20), 2, false), []);
}

#[test]
fn once_the_device_has_done_all_of_it_a_stream_that_comes_back_finds_nothing_of_another_one() {
    let mut owners = two(0..10, 10..20);
    owners.all_completed();
    // Nobody has to write down that all of it was the first one's.
    assert_eq!(owners.admit(1), None);
    assert_eq!(own(&mut owners, 0..20, 20, 1), Some(0));
    assert_eq!(owners.users(&(0..20), 1, false), []);
    assert_eq!(owners.admit(0), Some(1));
}

#[test]
fn memory_that_was_taken_away_is_nobody_s() {
    let mut owners = two(0..10_000, 10_000..20_000);
    owners.forget(4096..8192);
    assert_eq!(own(&mut owners, 0..8192, 4096, 1), Some(4096));
    assert_eq!(own(&mut owners, 0..8192, 4097, 1), None);
    owners.forget(8192..1 << 30);
    assert_eq!(owners.users(&(0..1 << 30), 2, false), [(0, 1)]);
}

#[test]
fn a_search_looks_at_so_many_parts_and_takes_the_rest_for_another_stream_s() {
    let mut owners = Owners::new();
    for stream in 0..3 {
        owners.admit(stream);
    }
    for start in 0..2000 {
        owners.note(start..start + 1, (start % 2) as u16);
    }
    let tick = owners.recorded();
    owners.completed(0, tick);
    owners.completed(1, tick);
    assert_eq!(own(&mut owners, 0..2000, 2000, 2), None);
    assert_eq!(own(&mut owners, 0..2000, search_limit() - 1, 2), Some(0));
    assert!(owners.work > 0);
    owners.drop_done();
    assert_eq!(owners.parts, 0);
    assert_eq!(own(&mut owners, 0..2000, 2000, 2), Some(0));
}

#[test]
fn what_nobody_used_is_no_work_and_a_search_sees_no_more_of_it_than_it_wants() {
    let (pieces, far) = (2 * search_limit(), 2 * search_limit() * USED_PAGE);
    let mut owners = two(0..10, far..far + 10);
    let mut seen = Vec::new();
    owners.any(&(10..far + 10), |_, part| {
        seen.push(part.clone());
        part.end >= 3 * USED_PAGE
    });
    assert_eq!(seen, [USED_PAGE..2 * USED_PAGE, 2 * USED_PAGE..3 * USED_PAGE]);
    assert_eq!(own(&mut owners, 0..far + 10, (pieces - 1) * USED_PAGE, 2), Some(10));
    assert_eq!(owners.work, search_limit() - 1, "the first stream's");
    assert_eq!(own(&mut owners, 0..far + 10, far, 2), None);
    owners.work = 0;
    assert_eq!(owners.own(10..far + 10, USED_PAGE, 2), Ok(10), "no work is left, and none is wanted");
    assert_eq!(owners.users(&(10..far + 10), 2, true), [(1, 1)]);
}

#[test]
fn a_stream_is_alone_again_once_the_others_have_been_idle_and_are_done() {
    let mut owners = two(0..10, 10..20);
    let mut alone_after = None;
    for epoch in 0..5 {
        for (stream, tick) in owners.end_epoch() {
            let event = owners.recorded();
            assert!(event >= tick);
            owners.completed(stream, event);
        }
        owners.drop_done();
        if owners.is_alone(0) {
            alone_after = Some(epoch);
            break;
        }
        owners.note(0..10, 0);
    }
    assert!(alone_after.is_some_and(|epoch| epoch > 0), "{alone_after:?}");
    assert_eq!(owners.admit(1), Some(0), "until another one comes");
}

#[derive(Clone, Debug)]
enum Act {
    Note(u32, u32, u16),
    Forget(u32, u32),
    Complete(u16),
    Wait(u16, u16),
    EndEpoch,
    Drop,
}

fn act() -> impl Strategy<Value = Act> {
    let length = || prop_oneof![1..40u32, 4000..9000u32];
    prop_oneof![
        6 => (0..12_000u32, length(), 0..3u16).prop_map(|(at, length, stream)| Act::Note(at, length, stream)),
        1 => (0..12_000u32, length()).prop_map(|(at, length)| Act::Forget(at, length)),
        1 => (0..3u16).prop_map(Act::Complete),
        1 => (0..3u16, 0..3u16).prop_map(|(stream, other)| Act::Wait(stream, other)),
        1 => Just(Act::EndEpoch),
        1 => Just(Act::Drop),
    ]
}

/// A use of a unit: its stream, and how many uses came before.
type Used = Option<(u16, u64)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    /// The model keeps each unit's last use by its number, and each stream's order exactly.
    #[test]
    fn it_never_forgets_a_use_that_a_model_of_units_remembers(acts in proptest::collection::vec(act(), 1..60)) {
        const LEN: usize = 21_000;
        let mut owners = Owners::new();
        for stream in 0..3 {
            owners.admit(stream);
        }
        let mut units: Vec<Used> = vec![None; LEN];
        let (mut count, mut done, mut after) = (0, [0u64; 3], [[0u64; 3]; 3]);
        for act in acts {
            match act {
                Act::Note(at, length, stream) => {
                    count += 1;
                    // As the arena does.
                    owners.admit(stream);
                    owners.note(at..at + length, stream);
                    units[at as usize..(at + length) as usize].fill(Some((stream, count)));
                }
                Act::Forget(at, length) => {
                    owners.forget(at..at + length);
                    units[at as usize..(at + length) as usize].fill(None);
                }
                Act::Complete(stream) => {
                    let tick = owners.recorded();
                    owners.completed(stream, tick);
                    done[usize::from(stream)] = count;
                }
                Act::Wait(stream, other) if stream != other => {
                    let tick = owners.recorded();
                    owners.waits(stream, other, tick, true);
                    let theirs = after[usize::from(other)];
                    let ours = &mut after[usize::from(stream)];
                    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = theirs.max(*ours));
                    ours[usize::from(other)] = count;
                }
                Act::EndEpoch => drop(owners.end_epoch()),
                Act::Drop => owners.drop_done(),
                Act::Wait(..) => {}
            }
            // A stream that is alone again is not written down.
            if let MemoryOwner::One(one) = owners.owner {
                let others = units.iter().flatten().find(|(stream, number)| *stream != one && *number > done[usize::from(*stream)]);
                prop_assert_eq!(others, None);
                units.fill(Some((one, count)));
                owners.admit((one + 1) % 3);
                owners.note(0..LEN as u32, one);
            }
            for stream in 0..3u16 {
                let is_foreign = |used: &Used| used.filter(|&(other, number)| {
                    other != stream && number > done[usize::from(other)] && number > after[usize::from(stream)][usize::from(other)]
                });
                let expected: std::collections::BTreeSet<u16> = units.iter().filter_map(is_foreign).map(|(other, _)| other).collect();
                let users: std::collections::BTreeSet<u16> = owners.users(&(0..LEN as u32), stream, false).into_iter().map(|(user, _)| user).collect();
                prop_assert!(users.is_superset(&expected), "{users:?} for {expected:?}");
                // Where it says that a stream may go, no use is in the way.
                for width in [1, 7, 50, 5000] {
                    if let Some(start) = own(&mut owners, 0..LEN as u32, width, stream) {
                        let found = &units[start as usize..(start + width) as usize];
                        prop_assert!(found.iter().all(|used| is_foreign(used).is_none()), "{start} for {width}");
                    }
                }
            }
            for (unit, used) in units.iter().enumerate().step_by(7) {
                let unit = unit as u32;
                let said = owners.users(&(unit..unit + 1), u16::MAX - 1, true);
                prop_assert!(said.len() <= 1);
                if let (Some((stream, _)), Some((other, _))) = (used, said.first()) {
                    prop_assert_eq!(stream, other);
                }
                prop_assert!(used.is_some() || said.is_empty(), "nobody used {}", unit);
            }
        }
    }
}
