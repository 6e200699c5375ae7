#[test]
fn restarts_double_only_when_as_much_was_spent_on_shorter_ones() {
    let lengths: Vec<u64> = (1..=15).map(super::luby).collect();
    assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
}
