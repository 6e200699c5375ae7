//! A beam's answers are solutions below the limit, and width helps.

use super::{Beam, Manner, Where};
use crate::hash::Rng;
use crate::problem::{Item, Part, prepare};
use crate::{Buffer, Instance};
use proptest::prelude::*;

fn manner(kind: usize, width: usize, seed: u64) -> Manner {
    let valley = [Where::Leftmost, Where::Lowest][kind % 2];
    let (squared, weighted) = ((kind / 2).is_multiple_of(2), (kind / 4).is_multiple_of(2));
    Manner { width, valley, squared, weighted, noise: (kind / 8) as u64, seed }
}

/// Whether no two items overlap and none ends above the limit.
fn is_solution(part: &Part, offsets: &[u64], limit: u64) -> bool {
    let apart = |(a, x): (&Item, u64), (b, y): (&Item, u64)| {
        a.upper <= b.lower || b.upper <= a.lower || x + a.size <= y || y + b.size <= x
    };
    let pairs = |k: usize| (0..k).all(|j| apart((&part.items[j], offsets[j]), (&part.items[k], offsets[k])));
    (0..offsets.len()).all(|k| offsets[k] >= part.base && offsets[k] + part.items[k].size <= limit && pairs(k))
}

/// The parts of an instance of `(lower, length, size)`.
fn parts(shapes: &[(u64, u64, u64)]) -> Vec<Part> {
    let buffer = |&(lower, length, size): &(u64, u64, u64)| Buffer {
        lower,
        upper: lower + 1 + length,
        size,
        alignment: 1,
        fixed: None,
    };
    let instance = Instance { buffers: shapes.iter().map(buffer).collect(), period: None };
    prepare(&instance).map(|problem| problem.parts).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_a_beam_finds_is_a_solution_below_the_limit(
        shapes in prop::collection::vec((0u64..200, 0u64..40, 1u64..50), 1..150),
        slack in 0u64..40,
        kind in 0usize..16,
        width in 1usize..20,
        mirrored in any::<bool>(),
    ) {
        for part in parts(&shapes) {
            let limit = part.bound + part.bound * slack / 100;
            if let Some(offsets) = Beam::new(&part, mirrored).run(limit, manner(kind, width, 1), u64::MAX, None) {
                prop_assert!(is_solution(&part, &offsets, limit));
            }
        }
    }
}

/// Rectangles cut from a full one of 64 by 64, every eighth missing.
fn pieces(seed: u64) -> Vec<(u64, u64, u64)> {
    let mut rng = Rng::new(seed);
    let mut all = vec![(0, 64, 64)];
    while all.len() < 60 {
        let k = (0..all.len()).max_by_key(|&k| (all[k].1 * all[k].2, k)).unwrap_or(0);
        let (lower, length, size): (u64, u64, u64) = all.swap_remove(k);
        if length > size {
            let first = 1 + rng.next() % (length - 1);
            all.extend([(lower, first, size), (lower + first, length - first, size)]);
        } else {
            let first = 1 + rng.next() % (size - 1).max(1);
            all.extend([(lower, length, first), (lower, length, size - first)]);
        }
    }
    let all = all.into_iter().enumerate().filter(|(k, p)| k % 8 != 0 && p.2 > 0);
    all.map(|(_, (lower, length, size))| (lower, length - 1, size)).collect()
}

#[test]
fn wide_beams_find_what_narrow_ones_miss() {
    let solved = |width: usize| -> usize {
        let all = (0..30).flat_map(|seed| parts(&pieces(seed)));
        all.filter(|part| Beam::new(part, false).run(64, manner(0, width, 1), u64::MAX, None).is_some()).count()
    };
    let (narrow, wide) = (solved(1), solved(200));
    assert!(wide > narrow && wide >= 25, "width 1 solves {narrow}, width 200 solves {wide}");
}

#[test]
fn a_beam_ends_where_its_work_does() {
    let shapes: Vec<(u64, u64, u64)> = (0..300).map(|k| (k * 7 % 100, k % 13, 1 + k % 29)).collect();
    for part in parts(&shapes) {
        let mut beam = Beam::new(&part, false);
        assert_eq!(beam.run(part.bound * 2, manner(0, 100, 1), 1000, None), None);
        assert!(beam.work < 200_000, "it did {} units", beam.work);
    }
}
