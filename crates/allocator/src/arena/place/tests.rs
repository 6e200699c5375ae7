#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use stalloc_plan::Plan;

use super::*;

const PAGE: u64 = 2 << 20;

fn place(granules: u32) -> Place {
    Place::new(Script::new(&Plan { alignment: 512, ..Plan::default() }).expect("a plan"), granules)
}

fn block(granules: u32) -> Block {
    Block::new(Key::new(granules, 0), 0)
}

/// Where a block of so many granules fits best; where other streams may have been, too.
fn tightest(place: &mut Place, granules: u32) -> Option<u32> {
    tightest_for(place, granules, true)
}

fn tightest_for(place: &mut Place, granules: u32, allow_others: bool) -> Option<u32> {
    let all = 0..place.len();
    place.tightest(&mut crate::streams::Owners::new(), all, Key::new(granules, 0), allow_others)
}

#[test]
fn a_range_is_free_again_only_when_its_block_was_given() {
    let mut place = place(100);
    place.take(10, block(20), true);
    assert!(place.is_free(&(0..10)) && !place.is_free(&(29..31)) && place.is_free(&(30..100)));
    let removed = place.remove(10).expect("it was taken");
    assert!(!place.is_free(&(10..11)) && place.block(10).is_none());
    place.keep_pending(10, removed);
    assert!(place.block(10).is_some_and(|block| block.pending));
    let removed = place.remove(10).expect("it was kept");
    place.give(10, removed);
    assert!(place.is_free(&(0..100)));
    assert_eq!(tightest(&mut place, 100), Some(0));
}

#[test]
fn a_block_is_found_by_any_granule_in_it_cut_out_of_the_gaps_or_not() {
    let mut place = place(100);
    place.take(0, block(10), true);
    place.take(10, block(10), true);
    place.take(40, block(10), false);
    let start = |granule| place.block_at(granule).map(|(start, _)| start);
    assert_eq!(
        [0, 9, 10, 19, 20, 39, 40, 49, 50].map(start),
        [0, 0, 10, 10].map(Some).into_iter().chain([None, None, Some(40), Some(40), None]).collect::<Vec<_>>()[..]
    );
}

#[test]
fn the_search_sees_blocks_at_planned_addresses_once_it_looks_there() {
    let mut place = place(100);
    place.script.granules = 50;
    place.take(0, block(60), false);
    assert_eq!(tightest(&mut place, 40), Some(60));
    assert_eq!(tightest(&mut place, 41), None);
}

#[test]
fn where_nobody_has_been_a_block_goes_that_fits_there_and_no_other() {
    let mut place = place(100);
    place.take(0, block(70), true);
    assert_eq!([30, 31].map(|granules| tightest_for(&mut place, granules, false)), [Some(70), None]);
}

#[test]
fn a_gap_is_left_out_of_which_more_than_an_eighth_of_a_large_block_would_be_of_no_use() {
    let width = 2 * medium() / GRANULE as u32;
    for (rest, start) in [(width / 8, 0), (width / 8 + 1, width + width / 8 + 2)] {
        let mut place = place(8 * width);
        place.take(width + rest, block(1), true);
        assert_eq!(tightest(&mut place, width), Some(start));
    }
}

#[test]
fn small_and_medium_blocks_have_whole_pages_of_their_own() {
    let page = (PAGE / GRANULE) as u32;
    let mut place = place(40 * page);
    place.divide(40 * PAGE, PAGE);
    let key = |bytes: u32| Key::new(bytes / GRANULE as u32, 0);
    assert_eq!(place.region(key(small())), 37 * page..40 * page);
    assert_eq!(place.region(key(medium())), 34 * page..37 * page);
    assert_eq!(place.region(key(medium() + 512)), 0..34 * page);
    assert!(place.is_untouched(37 * page) && place.is_untouched(0));
    place.take(37 * page, block(1), true);
    assert!(!place.is_untouched(37 * page) && place.is_untouched(37 * page + 1) && place.is_untouched(0));
    assert_eq!(place.least_used_first(), [0..34 * page, 34 * page..u32::MAX, 0..0]);
}

#[test]
fn a_plan_is_followed_once_it_is_adopted() {
    let mut place = place(100);
    assert!(!place.adopt(), "none was proposed");
    let mut script = Script::default();
    (script.granules, script.expected_peak) = (50, 1 << 20);
    assert!(place.has_room_for(&script));
    place.propose(script);
    assert_eq!(place.planned(), 0);
    assert!(place.adopt() && place.planned() == 50 && place.expected_peak() == 0);
    assert!(place.take_retired().is_some_and(|before| before.granules == 0) && !place.adopt());
    let mut script = Script::default();
    script.granules = 101;
    assert!(!place.has_room_for(&script));
}
