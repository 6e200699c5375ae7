#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use super::*;

const PAGE: u64 = 2 << 20;

fn exchanged(
    pieces: &[FrameRange],
    empty: &[FrameRange],
    pages: u64,
) -> (Vec<(FrameRange, FrameRange)>, Vec<FrameRange>) {
    exchange(pieces.to_vec(), empty.to_vec(), pages * PAGE, Some(PAGE))
}

#[test]
fn a_handle_goes_behind_a_piece_of_its_length() {
    assert_eq!(exchanged(&[0..4, 4..5], &[9..10, 12..16], 5), (vec![(12..16, 0..4), (9..10, 4..5)], vec![]));
    // As far as there are bytes to be had: less than a page is one.
    assert_eq!(exchanged(&[0..1, 1..2, 2..3], &[9..10, 8..9, 7..8], 2).0, [(9..10, 0..1), (8..9, 1..2)]);
    assert_eq!(exchange(vec![0..1, 1..2], vec![9..10, 8..9], PAGE + 1, Some(PAGE)).0.len(), 2);
}

#[test]
fn a_piece_is_halved_until_there_are_handles_for_its_parts() {
    assert_eq!(exchanged(&[0..4], &[9..10, 8..9, 6..8], 4).0, [(6..8, 0..2), (9..10, 2..3), (8..9, 3..4)]);
}

#[test]
fn what_has_no_piece_of_its_length_is_given_back_as_far_as_memory_is_missing() {
    assert_eq!(exchanged(&[0..1], &[8..12], 1), (vec![], vec![8..12]));
    assert_eq!(exchanged(&[0..1], &[8..12, 9..10], 1), (vec![(9..10, 0..1)], vec![]));
    assert_eq!(exchanged(&[0..1, 1..2, 2..3], &[8..12, 12..14, 14..16], 3), (vec![], vec![12..14, 14..16]));
}
