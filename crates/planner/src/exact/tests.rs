//! The search finds what is known to exist: rectangles cut from a full one fit below its height again, also when
//! some are missing, so that something must be left empty. And what it calls impossible is: trying all orders finds
//! no better.

use proptest::prelude::*;

use super::{Choice, Exact, SearchOutcome, Style, Taste};
use crate::model::{Buffer, Instance};
use crate::part::{Item, Part};

#[path = "../../tests/it/brute/mod.rs"]
mod brute;

/// The number of styles that [`style`] tells apart.
const STYLES: usize = 12;

fn style(kind: usize) -> Style {
    Style {
        choice: [Choice::Fewest, Choice::Few, Choice::Lowest][kind % 3],
        taste: [Taste::Length, Taste::Area, Taste::Any][kind / 4],
        noise: 1,
        seed: 0,
        fit: false,
    }
}

fn part(mut items: Vec<Item>, sections: u32, ring: bool) -> Part {
    items.sort_unstable_by_key(|i| (i.lower, std::cmp::Reverse((i.upper, i.size)), i.id));
    Part { items, sections, ring, ..Part::default() }
}

/// Cuts the largest of some rectangles `(lower, upper, size)`, in time or in address, at a share in 16.
fn cut(pieces: &mut Vec<(u64, u64, u64)>, (in_time, share): (bool, u64)) {
    pieces.sort_unstable_by_key(|&(lower, upper, size)| (upper - lower) * size);
    let Some(&(lower, upper, size)) = pieces.last() else { return };
    let (width, height) = ((upper - lower) * share / 16, size * share / 16);
    if in_time && width > 0 {
        pieces.pop();
        pieces.extend([(lower, lower + width, size), (lower + width, upper, size)]);
    } else if !in_time && height > 0 {
        pieces.pop();
        pieces.extend([(lower, upper, height), (lower, upper, size - height)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30000))]

    #[test]
    fn rectangles_cut_from_a_full_one_fit_again_in_every_style(
        cuts in prop::collection::vec((any::<bool>(), 1u64..16), 1..16),
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..7),
        turn in prop::option::of(0u64..64),
        kind in 0..STYLES,
    ) {
        let mut pieces = vec![(0, 64, 64)];
        cuts.into_iter().for_each(|how| cut(&mut pieces, how));
        for which in missing.iter().take(pieces.len() - 1) {
            pieces.swap_remove(which.index(pieces.len()));
        }
        // In a ring the cycle may begin anywhere: what would begin beyond its end begins that much later.
        let turned = |lower: u64| turn.map_or(lower, |turn| (lower + turn) % 64);
        let item = |(id, &(lower, upper, size)): (usize, &(u64, u64, u64))| Item {
            lower: turned(lower) as u32,
            upper: (turned(lower) + upper - lower) as u32,
            size,
            align: 1,
            id: id as u32,
        };
        // Taken as it is: preparing would take such instances to pieces, as they were cut.
        let part = part(pieces.iter().enumerate().map(item).collect(), 64, turn.is_some());
        let mut exact = Exact::new(&part);
        prop_assert_eq!(exact.run(64, style(kind), u64::MAX), SearchOutcome::Found);
        prop_assert!(part.items.iter().zip(&exact.offsets).all(|(item, offset)| offset + item.size <= 64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn what_it_calls_impossible_no_order_of_placement_reaches(
        ring in any::<bool>(),
        sections in 3u32..7,
        shapes in prop::collection::vec((0u32..6, 0u32..5, 1u64..6, 0u32..2), 1..8),
        kind in 0..STYLES,
    ) {
        let item = |(id, &(lower, length, size, align)): (usize, &(u32, u32, u64, u32))| {
            let lower = lower % sections;
            // Nothing lives through all of it: preparing puts such items below the rest.
            let longest = if ring { sections - 1 } else { sections - lower };
            Item { lower, upper: lower + 1 + length % longest, size, align: 1 << align, id: id as u32 }
        };
        let part = part(shapes.iter().enumerate().map(item).collect(), sections, ring);
        let buffer = |i: &Item| Buffer { lower: i.lower.into(), upper: i.upper.into(), size: i.size, alignment: i.align, fixed: None };
        let buffers = part.items.iter().map(buffer).collect();
        let best = brute::best(&Instance { buffers, period: ring.then_some(sections.into()), ..Instance::default() }).unwrap();
        let mut exact = Exact::new(&part);
        prop_assert_eq!(exact.run(best, style(kind), u64::MAX), SearchOutcome::Found);
        prop_assert!(part.items.iter().zip(&exact.offsets).all(|(item, offset)| offset + item.size <= best));
        prop_assert_eq!(exact.run(best - 1, style(kind), u64::MAX), SearchOutcome::Impossible);
    }
}
