//! Boundaries from what the recorder wrote down.

use crate::tuning::between_steps;
use stalloc_trace::{Event, Mark, Trace};

/// The marks of a trace, each with the first request at or after it.
fn marks(trace: &Trace) -> impl Iterator<Item = (u32, &Mark)> {
    let mut next = trace.requests.partition_point(|request| request.alloc.is_none()) as u32;
    trace.events.iter().filter_map(move |event| {
        next += u32::from(matches!(event, Event::Alloc(_)));
        if let Event::Mark(mark) = event { Some((next, mark)) } else { None }
    })
}

/// Boundaries by step marks, if there are any; and those of them after which no step comes.
pub fn steps(trace: &Trace) -> Option<(Vec<u32>, Vec<u32>)> {
    let mut begins = Vec::new();
    let mut ends = Vec::new();
    let mut is_open = false;
    for (at, mark) in marks(trace) {
        match mark {
            Mark::StepBegin => begins.push(at),
            Mark::StepEnd => ends.push(at),
            _ => continue,
        }
        is_open = *mark == Mark::StepBegin;
    }
    // What begins after the last optimizer's step is no step: a validation, a checkpoint, or what was cut off.
    let unfinished = if is_open && begins.len() > 1 && !ends.is_empty() { begins.pop() } else { None };
    if begins.is_empty() {
        return None;
    }
    // The end of each step is its last mark before the next begins or, if there is none, the beginning of the next.
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for (i, &begin) in begins.iter().enumerate() {
        let next = begins.get(i + 1).copied().or(unfinished).unwrap_or(trace.requests.len() as u32);
        let mark = ends[..ends.partition_point(|&end| end <= next)].last().copied();
        spans.push((begin, mark.filter(|&end| end > begin).unwrap_or(next)));
    }
    let mut lengths: Vec<u32> = spans.iter().map(|(begin, end)| end - begin).collect();
    lengths.sort_unstable();
    let between = (f64::from(lengths[lengths.len() / 2]) * between_steps()) as u32;
    let (mut starts, mut others) = (vec![spans[0].0], Vec::new());
    for pair in spans.windows(2) {
        let (end, begin) = (pair[0].1, pair[1].0);
        starts.push(end);
        if begin - end > between {
            starts.push(begin);
            others.push(end);
        }
    }
    if let Some(&(_, end)) = spans.last() {
        starts.push(end);
        others.push(end);
    }
    Some((starts, others))
}

/// Boundaries by annotations, if one that comes with every step is there at least twice.
pub fn annotations(trace: &Trace) -> Option<Vec<u32>> {
    let mut profiler = Vec::new();
    let mut optimizer = Vec::new();
    for (at, mark) in marks(trace) {
        match mark {
            Mark::AnnotationBegin(name) if trace.string(*name).starts_with("ProfilerStep#") => profiler.push(at),
            Mark::AnnotationEnd(name) if trace.string(*name).starts_with("Optimizer.step#") => optimizer.push(at),
            _ => {}
        }
    }
    [profiler, optimizer].into_iter().find_map(|mut starts| {
        starts.dedup();
        (starts.len() >= 2).then_some(starts)
    })
}

#[cfg(test)]
mod tests;
