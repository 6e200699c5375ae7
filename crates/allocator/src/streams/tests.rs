use proptest::prelude::*;

use super::*;

#[test]
fn one_stream_owns_everything_without_being_written_down() {
    let mut owners = Owners::new(100);
    assert_eq!(owners.foreign(0..100, 0), None);
    owners.take(0..100, 0);
    assert!(owners.ranges.is_empty());
    assert_eq!(owners.foreign(10..20, 1), Some((0, 100)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn it_agrees_with_a_list_of_units(steps in proptest::collection::vec((0..60u32, 1..20u32, 0..3u8), 1..80)) {
        const LEN: u32 = 80;
        let mut owners = Owners::new(LEN);
        owners.foreign(0..LEN, 0);
        owners.foreign(0..LEN, 1);
        let mut model = vec![0u8; LEN as usize];
        for (start, length, stream) in steps {
            let range = start..start + length;
            let units = &mut model[range.start as usize..range.end as usize];
            let expected = units.iter().copied().find(|&owner| owner != stream);
            prop_assert_eq!(owners.foreign(range.clone(), stream).map(|(owner, _)| owner), expected);
            owners.take(range, stream);
            units.fill(stream);
            let mut at = 0;
            for (&from, &(to, owner)) in &owners.ranges {
                prop_assert_eq!(from, at);
                prop_assert!(model[from as usize..to as usize].iter().all(|&unit| unit == owner));
                at = to;
            }
            prop_assert_eq!(at, LEN);
        }
    }
}
