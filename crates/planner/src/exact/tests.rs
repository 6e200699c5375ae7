//! The search finds what is known to exist: rectangles cut from a full one fit below its height again.

use proptest::prelude::*;

use super::{Choice, Exact, Outcome, Style, Taste};
use crate::problem::prepare;
use crate::{Buffer, Instance};

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
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rectangles_cut_from_a_full_one_fit_again_in_every_style(
        cuts in prop::collection::vec((any::<bool>(), 1u64..16), 1..11),
        turn in prop::option::of(0u64..64),
        kind in 0usize..12,
    ) {
        let mut pieces = vec![(0, 64, 64)];
        cuts.into_iter().for_each(|how| cut(&mut pieces, how));
        // In a ring the cycle may begin anywhere: what would begin beyond its end begins that much later.
        let turned = |lower: u64| turn.map_or(lower, |turn| (lower + turn) % 64);
        let buffer = |&(lower, upper, size): &(u64, u64, u64)| {
            Buffer { lower: turned(lower), upper: turned(lower) + upper - lower, size, alignment: 1, fixed: None }
        };
        let instance = Instance { buffers: pieces.iter().map(buffer).collect(), period: turn.map(|_| 64) };
        let problem = prepare(&instance).expect("it makes sense");
        let style = Style {
            choice: [Choice::Fewest, Choice::Few, Choice::Lowest, Choice::Only][kind % 4],
            taste: [Taste::Length, Taste::Area, Taste::Any][kind / 4],
            noise: 1,
            seed: 0,
        };
        for part in &problem.parts {
            let mut exact = Exact::new(part, 1 << 10);
            prop_assert_eq!(exact.run(part.bound, style, u64::MAX), Outcome::Found);
            let top = part.items.iter().zip(&exact.offsets).map(|(item, offset)| offset + item.size).max();
            prop_assert!(top.unwrap_or(0) <= part.bound);
        }
    }
}
