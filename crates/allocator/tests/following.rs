//! Programs that follow their plan, and programs that stray from it.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use stalloc_allocator::{Allocator, Source};
use stalloc_device::Counting;
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
fn one_extra_request_kept_for_ever_costs_no_planned_one() {
    let plan = plan(&[section(Prologue, &weights()), section(Repeating, &step())]);
    let mut checked = over_counting(&plan, Counting::new(GIB));
    run(&mut checked, &weights());
    for number in 0..10 {
        let requests = step();
        run(&mut checked, &requests[..0]);
        if number == 3 {
            assert_eq!(checked.malloc(5000).source, Source::Dynamic);
        }
        run(&mut checked, &requests);
    }
    let statistics = checked.allocator.statistics();
    assert_eq!(statistics.planned, statistics.requests - 1);
    assert_eq!(statistics.departure.unwrap().seen, (5120, 0));
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
