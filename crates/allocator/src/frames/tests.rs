#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use stalloc_device::Counting;

use super::*;

const PAGE: u64 = 2 << 20;
/// Granules of a page.
const G: u32 = (PAGE / GRANULE) as u32;

/// So many frames, none of which has memory, on a device of 1 GiB.
fn frames(count: u64) -> (Counting, Frames) {
    let mut device = Counting::new(1 << 30);
    let frames = Frames::new(&mut device, count * PAGE, 0, 0).unwrap();
    (device, frames)
}

fn parts(frames: &Frames, range: Range<u32>) -> Vec<Range<u32>> {
    frames.mapped_parts(range).collect()
}

#[test]
fn there_is_memory_behind_what_was_mapped_and_nothing_else() {
    let (mut device, mut frames) = frames(8);
    frames.map(&mut device, &(G..3 * G), PAGE).unwrap();
    assert_eq!((frames.mapped(), device.used()), (2 * PAGE, 2 * PAGE));
    for backed in [G..3 * G, G + 5..3 * G - 1, 2 * G..2 * G + 1] {
        assert!(frames.is_backed(&backed) && frames.missing(&backed) == 0, "{backed:?}");
    }
    for (range, missing) in
        [(G - 1..2 * G, 1), (2 * G..3 * G + 1, 1), (0..4 * G, 2), (G - 1..3 * G + 1, 2), (5 * G..7 * G, 2)]
    {
        assert!(!frames.is_backed(&range) && frames.missing(&range) == missing * PAGE, "{range:?}");
    }
    assert_eq!(frames.backed_until(), 0);
    frames.map(&mut device, &(5 * G..5 * G + 1), PAGE).unwrap();
    assert_eq!(parts(&frames, 0..8 * G), [G..3 * G, 5 * G..6 * G]);
    assert_eq!(parts(&frames, G + 7..5 * G + 9), [G + 7..3 * G, 5 * G..5 * G + 9]);
    frames.map(&mut device, &(0..1), PAGE).unwrap();
    assert_eq!((frames.backed_until(), frames.highest), (3 * G, 6));
    assert_eq!(frames.unmap(&mut device, &[5..6, 1..2]).unwrap(), 2 * PAGE);
    assert_eq!((frames.backed_until(), frames.highest, frames.mapped()), (G, 3, 2 * PAGE));
    frames.release(&mut device).unwrap();
    assert_eq!(device.used(), 0);
}

#[test]
fn without_pages_all_of_the_plan_is_there_and_more_as_soon_as_it_is_touched() {
    let mut device = Counting::without_pages(1 << 30);
    let mut frames = Frames::new(&mut device, 4096, 1 << 20, 0).unwrap();
    assert_eq!((frames.frame(), frames.mapped(), frames.backed_until()), (None, 4096, 8));
    assert!(frames.is_backed(&(0..8)) && !frames.is_backed(&(0..9)));
    assert_eq!((frames.missing(&(3..8)), frames.missing(&(0..10))), (0, 1024));
    assert!(frames.pieces(&(0..10), PAGE).is_empty() && frames.handles(&(0..8)).is_empty());
    frames.map(&mut device, &(2..10), 0).unwrap();
    frames.map(&mut device, &(2..4), 0).unwrap();
    assert_eq!((frames.mapped(), frames.backed_until()), (10 * GRANULE, 10));
    assert_eq!(parts(&frames, 3..7), [3..7]);
}

#[test]
fn a_wide_range_is_in_powers_of_two_that_begin_at_multiples_of_their_length() {
    let (mut device, mut frames) = frames(16);
    let wide = G..13 * G;
    assert_eq!(frames.pieces(&wide, 4 * PAGE), [1..2, 2..4, 4..8, 8..12, 12..13]);
    assert_eq!(frames.pieces(&wide, 2 * PAGE + 1), [1..2, 2..4, 4..6, 6..8, 8..10, 10..12, 12..13]);
    assert_eq!(frames.pieces(&(0..4 * G), u64::MAX), [0..4]);
    // A frame of which it covers a part alone is a piece of its own.
    assert_eq!(frames.pieces(&(1..4 * G), u64::MAX), [0..1, 1..2, 2..4]);
    assert_eq!(frames.pieces(&(0..4 * G - 1), u64::MAX), [0..2, 2..3, 3..4]);
    assert_eq!(frames.pieces(&(0..3 * G), 0), [0..1, 1..2, 2..3]);
    frames.map(&mut device, &(5 * G..6 * G), PAGE).unwrap();
    assert_eq!(frames.pieces(&wide, 4 * PAGE), [1..2, 2..4, 4..5, 6..8, 8..12, 12..13]);
    // Each of them is a handle, told by its addresses.
    frames.map(&mut device, &wide, 4 * PAGE).unwrap();
    let base = frames.base();
    let at = |handle: Range<u64>| base + handle.start * PAGE..base + handle.end * PAGE;
    assert_eq!(frames.handles(&(3 * G..7 * G)), [at(2..4), at(4..5), at(5..6), at(6..8)]);
    assert_eq!(frames.handles(&(9 * G..9 * G + 1)), [at(8..12)]);
    assert!(frames.handles(&(12 * G..14 * G)).is_empty(), "memory is missing");
}

#[test]
fn handles_that_reach_beyond_a_range_are_told_from_those_within() {
    let (mut device, mut frames) = frames(16);
    frames.map(&mut device, &(0..12 * G), 4 * PAGE).unwrap();
    frames.map(&mut device, &(12 * G..14 * G), PAGE).unwrap();
    let large = |range: Range<u32>, all| {
        let mut large: Vec<FrameRange> = frames.large(&range, all).collect();
        large.dedup();
        large
    };
    assert_eq!(large(2 * G..9 * G, false), [0..4, 8..12]);
    assert_eq!(large(2 * G..9 * G, true), [0..4, 4..8, 8..12]);
    assert_eq!(large(4 * G..8 * G, false), []);
    assert_eq!(large(4 * G + 1..8 * G, false), [4..8]);
    assert_eq!(large(4 * G..8 * G - 1, false), [4..8]);
    assert_eq!(large(12 * G..16 * G, true), [], "pages, and nothing at all");
}

#[test]
fn empty_handles_are_the_highest_of_each_part_until_there_are_enough() {
    let (mut device, mut frames) = frames(8);
    frames.map(&mut device, &(0..2 * G), 2 * PAGE).unwrap();
    frames.map(&mut device, &(2 * G..8 * G), PAGE).unwrap();
    let all = [0..8 * G];
    assert_eq!(frames.empty_handles(2 * PAGE, &all, |_| true), [7..8, 6..7]);
    assert_eq!(frames.empty_handles(PAGE + 1, &all, |_| true), [7..8, 6..7]);
    assert_eq!(frames.empty_handles(2 * PAGE, &all, |handle| handle.start != 7 * G), [6..7, 5..6]);
    assert_eq!(frames.empty_handles(3 * PAGE, &[6 * G..8 * G, 0..3 * G], |_| true), [7..8, 6..7, 2..3]);
    assert_eq!(frames.empty_handles(u64::MAX, &[0..3 * G], |_| true), [2..3, 0..2]);
    assert_eq!(frames.empty_handles(u64::MAX, &[G..3 * G], |_| true), [2..3], "the other begins before the part");
    assert_eq!(frames.empty_handles(u64::MAX, &[2 * G + 1..4 * G], |_| true), [3..4]);
    frames.unmap(&mut device, &[6..7]).unwrap();
    assert_eq!(frames.empty_handles(2 * PAGE, &all, |_| true), [7..8, 5..6]);
    assert_eq!(frames.empty_handles(0, &all, |_| true), []);
}

#[test]
fn memory_that_goes_elsewhere_is_counted_once() {
    let (mut device, mut frames) = frames(8);
    frames.map(&mut device, &(4 * G..6 * G), 2 * PAGE).unwrap();
    frames.alias(&mut device, &(4..6), &(0..2)).unwrap();
    assert_eq!((frames.mapped(), frames.backed_until(), frames.highest), (2 * PAGE, 2 * G, 2));
    assert!(!frames.is_backed(&(4 * G..5 * G)));
    assert_eq!(frames.handles(&(0..1)).len(), 1);
    frames.unmap_old(&mut device, &(4..6)).unwrap();
    assert_eq!(device.used(), 2 * PAGE);
    frames.map(&mut device, &(4 * G..6 * G), PAGE).unwrap();
    assert_eq!(frames.mapped(), 4 * PAGE);
}

#[test]
fn where_no_large_handle_can_be_had_pages_are_taken_as_far_as_they_go() {
    let mut device = Counting::new(3 * PAGE);
    let mut frames = Frames::new(&mut device, 8 * PAGE, 0, 0).unwrap();
    assert!(frames.map(&mut device, &(0..4 * G), 4 * PAGE).is_err());
    assert_eq!((frames.mapped(), parts(&frames, 0..8 * G)), (3 * PAGE, vec![0..3 * G]));
}

#[test]
fn frames_with_memory_are_found_across_words_of_64() {
    let (mut device, mut frames) = frames(130);
    for frame in [0, 63, 64, 129] {
        frames.map(&mut device, &(frame * G..frame * G + 1), PAGE).unwrap();
    }
    let before = [130, 129, 64, 63, 1, 0].map(|frame| frames.mapped_before(frame));
    assert_eq!(before, [Some(129), Some(64), Some(63), Some(0), Some(0), None]);
    let from = [0, 1, 64, 65, 129].map(|frame| frames.mapped_from(frame, 130));
    assert_eq!(from, [Some(0), Some(63), Some(64), Some(129), Some(129)]);
    assert_eq!((frames.mapped_from(65, 129), frames.mapped_from(1, 63)), (None, None));
}

#[test]
fn a_range_has_a_bit_for_each_of_its_frames_and_no_more() {
    for count in [1, 63, 64, 65, 130] {
        let (_, frames) = frames(count);
        let bits: u32 = frames.unmapped.iter().map(|word| word.count_ones()).sum();
        assert_eq!(u64::from(bits), count);
    }
}

#[test]
fn frames_that_several_ranges_touch_are_counted_once() {
    let mut set = FrameSet::default();
    assert!(set.is_empty());
    set.insert(G - 1..G + 1, PAGE);
    set.insert(0..2 * G, PAGE);
    set.insert(70 * G..70 * G + 1, PAGE);
    assert_eq!((set.len(), set.is_empty()), (3, false));
    let (mut device, mut frames) = frames(80);
    assert_eq!(frames.missing_of(&set), 3 * PAGE);
    frames.map(&mut device, &(G..3 * G), PAGE).unwrap();
    frames.map(&mut device, &(70 * G..71 * G), PAGE).unwrap();
    assert_eq!(frames.missing_of(&set), PAGE);
}
