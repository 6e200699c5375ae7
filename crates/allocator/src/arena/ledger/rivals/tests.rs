use super::*;
use crate::GRANULE;

#[test]
fn each_stream_and_pool_keeps_the_most_that_it_held() {
    let mut rivals = Rivals::default();
    rivals.alloc(0, SMALL);
    rivals.free(0, SMALL);
    rivals.alloc(0, SMALL + 1);
    rivals.free(0, SMALL + 1);
    rivals.alloc(2, SMALL + 1);
    assert_eq!(rivals.held(), u64::from(3 * SMALL + 2) * GRANULE, "small, large, and large of another stream");
    rivals.alloc(0, SMALL - 1);
    assert_eq!(rivals.held(), u64::from(3 * SMALL + 2) * GRANULE, "there is room for what is less than the most");
    rivals.give_back();
    assert_eq!(rivals.held(), u64::from(2 * SMALL) * GRANULE, "only what lives is held");
}

#[test]
fn what_a_model_says_counts_where_it_is_more_and_not_when_it_is_older_than_what_was_given_back() {
    let mut rivals = Rivals::default();
    rivals.alloc(0, 4096);
    rivals.told(1 << 20, 0);
    assert_eq!(rivals.held(), 4096 * GRANULE, "the least is more");
    rivals.told(1 << 30, 0);
    assert_eq!(rivals.held(), 1 << 30);
    rivals.give_back();
    rivals.told(1 << 30, 0);
    assert_eq!(rivals.held(), 4096 * GRANULE, "it had not heard of that");
    rivals.told(1 << 29, 1);
    assert_eq!(rivals.held(), 1 << 29);
}
