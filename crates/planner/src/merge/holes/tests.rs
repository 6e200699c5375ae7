use super::*;

fn found(missing: &[u64], most: usize) -> (Vec<Hole>, usize) {
    let mut changes = changes(missing);
    let mut found = holes(&mut changes, most);
    found.sort_unstable();
    (found, changes.len())
}

#[test]
fn what_begins_and_ends_with_one_size_is_a_hole() {
    // 3 during 1..3, and 5 during 2..4 on top of it.
    assert_eq!(found(&[0, 3, 8, 5, 0], 2), (vec![(1, 3, 3), (2, 4, 5)], 0));
    // Of two of one size that are open the later one ends first.
    assert_eq!(found(&[2, 4, 2], 2), (vec![(0, 3, 2), (1, 2, 2)], 0));
}

#[test]
fn holes_that_end_together_are_found_together() {
    // 3 during 0..4 and 4 during 1..4.
    let missing = [3, 7, 7, 7, 0];
    assert_eq!(found(&missing, 2), (vec![], 3));
    let (cells, left) = found(&missing, 3);
    let at = |s: u32| cells.iter().filter(|c| c.0 <= s && s < c.1).map(|c| c.2).sum::<u64>();
    assert_eq!(((0..5).map(at).collect::<Vec<_>>(), left), (missing.to_vec(), 0));
    assert_eq!(cells, [(0, 1, 3), (1, 4, 3), (1, 4, 4)]);
}
