#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

impl Gaps {
    fn all(&self) -> Vec<(u32, u32)> {
        self.chunks.iter().flatten().map(|gap| (gap.start, gap.end)).collect()
    }

    fn best(&self, window: Range<u32>, width: u32) -> Option<u32> {
        self.fits(window, width).next().map(|range| range.start)
    }

    /// A hundred units, of which one user gave a part back and another one next to it or not.
    fn of_two(first: Range<u32>, second: Range<u32>) -> Gaps {
        let mut gaps = Gaps::new(100);
        gaps.take(0..100);
        gaps.give_of(first, 0b01);
        gaps.give_of(second, 0b10);
        gaps
    }

    /// The first gap that may be a user's.
    fn own(&self, user: u64) -> Option<Range<u32>> {
        self.fits(0..100, 5).used_by(user).next()
    }
}

#[test]
fn the_tightest_place_is_found_and_the_lowest_of_equals() {
    let mut gaps = Gaps::new(100);
    gaps.take(10..20);
    gaps.take(25..40);
    gaps.take(45..90);
    assert_eq!(gaps.all(), [(0, 10), (20, 25), (40, 45), (90, 100)]);
    assert_eq!(gaps.best(0..100, 5), Some(20));
    assert_eq!(gaps.best(21..100, 5), Some(40));
    assert_eq!(gaps.best(0..100, 6), Some(0));
    assert_eq!(gaps.best(1..100, 6), Some(1));
    assert_eq!(gaps.best(1..95, 6), Some(1));
    assert_eq!(gaps.best(2..100, 6), Some(2), "what lies in the window of a gap that begins before it is tighter");
    assert_eq!(gaps.best(0..100, 11), None);
    gaps.give(25..40);
    gaps.give(45..90);
    gaps.give(10..20);
    assert_eq!(gaps.all(), [(0, 100)]);
}

#[test]
fn a_gap_of_which_others_used_every_part_is_passed_over_until_it_joins_one_of_ours() {
    let mut gaps = Gaps::of_two(10..20, 30..50);
    assert_eq!(gaps.own(0b01), Some(10..20));
    assert_eq!(gaps.own(0b10), Some(30..50));
    assert_eq!(gaps.own(0b100), None);
    gaps.give_of(20..30, 0b100);
    assert_eq!(gaps.own(0b10), Some(10..50));
    gaps.take(15..45);
    assert_eq!(gaps.own(0b100), Some(10..15), "what is left may be anybody's");
    gaps.give(60..90);
    assert_eq!(gaps.fits(55..100, 5).used_by(0b100).next(), Some(60..90), "nobody's is everybody's");
}

#[test]
fn many_gaps_lie_in_short_chunks_and_join_across_their_borders() {
    let mut gaps = Gaps::new(4000);
    (0..1000).for_each(|number| gaps.take(4 * number + 1..4 * number + 4));
    assert_eq!(gaps.all().len(), 1000);
    assert!(gaps.chunks.iter().all(|chunk| (CHUNK / 2..=CHUNK).contains(&chunk.len())));
    assert_eq!(
        (gaps.last(), gaps.starting_by(2003), gaps.starting_by(2004)),
        (Some(3996..3997), Some(2000..2001), Some(2004..2005))
    );
    gaps.take(0..1);
    assert_eq!(gaps.starting_by(3), None);
    gaps.give(2001..2003);
    assert_eq!(gaps.of_width(3).map(|gap| (gap.start, gap.end)).collect::<Vec<_>>(), [(2000, 2003)]);
    assert_eq!(gaps.of_width(1).count(), 999);
    // Each gap joins its neighbours, those of the next chunk too.
    (1..999).for_each(|number| gaps.give(gaps.starting_by(4 * number).unwrap().end..4 * number + 4));
    assert_eq!(gaps.all(), [(4, 3997)]);
    assert_eq!(gaps.chunks.len(), 1);
}

#[test]
fn the_widest_gap_is_found_by_its_class() {
    let mut gaps = Gaps::new(u32::MAX);
    assert_eq!(gaps.best(0..u32::MAX, 1 << 20), Some(0));
    gaps.take(1 << 30..u32::MAX);
    assert_eq!(gaps.best(0..u32::MAX, 1 << 30), Some(0));
    assert_eq!(gaps.best(0..u32::MAX, (1 << 30) + 1), None);
}

#[test]
fn whose_a_gap_is_can_be_learnt_by_looking() {
    let mut gaps = Gaps::of_two(10..20, 20..50);
    gaps.take(20..50);
    assert_eq!(gaps.own(0b10), Some(10..20), "the part of the other is gone, but who knows");
    let mut within = gaps.fits(0..15, 5);
    assert_eq!(within.next(), Some(10..15));
    within.narrow(0b101);
    assert_eq!(gaps.own(0b10), Some(10..20), "the other part may lie beyond the window");
    let mut fits = gaps.fits(0..100, 5).used_by(0b10);
    fits.next();
    fits.narrow(0b101);
    assert_eq!(gaps.own(0b10), None);
    assert_eq!(gaps.own(0b01), Some(10..20));
    assert_eq!(gaps.own(0b100), None, "it says no more than was known");
}

#[test]
fn widths_of_a_class_differ_by_a_quarter_at_most() {
    for width in 1..100_000u32 {
        assert!(class(width) <= class(width + 1));
        assert!(class(width) < class(width + width.div_ceil(4).max(1)), "{width}");
    }
    assert_eq!(class(u32::MAX), CLASSES - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn it_agrees_with_a_list_of_units(
        steps in proptest::collection::vec((0..2000u32, 1..12u32, any::<bool>()), 1..if cfg!(miri) { 40 } else { 1500 }),
    ) {
        const LEN: u32 = 2000;
        let mut gaps = Gaps::new(LEN);
        let mut taken = vec![false; LEN as usize];
        let mut live: Vec<Range<u32>> = Vec::new();
        for (at, width, give) in steps {
            if give && !live.is_empty() {
                let range = live.swap_remove(at as usize % live.len());
                gaps.give_of(range.clone(), 1);
                taken[range.start as usize..range.end as usize].fill(false);
            } else {
                let window = at.saturating_sub(300)..(at + 200).min(LEN);
                let free = |start: u32| taken[start as usize..(start + width) as usize].iter().all(|taken| !taken);
                let is_any = (window.start..(window.end + 1).saturating_sub(width)).any(free);
                let found = gaps.best(window.clone(), width);
                prop_assert_eq!(found.is_some(), is_any);
                if let Some(start) = found {
                    prop_assert!(free(start) && window.start <= start && start + width <= window.end);
                    gaps.take(start..start + width);
                    taken[start as usize..(start + width) as usize].fill(true);
                    live.push(start..start + width);
                }
            }
        }
        prop_assert!(gaps.chunks.iter().all(|chunk| !chunk.is_empty() || gaps.chunks.len() == 1));
        let mut classified: Vec<(u32, u32)> = gaps.classes.iter().flatten().map(|used| (used.gap.start, used.gap.end)).collect();
        classified.sort_unstable();
        prop_assert_eq!(classified, gaps.all());
        for (class, list) in gaps.classes.iter().enumerate() {
            prop_assert_eq!(gaps.filled >> class & 1 == 1, !list.is_empty());
        }
        let units: u32 = gaps.all().iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(units as usize, taken.iter().filter(|taken| !**taken).count());
        for range in live {
            gaps.give(range);
        }
        prop_assert_eq!(gaps.all(), [(0, LEN)]);
    }
}
