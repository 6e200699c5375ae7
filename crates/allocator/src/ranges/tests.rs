use proptest::prelude::*;

use super::*;

impl RangeSet {
    fn try_insert(&mut self, start: usize, end: usize) -> bool {
        let free = self.is_free(start, end);
        if free {
            self.insert(start, end);
        }
        free
    }
}

#[test]
fn neighbours_do_not_touch() {
    let mut set = RangeSet::new(300_000);
    assert!(set.try_insert(0, 64));
    assert!(set.try_insert(64, 200_000));
    assert!(set.try_insert(200_000, 200_001));
    assert!(set.try_insert(200_001, 300_000));
    assert!(!set.try_insert(299_999, 300_000));
    set.remove(64, 200_000);
    assert!(!set.try_insert(63, 65));
    assert!(!set.try_insert(1000, 200_001));
    assert!(set.try_insert(64, 200_000));
}

#[test]
fn a_word_that_is_not_written_is_still_taken() {
    let mut set = RangeSet::new(64 * 64 * 64);
    set.insert(1, 64 * 64 * 64 - 1);
    assert!(set.is_free(0, 1));
    for unit in [1, 63, 64, 4096, 4097, 100_000, 64 * 64 * 64 - 2] {
        assert!(!set.is_free(unit, unit + 1), "{unit}");
    }
    assert!(set.is_free(64 * 64 * 64 - 1, 64 * 64 * 64));
}

/// Lengths that meet each level's edges.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![1..70usize, (1..70usize).prop_map(|n| n * 64), 1..20_000usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn it_agrees_with_a_list_of_units(
        len in prop_oneof![1..200usize, 4000..4200usize, 20_000..if cfg!(miri) { 20_100 } else { 40_000usize }],
        steps in proptest::collection::vec((0..40_000usize, length(), any::<bool>()), 1..if cfg!(miri) { 8 } else { 60 }),
    ) {
        let mut set = RangeSet::new(len);
        let mut taken = vec![false; len];
        let mut live: Vec<(usize, usize)> = Vec::new();
        for (at, length, remove) in steps {
            if remove && !live.is_empty() {
                let (start, end) = live.swap_remove(at % live.len());
                set.remove(start, end);
                taken[start..end].fill(false);
            } else {
                let start = at % len;
                let end = (start + length).min(len);
                let free = taken[start..end].iter().all(|taken| !taken);
                prop_assert_eq!(set.is_free(start, end), free);
                prop_assert_eq!(set.try_insert(start, end), free);
                if free {
                    taken[start..end].fill(true);
                    live.push((start, end));
                }
            }
        }
        for (start, end) in live {
            set.remove(start, end);
        }
        prop_assert!(set.words.iter().all(|&word| word == 0));
    }
}
