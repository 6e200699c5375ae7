//! Programs that follow their plan, and programs that stray from it.
use crate::common::*;
use stalloc_allocator::{Allocator, Arena, Error, Script, ServedBy};
use stalloc_device::{Counting, Shared};
use stalloc_plan::Plan;
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
        assert!(served.iter().all(|served| served.source == ServedBy::Planned));
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
fn in_one_allocation_what_is_not_in_the_plan_lies_in_free_ranges_and_the_device_is_asked_for_nothing_more() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let device = Shared::new(Counting::new(GIB));
    let mut checked = solid(&plan, device.clone(), plan.arena + 8 * MIB);
    let held = device.lock().used();
    assert_eq!(held, plan.arena + 8 * MIB);
    run(&mut checked, &weights());
    for _ in 0..3 {
        checked.allocator.step_begin();
        // Between the steps every transient range of the plan is free.
        let others: Vec<_> = (0..20).map(|_| checked.malloc(MIB + 512)).collect();
        assert!(others.iter().all(|served| served.source == ServedBy::BestFit));
        others.into_iter().for_each(|served| checked.free(served));
        run(&mut checked, &step());
    }
    let statistics = checked.allocator.statistics();
    assert_eq!((device.lock().used(), statistics.remaps, statistics.fallback), (held, 0, 0));
    assert_eq!(statistics.reserved, held);
    // What is larger than every free range is the fallback's, and asking for memory back changes nothing.
    let large = checked.malloc(plan.arena);
    assert_eq!(large.source, ServedBy::Fallback);
    checked.free(large);
    checked.allocator.empty_cache().unwrap();
    assert_eq!(device.lock().used(), held);
}

#[test]
fn a_plan_that_is_larger_than_the_one_allocation_is_not_adopted() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let script = || Script::new(&plan).unwrap();
    let mut arena = Arena::solid(Counting::new(GIB), &Plan::default(), plan.arena - 512).unwrap();
    assert!(!arena.propose(script(), &Default::default()));
    let mut arena = Arena::solid(Counting::new(GIB), &Plan::default(), plan.arena).unwrap();
    assert!(arena.propose(script(), &Default::default()));
}

#[test]
fn one_extra_request_kept_for_ever_costs_no_planned_one() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for number in 0..10 {
        if number == 3 {
            assert_eq!(checked.malloc(5000).source, ServedBy::BestFit);
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
        served.iter().filter(|served| served.source == ServedBy::Planned).count()
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
    trained_of(device, 0)
}

/// The same with a plan that expects so many live bytes.
fn trained_of(device: Counting, expected_peak: u64) -> Checked<Shared<Counting>> {
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    plan.expected_peak = expected_peak;
    let mut checked = over_counting(&plan, device);
    run(&mut checked, &weights());
    run(&mut checked, &step());
    checked
}

/// Requests of a step that are not served from the plan.
fn unplanned_in_a_step(checked: &mut Checked<Shared<Counting>>) -> usize {
    checked.allocator.step_begin();
    run(checked, &step()).iter().filter(|served| served.source != ServedBy::Planned).count()
}

#[test]
fn an_evaluation_that_was_never_seen_is_served_in_the_arena_and_forgotten() {
    let mut checked = trained(Counting::new(GIB));
    checked.allocator.arena_mut().set_tight(true);
    let reserved = checked.allocator.peak_reserved();
    for number in 0..9 {
        assert_eq!(unplanned_in_a_step(&mut checked), 0);
        if number % 3 == 2 {
            let evaluation: Vec<_> = (0..40u64).map(|n| ((n % 5 + 2) * 3 * 512 * 999, Some(2))).collect();
            run(&mut checked, &evaluation);
        }
    }
    // Evaluation needs less than a step: it is served on memory that is mapped already.
    assert!(checked.allocator.peak_reserved() <= reserved + reserved / 32 + 4 * MIB);
}

#[test]
fn a_tight_arena_gives_back_what_was_idle_for_a_while_and_takes_it_again_when_it_is_needed() {
    let mut checked = trained(Counting::new(GIB));
    let idle = |checked: &mut Checked<Shared<Counting>>| {
        checked.allocator.arena_mut().give_back_idle().expect("a device that gives memory back")
    };
    checked.allocator.step_begin();
    assert_eq!(idle(&mut checked), 0, "without tight mode what is mapped stays");
    checked.allocator.arena_mut().set_tight(true);
    assert_eq!(unplanned_in_a_step(&mut checked), 0);
    let reserved = checked.allocator.reserved();
    assert_eq!(idle(&mut checked), 0, "a step needed it since");
    let given = idle(&mut checked);
    assert!(given > reserved / 2, "no step came since: {given} of {reserved}");
    assert_eq!(checked.allocator.reserved(), reserved - given);
    assert_eq!(unplanned_in_a_step(&mut checked), 0);
    assert_eq!(checked.allocator.reserved(), reserved);
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
    // A job that is larger, whose slack is more than a few pages.
    let mut checked = trained_of(Counting::new(GIB), 80 * MIB);
    for at in [0usize, 3, 11, 25, 35] {
        let mut shorter = step();
        shorter.remove(at);
        checked.allocator.step_begin();
        let missed = run(&mut checked, &shorter).iter().filter(|served| served.source != ServedBy::Planned).count();
        assert!(missed <= 6, "{missed} misses after request {at} did not come");
        let mut changed = step();
        changed[at].0 += 512 * 3;
        checked.allocator.step_begin();
        let missed = run(&mut checked, &changed).iter().filter(|served| served.source != ServedBy::Planned).count();
        assert!(missed <= 6, "{missed} misses after request {at} changed");
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
fn a_program_that_begins_as_planned_stays_in_the_arena_when_all_its_steps_are_others() {
    let mut checked = trained(Counting::new(GIB));
    let other: Vec<_> = (0..50u64).map(|n| ((n % 9 + 1) * 512 * 1111, Some(3))).collect();
    for _ in 0..200 {
        let served = run(&mut checked, &other);
        assert!(served.iter().all(|served| served.source == ServedBy::BestFit));
    }
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
fn another_program_is_served_by_the_arena_and_told_of() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    let other: Vec<_> = (0..50u64).map(|n| ((n % 9 + 1) * 512 * 1111, Some(3))).collect();
    for _ in 0..40 {
        checked.allocator.step_begin();
        let served = run(&mut checked, &other);
        assert!(served.iter().all(|served| served.source == ServedBy::BestFit));
    }
    let statistics = checked.allocator.statistics();
    assert!(statistics.is_of_another_program());
    assert!(statistics.reserved <= statistics.peak_allocated.next_multiple_of(2 * MIB) + 6 * MIB, "{statistics:?}");
}

#[test]
fn a_request_without_an_offset_keeps_the_program_on_its_plan() {
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    add_open(&mut plan, 1, 7, 5 * MIB);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for _ in 0..5 {
        let served = run(&mut checked, &{
            let mut step = step();
            step.insert(7, (5 * MIB, None));
            step
        });
        assert_eq!(served[7].source, ServedBy::BestFit);
    }
    let unplanned = checked.allocator.statistics().unplanned;
    assert_eq!((unplanned.without_offset, unplanned.not_in_plan, unplanned.position_unknown), (5, 0, 0));
    assert_eq!(checked.allocator.statistics().departure, None);
}

#[test]
fn with_planned_offsets_only_the_rest_is_left_to_the_caller() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let arena = Arena::new(Counting::new(GIB), &plan).expect("a plan that can be followed");
    let mut arena = arena.planned_only();
    let mut serve = |size| arena.serve(size, 0).map(|served| served.source);
    assert!(weights().iter().all(|&(size, _)| serve(size) == Some(ServedBy::Planned)));
    assert_eq!(serve(77 * MIB), None);
    assert_eq!(serve(step()[0].0), Some(ServedBy::Planned));
    assert_eq!(arena.statistics().best_fit, 0);
}

#[test]
fn a_plan_whose_addresses_reach_beyond_the_device_is_followed() {
    let mut plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    for slot in plan.slots.iter_mut().skip(weights().len()) {
        slot.offset += 2 * GIB;
    }
    plan.arena += 2 * GIB;
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    assert!(run(&mut checked, &step()).iter().all(|served| served.source == ServedBy::Planned));
    assert!(checked.allocator.peak_reserved() < GIB);
}

fn propose(checked: &mut Checked<Shared<Counting>>, plan: &Plan) -> bool {
    checked.propose(Script::new(plan).expect("a plan that can be followed"))
}

#[test]
fn a_plan_that_needs_more_memory_than_there_is_is_not_adopted() {
    let mut checked = over_counting(&Plan::default(), Counting::new(110 * MIB));
    let kept = run(&mut checked, &weights());
    let mut plan = plan(&[section(Repeating, &step())]);
    plan.expected_peak = 90 * MIB;
    // Each step needs memory in two places.
    let twice: Vec<_> = plan.slots.iter().map(|slot| (slot.size, slot.offset)).collect();
    assert!(propose(&mut checked, &plan));
    plan.slots
        .iter_mut()
        .enumerate()
        .for_each(|(number, slot)| slot.offset = twice[number].1 + (number as u64) * 32 * MIB);
    plan.arena += 40 * 32 * MIB;
    assert!(!propose(&mut checked, &plan));
    kept.into_iter().for_each(|served| checked.free(served));
}

#[test]
fn a_plan_adopted_while_running_serves_the_next_step_and_leaves_what_lives_where_it_lives() {
    let mut checked = over_counting(&Plan::default(), Counting::new(GIB));
    // What is needed between two steps leaves memory for a plan that is far from what lives.
    let large = checked.try_malloc(GIB / 2, 0).expect("memory");
    checked.free(large);
    let kept = run(&mut checked, &weights());
    run(&mut checked, &step());
    let base = checked.allocator.arena().base();
    // Planned beyond what lives.
    let mut plan = plan(&[section(Repeating, &step())]);
    // Small blocks have addresses of their own, far above.
    let end = kept.iter().map(|served| served.address - base).filter(|&at| at < GIB).max().unwrap_or(0) + 16 * MIB;
    plan.slots.iter_mut().for_each(|slot| slot.offset += end);
    plan.arena += end;
    assert!(propose(&mut checked, &plan));
    for _ in 0..3 {
        checked.allocator.step_begin();
        assert!(run(&mut checked, &step()).iter().all(|served| served.source == ServedBy::Planned));
    }
    kept.into_iter().for_each(|served| checked.free(served));
    assert_eq!(checked.allocator.statistics().plans, 1);
}

#[test]
fn a_plan_with_no_offsets_is_as_good_as_none() {
    let held = |plan: &Plan| {
        let mut checked = over_counting(plan, Counting::new(GIB));
        let passing = checked.malloc(100 * MIB);
        checked.malloc(100 * MIB);
        checked.free(passing);
        checked.malloc(150 * MIB);
        let statistics = checked.allocator.statistics();
        (statistics.peak_reserved, statistics.remaps, statistics.driver)
    };
    let open = plan(&[section(Repeating, &[])]);
    assert_eq!(held(&Plan { expected_peak: GIB / 2, ..open }), held(&Plan::default()));
}

#[test]
fn of_thousands_of_planned_blocks_in_a_row_none_is_taken_for_free() {
    let many = vec![(1024, None); 2000];
    let plan = plan(&[section(Prologue, &many)]);
    let mut checked = over_counting(&plan, Counting::new(4 * MIB));
    run(&mut checked, &many);
    // Nothing can be mapped beyond: what has no offset is looked for among the planned addresses.
    while checked.try_malloc(1024, 0).is_ok() {}
    assert!(checked.live.len() >= 4000);
}

#[test]
fn a_plan_under_which_more_is_remapped_than_without_is_withdrawn() {
    let mut checked = over_counting(&Plan::default(), Counting::new(GIB));
    let large = checked.try_malloc(GIB / 2, 0).expect("memory");
    checked.free(large);
    checked.allocator.step_begin();
    let mut plan = plan(&[section(Repeating, &step())]);
    assert!(propose(&mut checked, &plan));
    for _ in 0..3 {
        checked.allocator.step_begin();
        run(&mut checked, &step());
    }
    assert_eq!(checked.allocator.statistics().withdrawn, 0);
    // A phase that no plan knows takes the memory elsewhere.
    let planned = plan.arena;
    let above = checked.malloc(GIB / 4);
    let rest = checked.malloc(GIB / 4 - planned / 2);
    [above, rest].into_iter().for_each(|served| checked.free(served));
    run(&mut checked, &step());
    checked.allocator.step_begin();
    assert_eq!(checked.allocator.statistics().withdrawn, 1);
    // Another must save something; to leave it costs nothing.
    plan.expected_peak = 0;
    assert!(!propose(&mut checked, &plan));
    assert!(propose(&mut checked, &Plan::default()));
}

#[test]
fn an_arena_knows_whether_its_plan_was_left() {
    let plan = plan(&[section(Repeating, &step())]);
    let mut arena = Arena::new(Counting::new(GIB), &plan).unwrap();
    arena.serve(step()[0].0, 0).unwrap();
    assert!(!arena.has_departed());
    arena.serve(5000, 0).unwrap();
    assert!(arena.has_departed());
}
