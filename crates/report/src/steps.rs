//! Steps and phases as spans of time, for marks on the axes and for figures by kind of step.

use serde::Serialize;
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
