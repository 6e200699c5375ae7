//! What the check must find, one case each; plans are written by hand, so that nothing that makes plans takes part.

use stalloc_plan::{
    CARRIED, Entry, FOREVER, Findings, Plan, Rectangle, Release, Section, SectionKind, Slot, check_rectangles,
};
use stalloc_trace::{RawEvent, StackId, Trace, TraceBuilder};

/// A plan of sections, each a list of slots `(offset, upper)` of 512 bytes.
fn plan(arena: u64, sections: &[&[(u64, u32)]]) -> Plan {
    let mut plan = Plan { alignment: 512, arena, ..Plan::default() };
    for (i, slots) in sections.iter().enumerate() {
        let mut entries = Vec::new();
        for (lower, &(offset, upper)) in slots.iter().enumerate() {
            entries.push(Entry::Slot(plan.slots.len() as u32));
            plan.slots.push(Slot { size: 512, offset, stream: 0, lower: lower as u32, upper });
        }
        let kind = if i == 0 { SectionKind::Prologue } else { SectionKind::Repeating };
        let (name, releases, followers) = (format!("{i}"), Vec::new(), Vec::new());
        plan.sections.push(Section { kind, name, runs: 1, entries, releases, followers });
    }
    plan
}

#[test]
fn a_lifetime_may_begin_where_another_ends() {
    let findings = plan(512, &[&[(0, 1), (0, 2)]]).check();
    assert!(findings.ok, "{:?}", findings.problems);
    assert_eq!(findings.peak, 512);
    assert_eq!(plan(512, &[&[(0, 2), (0, 2)]]).check().overlaps, 1);
}

#[test]
fn bounds_and_alignment_are_counted() {
    let findings = plan(1024, &[&[(100, 1), (1024, 2)]]).check();
    assert_eq!((findings.misaligned, findings.out_of_bounds, findings.overlaps, findings.ok), (1, 1, 0, false));
    let far = plan(1024, &[&[(u64::MAX - 511, 1)]]).check();
    assert_eq!((far.out_of_bounds, far.peak), (1, u64::MAX));
}

#[test]
fn what_lives_for_ever_is_in_the_way_of_all_sections_that_follow_and_of_no_other() {
    let mut two = plan(1024, &[&[(0, FOREVER)], &[(0, 1)]]);
    assert!(two.check().ok, "the second section never follows");
    two.sections[0].followers = vec![1];
    assert_eq!(two.check().overlaps, 1);
    two.slots[1].offset = 512;
    assert!(two.check().ok);
}

#[test]
fn a_repeated_section_that_keeps_what_it_makes_collides_with_itself() {
    let mut step = plan(1024, &[&[], &[(0, FOREVER)]]);
    step.sections[0].followers = vec![1];
    assert!(step.check().ok, "run once, it may");
    step.sections[1].followers = vec![1];
    assert_eq!(step.check().overlaps, 1);
}

#[test]
fn a_buffer_carried_over_the_step_boundary_is_seen_at_the_start_of_the_next_step() {
    // Slot 1 is allocated last and released at clock `at` of the next step, where slot 0 has its address.
    let carried = |at| {
        let mut step = plan(1024, &[&[(0, 1), (0, CARRIED)]]);
        step.sections[0].followers = vec![0];
        step.sections[0].releases = vec![Release { at, slot: 1 }];
        step.check().overlaps
    };
    assert_eq!(carried(0), 0);
    assert_eq!(carried(1), 1);
}

#[test]
fn a_buffer_replaced_before_the_old_one_is_freed_collides_with_itself_unless_steps_alternate() {
    // Made at clock 0, the one before is released at clock 1: two live at once.
    let mut one = plan(1024, &[&[(0, CARRIED), (512, 2)]]);
    one.sections[0].followers = vec![0];
    one.sections[0].releases = vec![Release { at: 1, slot: 0 }];
    assert_eq!(one.check().overlaps, 1);

    let mut two = plan(1536, &[&[(0, CARRIED), (1024, 2)], &[(512, CARRIED), (1024, 2)]]);
    two.sections[0].followers = vec![1];
    two.sections[1].followers = vec![0];
    two.sections[1].releases = vec![Release { at: 1, slot: 0 }];
    two.sections[0].releases = vec![Release { at: 1, slot: 2 }];
    let findings = two.check();
    assert!(findings.ok, "{:?}", findings.problems);
    two.slots[2].offset = 0;
    assert!(!two.check().ok);
}

#[test]
fn what_a_section_does_not_release_lives_through_it() {
    // Carried from 0 through 1 into 2, released there at clock 1.
    let mut three = plan(1024, &[&[(0, CARRIED)], &[(512, 1)], &[(512, 1), (0, 2)]]);
    three.sections[0].followers = vec![1];
    three.sections[1].followers = vec![2];
    three.sections[2].releases = vec![Release { at: 1, slot: 0 }];
    assert!(three.check().ok);
    three.slots[1].offset = 0;
    assert_eq!(three.check().overlaps, 1);
    three.slots[1].offset = 512;
    three.slots[2].offset = 0;
    assert_eq!(three.check().overlaps, 1);
}

#[test]
fn what_comes_by_different_paths_may_share_an_address() {
    let mut fork = plan(512, &[&[], &[(0, CARRIED)], &[(0, CARRIED)], &[(0, 1)]]);
    fork.sections[0].followers = vec![1, 2];
    fork.sections[1].followers = vec![3];
    fork.sections[2].followers = vec![3];
    fork.sections[3].releases = vec![Release { at: 0, slot: 0 }, Release { at: 0, slot: 1 }];
    assert!(fork.check().ok);
    fork.sections[1].followers = vec![2, 3];
    assert!(!fork.check().ok, "now one follows the other");
}

fn trace(events: &[(u64, Option<u64>)]) -> Trace {
    let mut builder = TraceBuilder::new(0);
    for &(address, size) in events {
        match size {
            Some(size) => {
                builder.push(RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE }, None);
            }
            None => {
                builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
            }
        }
    }
    builder.finish()
}

#[test]
fn a_trace_is_followed_through_its_plan() {
    let trace = trace(&[(1, Some(500)), (2, Some(512)), (1, None), (3, Some(1)), (2, None)]);
    let mut planned = plan(1024, &[&[(0, 2), (512, 3), (0, 3)]]);
    planned.trace_map = vec![Some(0), Some(1), Some(2)];
    let findings = planned.check_against(&trace);
    assert!(findings.ok, "{:?}", findings.problems);
    assert_eq!(findings.peak, 1024);

    planned.slots[2].offset = 512;
    assert_eq!(planned.check_against(&trace).overlaps, 1);
    planned.slots[2].offset = 0;
    planned.slots[2].size = 1024;
    assert_eq!(planned.check_against(&trace).unmatched, 1);
    planned.slots[2].size = 512;
    planned.slots[2].stream = 1;
    assert_eq!(planned.check_against(&trace).unmatched, 1);
    planned.trace_map.pop();
    assert_eq!(planned.check_against(&trace).unmatched, 1);
}

#[test]
fn an_address_passes_to_another_stream_only_when_the_free_has_completed() {
    let mut builder = TraceBuilder::new(0);
    let alloc = |address, stream| RawEvent::Alloc { address, size: 512, stream, stack: StackId::NONE };
    builder.push(alloc(1, 0), None);
    builder.push(RawEvent::FreeRequested { address: 1, size: 512, stream: 0 }, None);
    builder.push(alloc(2, 7), None);
    builder.push(RawEvent::FreeCompleted { address: 1, size: 512, stream: 0 }, None);
    builder.push(alloc(3, 7), None);
    let trace = builder.finish();
    let mut planned = plan(1024, &[&[(0, 1), (512, 3), (0, 3)]]);
    planned.slots[1].stream = 1;
    planned.slots[2].stream = 1;
    planned.trace_map = vec![Some(0), Some(1), Some(2)];
    assert!(planned.check_against(&trace).ok);
    planned.slots[1].offset = 0;
    planned.slots[2].offset = 512;
    assert_eq!(planned.check_against(&trace).overlaps, 1, "the free was asked for, but had not completed");
}

#[test]
fn rectangles_that_touch_do_not_overlap_and_empty_ones_hold_nothing() {
    let r = |lower, upper, size, offset| Rectangle { lower, upper, size, alignment: 1, offset };
    let findings = check_rectangles(&[r(0, 4, 8, 0), r(4, 8, 8, 0), r(0, 8, 8, 8), r(2, 3, 0, 4), r(5, 5, 8, 4)], None);
    assert!(findings.ok, "{:?}", findings.problems);
    assert_eq!(findings.peak, 16);
    assert_eq!(check_rectangles(&[r(0, 4, 8, 0), r(3, 8, 8, 7)], None).overlaps, 1);
    assert_eq!(check_rectangles(&[r(0, 4, 8, 1)], Some(8)).out_of_bounds, 1);
    assert_eq!(check_rectangles(&[Rectangle { alignment: 4, ..r(0, 4, 8, 2) }], None).misaligned, 1);
    assert_eq!(check_rectangles(&[r(0, 4, u64::MAX, 1)], None).out_of_bounds, 1);
}

#[test]
fn two_verdicts_in_one_add_up_and_only_two_good_ones_are_good() {
    let one = Findings { overlaps: 1, misaligned: 2, out_of_bounds: 3, unmatched: 4, peak: 70, ..Findings::default() };
    let other =
        Findings { overlaps: 10, misaligned: 20, out_of_bounds: 30, unmatched: 40, peak: 60, ..Findings::default() };
    let both = one.clone().and(other);
    assert_eq!((both.overlaps, both.misaligned, both.out_of_bounds, both.unmatched), (11, 22, 33, 44));
    assert_eq!((both.peak, both.ok), (70, false));
    let good = Findings { ok: true, ..Findings::default() };
    assert!(good.clone().and(good.clone()).ok);
    assert!(!good.and(one).ok);
}

#[test]
fn the_first_twenty_problems_are_told_and_all_are_counted() {
    let unaligned = |offset| Rectangle { lower: 0, upper: 1, size: 0, alignment: 2, offset };
    let findings = check_rectangles(&(0..25).map(|i| unaligned(2 * i + 1)).collect::<Vec<_>>(), None);
    assert_eq!((findings.misaligned, findings.problems.len()), (25, 20));
    assert!(findings.problems[0].contains("at 1 is not aligned to 2 bytes"), "{:?}", findings.problems);
    assert!(findings.problems[19].contains("at 39 "), "{:?}", findings.problems);
    let both = findings.clone().and(findings.clone());
    assert_eq!((both.misaligned, both.problems.len()), (50, 20));
    assert_eq!(both.problems, findings.problems);
}

#[test]
fn a_buffer_of_no_bytes_hides_no_overlap() {
    let at = |lower, size, offset| Rectangle { lower, upper: 9, size, alignment: 1, offset };
    assert_eq!(check_rectangles(&[at(0, 100, 0), at(1, 0, 50), at(2, 10, 60)], None).overlaps, 1);
}

#[test]
fn what_a_section_may_not_hold_is_said() {
    let whole = || plan(1024, &[&[(0, 2), (512, 2)], &[(0, 1)]]);
    assert_eq!(whole().validate(), Ok(()));
    let fault = |breaks: fn(&mut Plan)| {
        let mut plan = whole();
        breaks(&mut plan);
        plan.validate().expect_err("it is broken")
    };
    let empty = fault(|plan| plan.sections[0].entries.push(Entry::WithoutOffset { size: 0, stream: 0 }));
    assert!(empty.contains("entry 2 has no bytes"), "{empty}");
    for lifetime in [fault(|plan| plan.slots[0].upper = 0), fault(|plan| plan.slots[0].upper = 3)] {
        assert!(lifetime.contains(" on a clock of 2"), "{lifetime}");
    }
    let twice = fault(|plan| plan.sections[0].followers = vec![1, 1]);
    assert!(twice.contains("followers are not in order"), "{twice}");
    let beyond = fault(|plan| plan.sections[0].followers = vec![2]);
    assert!(beyond.contains("section 2 follows, which is not there"), "{beyond}");
    let mut open = whole();
    open.sections[1].entries.push(Entry::WithoutOffset { size: 1, stream: 0 });
    assert_eq!(open.validate(), Ok(()));
}
