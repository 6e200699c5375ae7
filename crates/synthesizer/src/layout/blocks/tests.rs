use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn blocks_cover_exactly_what_is_taken_and_never_overlap(
        taken in prop::collection::vec((0u64..12, 1u64..6, 0u64..12, 1u64..6), 0..12),
    ) {
        let taken: Vec<Taken> = taken
            .into_iter()
            .map(|(lower, length, start, size)| Taken { lower, upper: lower + length, start, end: start + size })
            .collect();
        let blocks = disjoint(taken.clone());
        for time in 0..18 {
            for address in 0..18 {
                let expected = taken.iter().any(|t| {
                    t.lower <= time && time < t.upper && t.start <= address && address < t.end
                });
                let covering = blocks.iter().filter(|b| {
                    let start = b.fixed.unwrap_or(u64::MAX);
                    b.lower <= time && time < b.upper && start <= address && address < start + b.size
                });
                prop_assert_eq!(covering.count(), usize::from(expected));
            }
        }
    }
}
