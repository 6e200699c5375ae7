#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use super::*;

#[test]
fn new_pages_are_in_pieces_of_all_lengths_of_which_none_is_longer_than_the_most() {
    let of = |pages| lengths(pages).collect::<Vec<u32>>();
    assert_eq!(of(1), [1]);
    assert_eq!(of(10), [5, 3, 1, 1]);
    assert_eq!(of(100), [32, 32, 18, 9, 5, 2, 1, 1]);
    assert_eq!(of(0), []);
}

#[test]
fn a_piece_is_free_where_no_block_takes_it() {
    let piece =
        |taken: &[(u32, u32)]| PoolPiece { granules: 100, views: vec![0], taken: taken.iter().copied().collect() };
    let some = piece(&[(10, 20), (20, 30), (90, 95)]);
    assert_eq!((some.before(), some.after()), (10, 5));
    assert_eq!(some.free_parts(), [0..10, 30..90, 95..100]);
    for free in [0..10, 30..90, 95..100, 40..41] {
        assert!(some.is_free(&free), "{free:?}");
    }
    for taken in [0..11, 29..31, 89..91, 94..96, 10..11] {
        assert!(!some.is_free(&taken), "{taken:?}");
    }
    let (empty, full) = (piece(&[]), piece(&[(0, 100)]));
    assert_eq!((empty.before(), empty.after(), empty.free_parts()), (100, 100, vec![0..100]));
    assert_eq!((full.before(), full.after(), full.free_parts()), (0, 0, vec![]));
}
