use super::*;

#[test]
fn a_unit_is_in_once_however_often_it_is_inserted_and_can_come_back_once_it_was_taken_out() {
    let mut marks = Marks::new(130);
    for unit in [129, 0, 64, 129, 0] {
        marks.insert(unit);
    }
    let mut taken: Vec<u32> = std::iter::from_fn(|| marks.pop()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 64, 129]);
    marks.insert(129);
    assert_eq!((marks.pop(), marks.pop()), (Some(129), None));
}
