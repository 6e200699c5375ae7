use stalloc_trace::{RawEvent, StackId, TraceBuilder};

use super::*;

/// Steps of two requests each; after them one more begins, and asks for so many.
fn trace_with_a_rest(of: u64) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let alloc = |builder: &mut TraceBuilder, number: u64| {
        let alloc = RawEvent::Alloc { address: (1 + number) << 20, size: 512, stream: 0, stack: StackId::NONE };
        builder.push(alloc, None);
    };
    for step in 0..3 {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        alloc(&mut builder, 2 * step);
        alloc(&mut builder, 2 * step + 1);
        builder.push(RawEvent::Mark(Mark::StepEnd), None);
    }
    builder.push(RawEvent::Mark(Mark::StepBegin), None);
    (0..of).for_each(|number| alloc(&mut builder, 6 + number));
    builder.finish()
}

#[test]
fn what_begins_and_never_ends_after_steps_that_ended_is_no_step() {
    let (starts, others) = steps(&trace_with_a_rest(5)).unwrap();
    assert_eq!(starts, [0, 2, 4, 6]);
    assert_eq!(others, [6], "a last validation is what comes after the steps");
    assert_eq!(steps(&trace_with_a_rest(0)).unwrap().0, [0, 2, 4, 6]);
}

/// Requests one at a time, and before some of them an annotation begins or ends.
fn annotated(requests: u32, marks: &[(u32, &str, bool)]) -> Trace {
    let mut builder = TraceBuilder::new(0);
    for request in 0..requests {
        for &(_, name, begins) in marks.iter().filter(|(at, ..)| *at == request) {
            let name = builder.string(name);
            let mark = if begins { Mark::AnnotationBegin(name) } else { Mark::AnnotationEnd(name) };
            builder.push(RawEvent::Mark(mark), None);
        }
        let address = u64::from(1 + request) << 20;
        builder.push(RawEvent::Alloc { address, size: 512, stream: 0, stack: StackId::NONE }, None);
    }
    builder.finish()
}

#[test]
fn the_profilers_steps_are_boundaries_and_else_the_optimizers_ends() {
    let optimizer = [(2, "Optimizer.step#Adam.step", false), (5, "Optimizer.step#Adam.step", false)];
    assert_eq!(annotations(&annotated(8, &optimizer)), Some(vec![2, 5]));
    let both = [optimizer[0], (1, "ProfilerStep#0", true), optimizer[1], (4, "ProfilerStep#1", true)];
    assert_eq!(annotations(&annotated(8, &both)), Some(vec![1, 4]));
    // Where an optimizer's step begins and a profiler's ends lies within a step.
    let others = [(1, "ProfilerStep#0", false), (2, "Optimizer.step#Adam.step", true), (3, "aten::add", true)];
    let others: Vec<_> =
        others.into_iter().flat_map(|(at, name, begins)| [(at, name, begins), (at + 3, name, begins)]).collect();
    assert_eq!(annotations(&annotated(8, &others)), None);
}

#[test]
fn annotations_of_one_place_alone_are_no_steps() {
    let one = [(2, "ProfilerStep#0", true), (2, "ProfilerStep#1", true)];
    assert_eq!(annotations(&annotated(4, &one)), None);
}

/// Steps of so many requests from one mark to the other, and what is asked for between them.
fn with_stretches(steps: &[(u64, u64)]) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let mut address = 0;
    let mut alloc = |builder: &mut TraceBuilder, count: u64| {
        for _ in 0..count {
            address += 512;
            builder.push(RawEvent::Alloc { address, size: 512, stream: 0, stack: StackId::NONE }, None);
        }
    };
    for &(of, between) in steps {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        alloc(&mut builder, of);
        builder.push(RawEvent::Mark(Mark::StepEnd), None);
        alloc(&mut builder, between);
    }
    builder.finish()
}

#[test]
fn what_lies_between_two_steps_is_the_next_ones_unless_it_is_more_than_a_twentieth() {
    // One request in twenty belongs to the step that follows, two are a stretch of their own.
    let (starts, others) = steps(&with_stretches(&[(20, 1), (20, 2), (20, 0)])).unwrap();
    assert_eq!(starts, [0, 20, 41, 43, 63]);
    assert_eq!(others, [41, 63]);
}
