//! Programs that follow their plan, and programs that stray from it.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use stalloc_allocator::{Allocator, Arena, Error, Source};
use stalloc_device::{Counting, Shared};
use stalloc_plan::SectionKind::{Once, Prologue, Repeating};

const GIB: u64 = 1 << 30;

fn weights() -> Vec<(u64, Life)> {
    vec![(4 * MIB, None), (8 * MIB, None), (512, None), (6 * MIB, None)]
}

/// A small training step: activations that nest, workspaces between them.
fn step() -> Vec<(u64, Life)> {
    let mut requests = Vec::new();
    for layer in 0..12u64 {
        requests.push(((3 + layer % 3) * MIB, Some(2 * (12 - layer as u32))));
        requests.push((MIB / 2 + 512 * layer, Some(0)));
    }
    for layer in 0..12u64 {
        requests.push(((2 + layer % 2) * MIB, Some(1)));
    }
    requests
}

#[test]
fn a_program_that_follows_its_plan_is_served_from_it_alone() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for _ in 0..5 {
        let served = run(&mut checked, &step());
        assert!(served.iter().all(|served| served.source == Source::Planned));
    }
    let statistics = checked.allocator.statistics();
    assert_eq!(statistics.planned, statistics.requests);
    assert_eq!(statistics.departure, None);
    assert_eq!(checked.allocator.peak_reserved(), plan.arena.next_multiple_of(2 * MIB));
}

#[test]
fn the_same_without_virtual_memory_management() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::without_pages(GIB));
    run(&mut checked, &weights());
    for _ in 0..3 {
        checked.allocator.step_begin();
        run(&mut checked, &step());
    }
    assert_eq!(checked.allocator.statistics().planned, checked.allocator.statistics().requests);
    assert_eq!(checked.allocator.peak_reserved(), plan.arena);
}

#[test]
fn a_mark_that_comes_after_the_batch_was_loaded_begins_nothing_anew() {
    // The batch's first part is like its second, so that what follows the mark is like a beginning.
    let step = [vec![(3 * MIB, None); 3], step()].concat();
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step)]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    let mut served = vec![checked.malloc(3 * MIB)];
    checked.allocator.step_begin();
    served.extend(run(&mut checked, &step[1..]));
    assert!(served.iter().all(|served| served.source == Source::Planned));
}

#[test]
fn a_mark_after_the_batch_was_loaded_leaves_open_which_kind_of_step_has_begun() {
    let kind = |more: u64| -> Vec<(u64, Life)> {
        let rest = step().into_iter().map(|(size, life)| (size + more * 512, life));
        [(512, None); 2].into_iter().chain(rest).collect()
    };
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &kind(0)), section(Repeating, &kind(9))]);
    plan.sections.iter_mut().for_each(|section| section.followers = vec![1, 2]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for more in [0, 9, 9, 0, 9, 0, 0] {
        let batch = run(&mut checked, &kind(more)[..2]);
        checked.allocator.step_begin();
        run(&mut checked, &kind(more)[2..]);
        batch.into_iter().for_each(|served| checked.free(served));
    }
    let unplanned = checked.allocator.statistics().unplanned;
    assert_eq!((unplanned.extra, unplanned.lost), (0, 0));
}

#[test]
fn one_extra_request_kept_for_ever_costs_no_planned_one() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for number in 0..10 {
        if number == 3 {
            assert_eq!(checked.malloc(5000).source, Source::Dynamic);
        }
        run(&mut checked, &step());
    }
    let statistics = checked.allocator.statistics();
    assert_eq!(statistics.planned, statistics.requests - 1);
    assert_eq!(statistics.departure.unwrap().seen, (5120, 0));
}

#[test]
fn a_step_that_does_what_the_prologue_did_is_not_taken_for_it() {
    // Enough of the prologue to find a place by, in the midst of a step.
    let again: Vec<(u64, Life)> = (1..9).map(|size| (size * 7 * 512, Some(0))).collect();
    let prologue = [weights(), again.clone(), weights()].concat();
    let plan = plan(&[section(Prologue, &prologue), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &prologue);
    let planned = |served: Vec<stalloc_allocator::Served>| {
        served.iter().filter(|served| served.source == Source::Planned).count()
    };
    for _ in 0..3 {
        let (first, rest) = (&step()[..24], &step()[24..]);
        let served = run(&mut checked, first);
        assert_eq!(planned(served), first.len());
        assert_eq!(planned(run(&mut checked, &again)), 0);
        assert!(planned(run(&mut checked, rest)) >= rest.len() - 2);
    }
}

#[test]
fn a_step_of_another_shape_does_not_cost_the_next_one_its_places() {
    let plan = plan(&[section(Prologue, &weights()), section(Once, &step()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    let longer: Vec<_> = step().iter().map(|&(size, life)| (size + 7 * 512, life)).collect();
    run(&mut checked, &step());
    run(&mut checked, &step());
    run(&mut checked, &longer);
    let before = checked.allocator.statistics();
    checked.allocator.step_begin();
    run(&mut checked, &step());
    run(&mut checked, &step());
    let after = checked.allocator.statistics();
    assert_eq!(after.planned - before.planned, 2 * step().len() as u64);
}

/// A trained program: weights made, a step run, planned.
fn trained(device: Counting) -> Checked<Shared<Counting>> {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, device);
    run(&mut checked, &weights());
    run(&mut checked, &step());
    checked
}

/// Requests of a step that are not served from the plan.
fn unplanned_in_a_step(checked: &mut Checked<Shared<Counting>>) -> usize {
    checked.allocator.step_begin();
    run(checked, &step()).iter().filter(|served| served.source != Source::Planned).count()
}

#[test]
fn an_evaluation_that_was_never_seen_is_served_in_the_arena_and_forgotten() {
    let mut checked = trained(Counting::new(GIB));
    let reserved = checked.allocator.peak_reserved();
    for number in 0..9 {
        assert_eq!(unplanned_in_a_step(&mut checked), 0);
        if number % 3 == 2 {
            let evaluation: Vec<_> = (0..40u64).map(|n| ((n % 5 + 2) * 3 * 512 * 999, Some(2))).collect();
            run(&mut checked, &evaluation);
        }
    }
    // Evaluation needs less than a step: memory moves, little more is taken.
    assert!(checked.allocator.peak_reserved() <= reserved + reserved / 32 + 4 * MIB);
}

#[test]
fn a_step_that_is_cut_short_by_an_exception_costs_the_next_one_nothing() {
    let mut checked = trained(Counting::new(GIB));
    for length in [1, 7, 20, 30] {
        checked.allocator.step_begin();
        run(&mut checked, &step()[..length]);
        assert_eq!(unplanned_in_a_step(&mut checked), 0, "after {length} requests");
    }
}

#[test]
fn missing_and_changed_requests_cost_a_few_neighbours_at_most() {
    let mut checked = trained(Counting::new(GIB));
    for at in [0usize, 3, 11, 25, 35] {
        let mut shorter = step();
        shorter.remove(at);
        checked.allocator.step_begin();
        let missed = run(&mut checked, &shorter).iter().filter(|served| served.source != Source::Planned).count();
        assert!(missed <= 6, "{missed} misses after request {at} did not come");
        let mut changed = step();
        changed[at].0 += 512 * 3;
        checked.allocator.step_begin();
        let missed = run(&mut checked, &changed).iter().filter(|served| served.source != Source::Planned).count();
        assert!(missed <= 3, "{missed} misses after request {at} changed");
        assert_eq!(unplanned_in_a_step(&mut checked), 0);
    }
}

#[test]
fn emptying_the_cache_in_every_step_gives_back_what_is_free_and_nothing_else() {
    let mut checked = trained(Counting::new(GIB));
    for _ in 0..4 {
        assert_eq!(unplanned_in_a_step(&mut checked), 0);
        checked.allocator.empty_cache().unwrap();
        let weights: u64 = weights().iter().map(|(size, _)| size).sum();
        assert!(checked.allocator.reserved() <= weights.next_multiple_of(2 * MIB) + 2 * MIB);
    }
}

#[test]
fn another_program_switches_the_plan_off() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    let other: Vec<_> = (0..50u64).map(|n| ((n % 9 + 1) * 512 * 1111, Some(3))).collect();
    for _ in 0..40 {
        checked.allocator.step_begin();
        run(&mut checked, &other);
    }
    let statistics = checked.allocator.statistics();
    assert!(statistics.switched_off);
    assert_eq!(statistics.reserved, 0, "its memory is the fallback's now");
    assert_eq!(checked.malloc(5000).source, Source::Fallback);
}

#[test]
fn a_plan_without_a_place_for_anything_is_followed_if_the_program_does_what_it_expects() {
    let mut plan = plan(&[section(Prologue, &[]), section(Repeating, &[])]);
    plan.arena = 64 * MIB;
    let room = 0..plan.arena;
    for _ in 0..20 {
        add_dynamic(&mut plan, 1, 0, [MIB, 2 * MIB, 3 * MIB, 4 * MIB], room.clone());
    }
    let mut checked = over_counting(&plan, Counting::new(GIB));
    for number in 0..200u64 {
        let blocks: Vec<_> = (0..20).map(|index| checked.malloc(MIB + (number * 7919 + index) % (3 * MIB))).collect();
        assert!(blocks.iter().all(|served| served.source == Source::Dynamic));
        blocks.into_iter().for_each(|served| checked.free(served));
    }
    assert!(!checked.allocator.statistics().switched_off);
}

#[test]
fn a_program_that_begins_as_planned_stays_in_the_arena_when_all_its_steps_are_others() {
    let mut checked = trained(Counting::new(GIB));
    let other: Vec<_> = (0..50u64).map(|n| ((n % 9 + 1) * 512 * 1111, Some(3))).collect();
    for _ in 0..200 {
        let served = run(&mut checked, &other);
        assert!(served.iter().all(|served| served.source == Source::Dynamic));
    }
    assert!(!checked.allocator.statistics().switched_off);
}

#[test]
fn a_plan_that_needs_more_moves_than_there_are_costs_its_places_rather_than_memory() {
    let pair = [(64 * MIB, Some(0)), (64 * MIB, Some(0))];
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &pair)]);
    // Never alive together, but not in one place.
    let last = plan.slots.last_mut().unwrap();
    last.offset = plan.arena;
    plan.arena += last.size;
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for _ in 0..400 {
        run(&mut checked, &pair);
    }
    let statistics = checked.allocator.statistics();
    assert!(statistics.moves < 300 && statistics.misses.device > 0, "{statistics:?}");
    let needed = statistics.peak_allocated;
    assert!(statistics.peak_reserved <= needed + needed / 16, "{statistics:?}");
}

#[test]
fn what_outlives_a_plan_that_was_switched_off_leaves_no_memory_behind() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    let kept = run(&mut checked, &weights()[..3]);
    let other: Vec<_> = (0..50u64).map(|n| ((n % 9 + 1) * 512 * 1111, Some(3))).collect();
    for _ in 0..40 {
        run(&mut checked, &other);
    }
    let statistics = checked.allocator.statistics();
    assert!(statistics.switched_off && statistics.reserved > 0);
    kept.into_iter().for_each(|served| checked.free(served));
    for _ in 0..6 {
        run(&mut checked, &other);
    }
    assert_eq!(checked.allocator.statistics().reserved, 0);
}

#[test]
fn memory_that_runs_out_is_an_error_with_numbers_and_the_program_goes_on_after_freeing() {
    let mut checked = trained(Counting::new(128 * MIB));
    let error = checked.try_malloc(GIB, 0).unwrap_err();
    let Error::OutOfMemory { requested, allocated, reserved } = error else { panic!("{error}") };
    assert_eq!((requested, allocated), (GIB, checked.live.values().sum()));
    assert!(reserved <= 128 * MIB);
    let mut hoard = Vec::new();
    while let Ok(served) = checked.try_malloc(5 * MIB + 512, 0) {
        hoard.push(served);
    }
    assert!(hoard.len() as u64 * 5 * MIB > 90 * MIB, "little is left unused: {}", hoard.len());
    hoard.into_iter().for_each(|served| checked.free(served));
    checked.allocator.step_begin();
    run(&mut checked, &step());
    assert_eq!(unplanned_in_a_step(&mut checked), 0);
}

#[test]
fn dynamic_requests_of_any_size_or_none_keep_the_program_on_its_plan() {
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let room = plan.arena..plan.arena + 40 * MIB;
    plan.arena = room.end;
    for index in (0..30).step_by(3).rev() {
        add_dynamic(&mut plan, 1, index, [MIB, 2 * MIB, 3 * MIB, 4 * MIB], room.clone());
    }
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for number in 0..20u64 {
        let mut dynamic = Vec::new();
        let mut planned = Vec::new();
        for (index, (size, _)) in step().into_iter().enumerate() {
            if index % 3 == 0 && index < 30 && !(number + index as u64).is_multiple_of(4) {
                let size = MIB + (number * 7919 + index as u64 * 104729) % (3 * MIB);
                dynamic.push(checked.malloc(size));
            }
            planned.push(checked.malloc(size));
        }
        // All of a step's blocks live until its end here, so those that share places with others are displaced; what
        // counts is that each is known for what it is.
        planned.into_iter().chain(dynamic).for_each(|served| checked.free(served));
    }
    let statistics = checked.allocator.statistics();
    assert_eq!(statistics.unplanned.extra + statistics.unplanned.lost, 0, "{statistics:?}");
}

/// Runs a step in which so many varying requests of a size come after the first planned one: each is taken for what it is.
fn step_is_told_from_what_varies(
    checked: &mut Checked<Shared<Counting>>,
    step: &[(u64, Life)],
    varying: usize,
    size: u64,
) {
    let first = checked.malloc(step[0].0);
    let varying: Vec<_> = (0..varying).map(|_| checked.malloc(size)).collect();
    assert!(varying.iter().all(|served| served.source == Source::Dynamic), "{size}: {varying:?}");
    let rest: Vec<_> = step[1..].iter().map(|&(size, _)| checked.malloc(size)).collect();
    assert!(rest.iter().all(|served| served.source == Source::Planned), "{size}: {rest:?}");
    [first].into_iter().chain(varying).chain(rest).for_each(|served| checked.free(served));
}

#[test]
fn what_has_always_come_is_not_taken_for_the_planned_request_of_its_size_after_it() {
    // That size was seen, or only nearly.
    [2 * MIB, 5 * MIB].into_iter().for_each(varying_requests_stay_apart);
}

fn varying_requests_stay_apart(least: u64) {
    let step = [(5 * MIB, Some(6)), (4 * MIB, Some(1)), (3 * MIB, Some(0))];
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step)]);
    let room = plan.arena..plan.arena + 60 * MIB;
    plan.arena = room.end;
    for _ in 0..3 {
        add_dynamic(&mut plan, 1, 1, [least, 9 * MIB, 12 * MIB, 12 * MIB], room.clone());
    }
    plan.dynamic.iter_mut().for_each(|group| group.always = true);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    // Lengths that make all three as large as the request that is planned after them, and others.
    for size in [9 * MIB, 4 * MIB, 2 * MIB, 4 * MIB, 12 * MIB] {
        step_is_told_from_what_varies(&mut checked, &step, 3, size);
    }
}

#[test]
fn a_planned_request_just_after_a_run_of_its_size_is_not_taken_for_the_one_before_it_again() {
    // One that varies, then two planned ones, and another that varies: all may be of one size.
    let step = [(2 * MIB, Some(9)), (5 * MIB, Some(8)), (5 * MIB, Some(7)), (6 * MIB, Some(6)), (7 * MIB, Some(5))];
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step)]);
    let room = plan.arena..plan.arena + 60 * MIB;
    plan.arena = room.end;
    add_dynamic(&mut plan, 1, 3, [MIB, 9 * MIB, 9 * MIB, 9 * MIB], room.clone());
    add_dynamic(&mut plan, 1, 1, [MIB, 9 * MIB, 9 * MIB, 9 * MIB], room);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for size in [9 * MIB, 5 * MIB, 3 * MIB, 5 * MIB] {
        let sizes = [step[0].0, size, step[1].0, step[2].0, size, step[3].0, step[4].0];
        let served = sizes.map(|size| checked.malloc(size));
        let planned = served.iter().filter(|served| served.source == Source::Planned);
        assert!(planned.count() >= 5, "{size}: {served:?}");
        served.into_iter().for_each(|served| checked.free(served));
    }
    let statistics = checked.allocator.statistics();
    assert_eq!((statistics.misses.occupied, statistics.unplanned.extra), (0, 0), "{statistics:?}");
}

#[test]
fn a_run_of_what_always_comes_is_not_left_for_two_planned_requests_of_its_size() {
    let step = [(2 * MIB, Some(9)), (5 * MIB, Some(8)), (5 * MIB, Some(7)), (6 * MIB, Some(6))];
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step)]);
    let room = plan.arena..plan.arena + 200 * MIB;
    plan.arena = room.end;
    for _ in 0..12 {
        add_dynamic(&mut plan, 1, 1, [MIB, 9 * MIB, 9 * MIB, 9 * MIB], room.clone());
    }
    plan.dynamic.iter_mut().for_each(|group| group.always = true);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for size in [9 * MIB, 5 * MIB, 3 * MIB, 5 * MIB] {
        step_is_told_from_what_varies(&mut checked, &step, 12, size);
    }
}

#[test]
fn without_a_dynamic_side_only_what_finds_its_own_place_is_served_from_the_arena() {
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let room = plan.arena..plan.arena + 40 * MIB;
    plan.arena = room.end;
    add_dynamic(&mut plan, 1, 3, [MIB, 2 * MIB, 3 * MIB, 4 * MIB], room);
    let mut arena = Arena::new(Counting::new(GIB), &plan).expect("a plan that can be followed").planned_only();
    let mut serve = |size| arena.serve(size, 0).map(|served| served.source);
    assert!(weights().iter().all(|&(size, _)| serve(size) == Some(Source::Planned)));
    for (index, (size, _)) in step().into_iter().enumerate().take(6) {
        if index == 3 {
            assert_eq!((serve(2 * MIB + 1), serve(77 * MIB)), (None, None), "one that varies, and one not in the plan");
        }
        serve(size);
    }
    let statistics = arena.statistics();
    assert_eq!((statistics.dynamic, statistics.unplanned.dynamic, statistics.unplanned.extra), (0, 1, 1));
}

#[test]
fn a_run_of_dynamic_requests_that_ends_early_costs_no_planned_one() {
    let step = [(7 * MIB, Some(3)), (5 * MIB, Some(2)), (5 * MIB, Some(1)), (6 * MIB, Some(0))];
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step)]);
    let room = plan.arena..plan.arena + 40 * MIB;
    plan.arena = room.end;
    for _ in 0..24 {
        add_dynamic(&mut plan, 1, 1, [MIB, 2 * MIB, 3 * MIB, 3 * MIB], room.clone());
    }
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for number in 0..24u64 {
        let mut planned = vec![checked.malloc(step[0].0)];
        for round in 0..number {
            let served = checked.malloc(MIB + (number + round) % 4 * (MIB / 2));
            assert_eq!(served.source, Source::Dynamic);
            checked.free(served);
        }
        planned.extend(step[1..].iter().map(|&(size, _)| checked.malloc(size)));
        assert!(planned.iter().all(|served| served.source == Source::Planned), "after {number}: {planned:?}");
        planned.into_iter().for_each(|served| checked.free(served));
    }
}
