//! Steps and phases as spans of time, for marks on the axes and for figures by kind of step.

use serde::Serialize;
use stalloc_plan::{Entry, Plan, SectionKind};
use stalloc_trace::{Event, Mark, Time, Trace};

/// One step of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// Its first event.
    pub begin: Time,
    /// After its last event.
    pub end: Time,
    /// Its kind, for people: steps of one name are of one kind.
    pub kind: String,
}

/// A labelled span of time, as the page draws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// From when.
    pub begin: Time,
    /// Until when.
    pub end: Time,
    /// What it is.
    pub label: String,
}

/// The steps of a trace: as the plan found them, else as the program marked them, else from one optimizer step to the next.
pub fn find(trace: &Trace, plan: Option<&Plan>) -> Vec<StepSpan> {
    let planned = plan.map(|plan| planned(trace, plan)).unwrap_or_default();
    if !planned.is_empty() {
        return planned;
    }
    let step = |range: std::ops::Range<Time>| StepSpan { begin: range.start, end: range.end, kind: "step".into() };
    let marked = trace.marked_steps();
    if !marked.is_empty() {
        return marked.into_iter().map(step).collect();
    }
    let ends = trace.optimizer_steps();
    ends.windows(2).map(|pair| step(pair[0] + 1..pair[1] + 1)).collect()
}

/// The runs of the plan's sections through the trace, without the prologue.
fn planned(trace: &Trace, plan: &Plan) -> Vec<StepSpan> {
    // For each slot its section and its place in it.
    let mut places = vec![None; plan.slots.len()];
    for (section, of) in plan.sections.iter().enumerate() {
        for (at, entry) in of.entries.iter().enumerate() {
            if let Entry::Slot(slot) = *entry
                && let Some(place) = places.get_mut(slot as usize)
            {
                *place = Some((section, at));
            }
        }
    }
    let mut runs: Vec<(usize, Time)> = Vec::new();
    let mut last = None;
    for (request, slot) in trace.requests.iter().zip(&plan.trace_map) {
        let Some((section, at)) = slot.and_then(|slot| places.get(slot as usize).copied().flatten()) else { continue };
        if last.is_none_or(|(of, before)| of != section || at <= before) {
            runs.push((section, request.alloc.unwrap_or(0)));
        }
        last = Some((section, at));
    }
    let ends = runs.iter().skip(1).map(|&(_, begin)| begin).chain([trace.end()]);
    runs.iter()
        .zip(ends)
        .filter(|((section, _), _)| plan.sections[*section].kind != SectionKind::Prologue)
        .map(|(&(section, begin), end)| StepSpan { begin, end, kind: plan.sections[section].name.clone() })
        .collect()
}

/// At most this many spans are drawn.
const DRAWN: usize = 20_000;

/// Phases: from each phase mark to the next, or to the end of its step.
pub fn phases(trace: &Trace) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Option<Span> = None;
    let mut close = |open: &mut Option<Span>, time: Time| {
        if let Some(span) = open.take().filter(|span| span.begin < time && spans.len() < DRAWN) {
            spans.push(Span { end: time, ..span });
        }
    };
    for (time, event) in trace.events.iter().enumerate() {
        let time = time as Time;
        match event {
            Event::Mark(Mark::Phase { kind, micro_batch }) => {
                close(&mut open, time);
                let label = format!("{} {micro_batch}", trace.string(*kind));
                open = Some(Span { begin: time, end: time, label });
            }
            Event::Mark(Mark::StepEnd) => close(&mut open, time),
            _ => {}
        }
    }
    close(&mut open, trace.end());
    spans
}

/// Steps as spans to draw.
pub fn spans(steps: &[StepSpan]) -> Vec<Span> {
    steps
        .iter()
        .take(DRAWN)
        .enumerate()
        .map(|(i, step)| Span { begin: step.begin, end: step.end, label: format!("step {}", i + 1) })
        .collect()
}
