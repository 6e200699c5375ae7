//! Every solution of what is merged is one of the items.

use std::cmp::Reverse;

use super::Merged;
use crate::bound::loads;
use crate::check::check;
use crate::clock::Until;
use crate::first_fit::FirstFit;
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
    let merged = Merged::new(&part, Until::default()).expect("in time");
    assert_eq!((merged.part.items.len(), merged.part.sections, merged.part.items[0].size), (1, 1, 8));
    let places = merged.expand(&part, &place(&merged.part));
    assert_eq!((places.top, overlap(&part, &places)), (8, false));
}

#[test]
fn a_piece_that_went_to_the_wrong_one_by_chance_is_given_back() {
    // The first goes with either of two that follow it; one of those goes with the last, too.
    let pieces = [(0, 1, 5), (2, 3, 5), (2, 1, 5), (2, 1, 3)];
    let merged = Merged::new(&part(&pieces), Until::default()).expect("in time");
    let lifetimes: Vec<_> = merged.part.items.iter().map(|i| (i.lower, i.upper, i.size)).collect();
    assert_eq!(lifetimes, [(0, 3, 5), (1, 2, 8)]);
}

#[test]
fn what_is_aligned_or_late_is_not_merged() {
    let pieces = [(0, 1, 2), (0, 1, 4), (1, 1, 3)];
    let past = std::time::Instant::now();
    let many: Vec<_> = (0..5000).map(|k| (k, 1, 3)).collect();
    assert!(Merged::new(&part(&many), Until { at: Some(past), stop: None }).is_none());
    let aligned = Part { aligned: true, ..part(&pieces) };
    assert!(Merged::new(&aligned, Until::default()).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_solution_of_what_is_merged_is_one_of_the_items(
        shapes in prop::collection::vec((0u64..8, 0u64..7, 1u64..6), 1..24),
        ring: bool,
    ) {
        let instance = instance(&shapes, ring.then_some(8));
        for part in parts(&instance) {
            let merged = Merged::new(&part, Until::default()).expect("in time");
            prop_assert_eq!(loads(&merged.part).into_iter().max(), loads(&part).into_iter().max());
            let places = place(&merged.part);
            let expanded = merged.expand(&part, &places);
            prop_assert!(!overlap(&merged.part, &places));
            prop_assert!(!overlap(&part, &expanded), "{:?} -> {:?}", part, expanded);
            prop_assert!(expanded.top <= places.top);
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
    let merged = Merged::new(&part, Until::default()).expect("in time");
    let places = merged.expand(&part, &place(&merged.part));
    let mut offsets = vec![0; pieces.len()];
    part.items.iter().zip(&places.offsets).for_each(|(item, &offset)| offsets[item.id as usize] = offset);
    let solution = Solution { offsets, peak: places.top, lower_bound: 64, optimal: true, work: 0 };
    assert_eq!((merged.part.items.len(), check(&instance, &solution)), (1, Ok(())));
}
