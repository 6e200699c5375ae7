//! What is merged keeps its load within the limit, and every solution of it is one of the items.

use std::cmp::Reverse;

use super::blocks::Blocks;
use super::fill::fill;
use super::{Lossy, Merged};
use crate::bound::loads;
use crate::check::check;
use crate::clock::Until;
use crate::first_fit::FirstFit;
use crate::hash::Rng;
use crate::part::{Item, Part, Places};
use crate::prepare::prepare;
use crate::{Buffer, Instance, Solution};
use proptest::prelude::*;

fn instance(shapes: &[(u64, u64, u64)], period: Option<u64>) -> Instance {
    let buffer = |&(lower, length, size): &(u64, u64, u64)| Buffer {
        lower,
        upper: lower + 1 + length,
        size,
        alignment: 1,
        fixed: None,
    };
    Instance { buffers: shapes.iter().map(buffer).collect(), period, ..Instance::default() }
}

fn parts(instance: &Instance) -> Vec<Part> {
    prepare(instance).map(|problem| problem.parts).unwrap_or_default()
}

/// Pieces of a line as they are: whole times are sections.
fn part(shapes: &[(u64, u64, u64)]) -> Part {
    let make = |(&(lower, length, size), id): (&(u64, u64, u64), u32)| Item {
        lower: lower as u32,
        upper: (lower + 1 + length) as u32,
        size,
        align: 1,
        id,
    };
    let mut items: Vec<Item> = shapes.iter().zip(0..).map(make).collect();
    items.sort_unstable_by_key(|i| (i.lower, Reverse((i.upper, i.size)), i.id));
    let sections = items.iter().map(|i| i.upper).max().unwrap_or(0);
    let mut part = Part { items, sections, ..Part::default() };
    part.bound = loads(&part).into_iter().max().unwrap_or(0);
    part
}

fn lossy(part: &Part, instance: &Instance, limit: u64, k: u64) -> Merged {
    Merged::lossy(part, Lossy { instance, limit, k, seed: k, length: 1, left: 100_000 }, Until::default())
        .expect("in time")
}

/// Any solution.
fn place(part: &Part) -> Places {
    let order: Vec<u32> = (0..part.items.len() as u32).collect();
    Places::new(part, FirstFit::new(part).run(&order, u64::MAX, u64::MAX).expect("no limit"))
}

fn overlap(part: &Part, places: &Places) -> bool {
    let section = |s: u32| s % part.sections;
    let lives = |k: usize, s: u32| (part.items[k].lower..part.items[k].upper).any(|t| section(t) == s);
    let above = |j: usize, k: usize| places.offsets[j] + part.items[j].size <= places.offsets[k];
    let meet = |j: usize, k: usize| (0..part.sections).any(|s| lives(j, s) && lives(k, s));
    let n = part.items.len();
    (0..n).any(|k| (0..k).any(|j| meet(j, k) && !above(j, k) && !above(k, j)))
}

#[test]
fn a_rectangle_is_put_together_from_its_pieces() {
    // 3 over 5 during 0..4; 2 and 6 after it, the 6 in two halves of the time.
    let pieces = [(0, 3, 3), (0, 3, 5), (4, 3, 2), (4, 1, 6), (6, 1, 6)];
    let part = part(&pieces);
    let merged = Merged::exact(&part, Until::default()).expect("in time");
    assert_eq!((merged.part.items.len(), merged.part.sections, merged.part.items[0].size), (1, 1, 8));
    let places = merged.expand(&part, &place(&merged.part));
    assert_eq!((places.top, overlap(&part, &places)), (8, false));
}

#[test]
fn a_piece_that_went_to_the_wrong_one_by_chance_is_given_back() {
    // The first goes with either of two that follow it; one of those goes with the last, too.
    let pieces = [(0, 1, 5), (2, 3, 5), (2, 1, 5), (2, 1, 3)];
    let merged = Merged::exact(&part(&pieces), Until::default()).expect("in time");
    let lifetimes: Vec<_> = merged.part.items.iter().map(|i| (i.lower, i.upper, i.size)).collect();
    assert_eq!(lifetimes, [(0, 3, 5), (1, 2, 8)]);
}

#[test]
fn where_a_piece_is_missing_its_neighbour_takes_its_place_if_there_is_room() {
    // A rectangle of 8 by 8: 5 during 0..8 over 3, of which 2..8 is missing above 1.
    let pieces = [(0, 7, 5), (0, 1, 3), (2, 5, 1), (8, 1, 8)];
    let part = part(&pieces);
    let items = |limit: u64| lossy(&part, &instance(&pieces, None), limit, 0).part.items.len();
    assert_eq!((items(8), items(7)), (1, 4));
}

/// Lifetimes of a cut square, each less by up to one in twenty at its ends.
fn shortened(pieces: usize, seed: u64) -> Vec<(u64, u64, u64)> {
    let mut rng = Rng::new(seed);
    let mut less = |(lower, length, size): (u64, u64, u64)| {
        let (before, after) = (rng.next() % (length / 40 + 1), rng.next() % (length / 40 + 1));
        (lower + before, length - before - after, size)
    };
    cut_square(pieces, seed).into_iter().map(&mut less).collect()
}

#[test]
fn a_cut_square_is_put_together_from_pieces_whose_ends_have_noise() {
    // In a ring, too, where nothing lives at some time.
    for period in [None, Some((1 << 20) + 1000)] {
        let turn = |(lower, length, size): (u64, u64, u64)| {
            (period.map_or(lower, |period| (lower + 300_000) % period), length, size)
        };
        let pieces: Vec<_> = shortened(100, 5).into_iter().map(turn).collect();
        let instance = instance(&pieces, period);
        let parts = parts(&instance);
        let [part] = &parts[..] else { panic!("one part") };
        let how = Lossy { instance: &instance, limit: 1 << 20, k: 0, seed: 1, length: 1, left: 2_000_000 };
        let merged = Merged::lossy(part, how, Until::default()).expect("in time");
        assert!(merged.part.items.len() < 25, "{}", merged.part.items.len());
        let places = merged.expand(part, &place(&merged.part));
        assert!(!overlap(part, &places));
    }
}

#[test]
fn what_is_aligned_or_late_is_not_merged() {
    let pieces = [(0, 1, 2), (0, 1, 4), (1, 1, 3)];
    let past = std::time::Instant::now();
    let many: Vec<_> = (0..5000).map(|k| (k, 1, 3)).collect();
    assert!(Merged::exact(&part(&many), Until { at: Some(past), stop: None }).is_none());
    let aligned = Part { aligned: true, ..part(&pieces) };
    assert!(Merged::exact(&aligned, Until::default()).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_solution_of_what_is_merged_is_one_of_the_items(
        shapes in prop::collection::vec((0u64..8, 0u64..7, 1u64..6), 1..24),
        ring: bool,
        above in 0u64..4,
        k in 0u64..6,
    ) {
        let instance = instance(&shapes, ring.then_some(8));
        for part in parts(&instance) {
            let limit = part.bound + above;
            let exact = Merged::exact(&part, Until::default()).expect("in time");
            let lossy = lossy(&part, &instance, limit, k);
            prop_assert_eq!(exact.part.bound, part.bound);
            let load = loads(&lossy.part).into_iter().max().unwrap_or(0);
            prop_assert!(part.base + load <= limit);
            for merged in [exact, lossy] {
                let places = place(&merged.part);
                let expanded = merged.expand(&part, &places);
                prop_assert!(!overlap(&merged.part, &places));
                prop_assert!(!overlap(&part, &expanded), "{:?} -> {:?}", part, expanded);
                prop_assert!(expanded.top <= places.top);
            }
        }
    }
}

#[test]
fn a_cut_rectangle_is_solved_by_merging_alone() {
    let mut pieces = vec![(0u64, 63u64, 64u64)];
    // Each in two, in time and in size by turns.
    for round in 0..10 {
        pieces = pieces
            .into_iter()
            .flat_map(|(lower, length, size)| match round % 2 {
                0 => [(lower, length / 2, size), (lower + length / 2 + 1, length / 2, size)],
                _ => [(lower, length, size / 2), (lower, length, size - size / 2)],
            })
            .collect();
    }
    let instance = instance(&pieces, None);
    let part = part(&pieces);
    let merged = Merged::exact(&part, Until::default()).expect("in time");
    let places = merged.expand(&part, &place(&merged.part));
    let mut offsets = vec![0; pieces.len()];
    part.items.iter().zip(&places.offsets).for_each(|(item, &offset)| offsets[item.id as usize] = offset);
    let solution = Solution { offsets, peak: places.top, lower_bound: 64, optimal: true, work: 0 };
    assert_eq!((merged.part.items.len(), check(&instance, &solution)), (1, Ok(())));
}

/// A square, the largest piece cut in two until there are so many.
fn cut_square(pieces: usize, seed: u64) -> Vec<(u64, u64, u64)> {
    let (mut rng, side) = (Rng::new(seed), 1 << 20);
    let mut all = std::collections::BTreeMap::from([((1u64 << 40, 0), (0u64, side, side))]);
    for cut in 1..pieces as u64 {
        let Some((_, (lower, length, size))) = all.pop_last() else { break };
        let within = |n: u64, random: u64| n / 4 + random % (n / 2);
        let (first, second) = if length > size {
            let at = within(length, rng.next());
            ((lower, at, size), (lower + at, length - at, size))
        } else {
            let at = within(size, rng.next());
            ((lower, length, at), (lower, length, size - at))
        };
        all.insert((first.1 * first.2, 2 * cut), first);
        all.insert((second.1 * second.2, 2 * cut + 1), second);
    }
    all.into_values().map(|(lower, length, size)| (lower, length - 1, size)).collect()
}

/// The same without every tenth, but for those that live at the middle.
fn torn(pieces: usize, seed: u64) -> Vec<(u64, u64, u64)> {
    let side = 1 << 20;
    let at_the_middle = |p: &(u64, u64, u64)| p.0 <= side / 2 && side / 2 <= p.0 + p.1;
    let there = |(k, p): &(usize, (u64, u64, u64))| k % 10 > 0 || at_the_middle(p);
    cut_square(pieces, seed).into_iter().enumerate().filter(there).map(|(_, piece)| piece).collect()
}

#[test]
fn a_rectangle_with_pieces_missing_is_put_together_where_the_loads_tell_of_them() {
    for seed in 1..6 {
        let pieces = torn(400, seed);
        assert!(pieces.len() < 390);
        let instance = instance(&pieces, None);
        let parts = parts(&instance);
        let [part] = &parts[..] else { panic!("one part") };
        let how = Lossy { instance: &instance, limit: part.bound, k: 0, seed: 1, length: 1, left: 20_000_000 };
        let merged = Merged::lossy(part, how, Until::default()).expect("in time");
        let exact = Merged::exact(part, Until::default()).expect("in time");
        assert_eq!(merged.part.items.len(), 1, "seed {seed}; {} with nothing lost", exact.part.items.len());
        assert!(exact.part.items.len() > 10);
        let places = merged.expand(part, &place(&merged.part));
        assert_eq!((places.top, overlap(part, &places)), (part.bound, false));
    }
}

/// A torn rectangle and, after it, so many pieces that go with nothing.
fn torn_and_others(count: u64) -> Vec<(u64, u64, u64)> {
    let mut pieces = torn(400, 1);
    let end = pieces.iter().map(|p| p.0 + p.1 + 1).max().unwrap_or(0);
    let mut rng = Rng::new(1);
    pieces.extend((0..count).map(|k| (end + 4 * k, 5 + rng.next() % 20, 1 + rng.next() % 10_000)));
    pieces
}

#[test]
fn filling_in_that_comes_to_nothing_is_given_up_soon_and_undone() {
    // Where more than half of what is merged with nothing lost is left, and where much less is, but no try brings more.
    for others in [400, 60] {
        let pieces = torn_and_others(others);
        let part = part(&pieces);
        let mut blocks = Blocks::new(&part, part.bound, Until::default());
        blocks.merge_all();
        let (count, room) = (blocks.count, blocks.room().to_vec());
        let (likely, done) = fill(&mut blocks, &mut Rng::new(1), (20_000_000, u64::MAX));
        assert!(!likely && done < 8_000_000, "{others}: {likely}, {done}");
        assert_eq!((blocks.count, blocks.room()), (count, &room[..]));
    }
}

#[test]
fn four_around_a_fifth_are_one() {
    // Of 9 by 12: at the bottom 0..6 and 6..9, on top of those 0..2 and 2..9, in the middle 2..6.
    let pieces = [(0, 5, 4), (6, 2, 7), (0, 1, 8), (2, 6, 5), (2, 3, 3)];
    for mirrored in [false, true] {
        let turn = |&(lower, length, size): &(u64, u64, u64)| {
            if mirrored { (8 - lower - length, length, size) } else { (lower, length, size) }
        };
        let part = part(&pieces.iter().map(turn).collect::<Vec<_>>());
        let merged = Merged::exact(&part, Until::default()).expect("in time");
        assert_eq!((merged.part.items.len(), merged.part.items[0].size), (1, 12));
        let places = merged.expand(&part, &place(&merged.part));
        assert_eq!((places.top, overlap(&part, &places)), (12, false));
    }
    // One of them a little smaller.
    let smaller = [(0, 5, 4), (6, 2, 7), (0, 1, 8), (2, 6, 4), (2, 3, 3)];
    assert_eq!(Merged::exact(&part(&smaller), Until::default()).expect("in time").part.items.len(), 5);
}
