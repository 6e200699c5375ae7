//! Boundaries from what the recorder wrote down.

use stalloc_trace::{Event, Mark, Time, Trace};

use crate::sequence::Clock;

/// Between two steps lies a round of its own (evaluation, a checkpoint) if it has more than this share of the
/// requests of a typical step; less than that (loading the next batch) belongs to the step that follows.
const BETWEEN: f64 = 0.05;

/// Boundaries by step marks, if there are steps.
pub fn steps(trace: &Trace) -> Option<Vec<u32>> {
    let clock = Clock::new(trace);
    let mut begins = Vec::new();
    let mut ends = Vec::new();
    for (time, event) in trace.events.iter().enumerate() {
        match event {
            Event::Mark(Mark::StepBegin) => begins.push(clock.at(time as Time)),
            Event::Mark(Mark::StepEnd) => ends.push(clock.at(time as Time)),
            _ => {}
        }
    }
    if begins.len() < 2 {
        return None;
    }
    // The end of each step is its last mark before the next begins or, if there is none, the beginning of the next.
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for (i, &begin) in begins.iter().enumerate() {
        let next = begins.get(i + 1).copied().unwrap_or(trace.requests.len() as u32);
        let mark = ends[..ends.partition_point(|&end| end <= next)].last().copied();
        spans.push((begin, mark.filter(|&end| end > begin).unwrap_or(next)));
    }
    let mut lengths: Vec<u32> = spans.iter().map(|(begin, end)| end - begin).collect();
    lengths.sort_unstable();
    let between = (f64::from(lengths[lengths.len() / 2]) * BETWEEN) as u32;
    let mut starts = vec![spans[0].0];
    for pair in spans.windows(2) {
        let (end, begin) = (pair[0].1, pair[1].0);
        starts.push(end);
        if begin - end > between {
            starts.push(begin);
        }
    }
    if let Some(&(_, end)) = spans.last()
        && (end as usize) < trace.requests.len()
    {
        starts.push(end);
    }
    Some(ascending(starts))
}

/// Boundaries by annotations, if one that comes with every step is there at least twice.
pub fn annotations(trace: &Trace) -> Option<Vec<u32>> {
    let clock = Clock::new(trace);
    let mut profiler = Vec::new();
    let mut optimizer = Vec::new();
    for (time, event) in trace.events.iter().enumerate() {
        match event {
            Event::Mark(Mark::AnnotationBegin(name)) if trace.string(*name).starts_with("ProfilerStep#") => {
                profiler.push(clock.at(time as Time));
            }
            Event::Mark(Mark::AnnotationEnd(name)) if trace.string(*name).starts_with("Optimizer.step#") => {
                optimizer.push(clock.at(time as Time));
            }
            _ => {}
        }
    }
    [profiler, optimizer].into_iter().map(ascending).find(|starts| starts.len() >= 2)
}

/// Without rounds that hold nothing.
fn ascending(mut starts: Vec<u32>) -> Vec<u32> {
    starts.sort_unstable();
    starts.dedup();
    starts
}
