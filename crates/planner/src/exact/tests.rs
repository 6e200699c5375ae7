//! The search finds what is known to exist: rectangles cut from a full one fit below its height again, also when
//! some are missing, so that something must be left empty.

use proptest::prelude::*;

use super::{Choice, Exact, Outcome, Style, Taste};
use crate::problem::{Item, Part};

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
        kind in 0usize..12,
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
        let mut items: Vec<Item> = pieces.iter().enumerate().map(item).collect();
        items.sort_unstable_by_key(|i| (i.lower, std::cmp::Reverse((i.upper, i.size)), i.id));
        // Taken as it is: preparing would take such instances to pieces, as they were cut.
        let part = Part { items, sections: 64, ring: turn.is_some(), bound: 64, ..Part::default() };
        let style = Style {
            choice: [Choice::Fewest, Choice::Few, Choice::Lowest, Choice::Only][kind % 4],
            taste: [Taste::Length, Taste::Area, Taste::Any][kind / 4],
            noise: 1,
            seed: 0,
        };
        let mut exact = Exact::new(&part, 1 << 10);
        prop_assert_eq!(exact.run(64, style, u64::MAX), Outcome::Found);
        prop_assert!(part.items.iter().zip(&exact.offsets).all(|(item, offset)| offset + item.size <= 64));
    }
}
