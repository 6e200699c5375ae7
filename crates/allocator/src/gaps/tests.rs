use proptest::prelude::*;

use super::*;

impl Gaps {
    fn all(&self) -> Vec<(u32, u32)> {
        self.chunks.iter().flat_map(|chunk| &chunk.gaps).map(|gap| (gap.start, gap.end)).collect()
    }
}

#[test]
fn the_lowest_place_that_is_wide_enough_is_found() {
    let mut gaps = Gaps::new(100);
    gaps.take_range(10..20);
    gaps.take_range(25..90);
    let first_fit = |window, width| gaps.first_fit(window, width).map(|place| place.start);
    assert_eq!(first_fit(0..100, 5), Some(0));
    assert_eq!(first_fit(8..100, 5), Some(20));
    assert_eq!(first_fit(8..100, 6), Some(90));
    assert_eq!(first_fit(8..95, 6), None);
    assert_eq!(first_fit(0..100, 11), None);
    gaps.give(25..90);
    gaps.give(10..20);
    assert_eq!(gaps.all(), [(0, 100)]);
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
                gaps.give(range.clone());
                taken[range.start as usize..range.end as usize].fill(false);
            } else {
                let window = at.saturating_sub(300)..(at + 200).min(LEN);
                let found = gaps.first_fit(window.clone(), width);
                let expected = (window.start..(window.end + 1).saturating_sub(width))
                    .find(|&start| taken[start as usize..(start + width) as usize].iter().all(|taken| !taken));
                prop_assert_eq!(found.map(|place| place.start), expected);
                if let Some(place) = found {
                    let start = place.start;
                    gaps.take(place, width);
                    taken[start as usize..(start + width) as usize].fill(true);
                    live.push(start..start + width);
                }
            }
        }
        for chunk in &gaps.chunks {
            prop_assert!(!chunk.gaps.is_empty() || gaps.chunks.len() == 1);
            let widest = chunk.gaps.iter().map(|gap| gap.width()).max();
            prop_assert_eq!((chunk.first, chunk.widest), (chunk.gaps.first().map_or(u32::MAX, |gap| gap.start), widest.unwrap_or(0)));
        }
        let units: u32 = gaps.all().iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(units as usize, taken.iter().filter(|taken| !**taken).count());
        for range in live {
            gaps.give(range);
        }
        prop_assert_eq!(gaps.all(), [(0, LEN)]);
    }
}
