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
