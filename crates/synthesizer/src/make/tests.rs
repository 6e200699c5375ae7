use super::*;

#[test]
fn what_stays_above_a_room_for_all_is_far_away() {
    assert_eq!(below_room(&[10..20, 30..40, 900..910, 950..960], 500), 2);
    assert_eq!(below_room(&[10..20, 30..40], 500), 2);
    assert_eq!(below_room(&[], 500), 0);
}
