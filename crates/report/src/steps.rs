//! Steps and phases as spans of time, for marks on the axes and for figures by kind of step.

use serde::Serialize;
use stalloc_plan::{Entry, Plan};
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

/// The steps of a trace as the synthesizer finds them; their kinds are named by the plan.
pub fn find(trace: &Trace, plan: Option<&Plan>) -> Vec<StepSpan> {
    let sections = plan.map(section_of_slot).unwrap_or_default();
    let kind = |requests: &std::ops::Range<u32>| {
        let plan = plan?;
        let slots = plan.trace_map.get(requests.start as usize..requests.end as usize)?;
        let section = slots.iter().flatten().find_map(|&slot| *sections.get(slot as usize)?)?;
        Some(plan.sections[section].name.clone())
    };
    let time = |request: u32| match trace.requests.get(request as usize) {
        Some(request) => request.alloc.unwrap_or(0),
        None => trace.end(),
    };
    stalloc_synthesizer::steps(trace)
        .requests
        .iter()
        .map(|requests| StepSpan {
            begin: time(requests.start),
            end: time(requests.end),
            kind: kind(requests).unwrap_or_else(|| "step".into()),
        })
        .filter(|step| step.begin < step.end)
        .collect()
}

/// For each slot the section that it belongs to.
fn section_of_slot(plan: &Plan) -> Vec<Option<usize>> {
    let mut sections = vec![None; plan.slots.len()];
    for (index, section) in plan.sections.iter().enumerate() {
        for entry in &section.entries {
            if let Entry::Slot(slot) = *entry
                && let Some(of) = sections.get_mut(slot as usize)
            {
                *of = Some(index);
            }
        }
    }
    sections
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
