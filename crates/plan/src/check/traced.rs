//! The check of a plan against the trace that it was made from.

use stalloc_trace::{Event, Trace};

use super::Findings;
use super::ranges::TakenRanges;
use crate::Plan;

/// See [`Plan::check_against`]. A request lives until its free *completed*: until then no stream may have its memory.
pub fn check(plan: &Plan, trace: &Trace) -> Findings {
    let mut findings = Findings::default();
    if plan.trace_map.len() != trace.requests.len() {
        findings.unmatched = (plan.trace_map.len().abs_diff(trace.requests.len())) as u64;
        let (planned, traced) = (plan.trace_map.len(), trace.requests.len());
        findings
            .problem(|| format!("the plan is for {planned} requests, the trace has {traced}: it is of another trace"));
        return findings.conclude();
    }
    let mut replay = TracedReplay { plan, trace, taken: TakenRanges::default(), findings };
    for (i, request) in trace.requests.iter().enumerate() {
        if request.alloc.is_none() {
            replay.alloc(i);
        }
    }
    for event in &trace.events {
        match event {
            Event::Alloc(id) => replay.alloc(id.index()),
            Event::FreeCompleted(id) => replay.free(id.index()),
            _ => {}
        }
    }
    replay.findings.conclude()
}

struct TracedReplay<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    taken: TakenRanges,
    findings: Findings,
}

impl TracedReplay<'_> {
    fn alloc(&mut self, i: usize) {
        let (Some(&Some(index)), Some(request)) = (self.plan.trace_map.get(i), self.trace.requests.get(i)) else {
            return;
        };
        let Some(slot) = self.plan.slots.get(index as usize) else {
            self.findings.unmatched(|| format!("request {i} has slot {index}, which the plan does not have"));
            return;
        };
        if slot.size != request.rounded() || slot.stream != request.stream.0 {
            self.findings.unmatched(|| {
                let (size, stream) = (request.rounded(), request.stream.0);
                let (planned, on) = (slot.size, slot.stream);
                format!("request {i}: {size} bytes on stream {stream}, but its slot {index}: {planned} on {on}")
            });
        }
        // What the request takes counts, whatever its slot says.
        let (start, size) = (slot.offset, request.rounded());
        let what = || format!("request {i}");
        let end = self.findings.place(what, start, size, self.plan.alignment, self.plan.arena).unwrap_or(u64::MAX);
        match self.taken.holder(start, end) {
            Some(holder) => self.findings.overlap(|| format!("request {i} is put where request {holder} still lives")),
            None => self.taken.take(start, end, i as u32),
        }
    }

    fn free(&mut self, i: usize) {
        if let Some(&Some(index)) = self.plan.trace_map.get(i)
            && let Some(slot) = self.plan.slots.get(index as usize)
        {
            self.taken.give_back(slot.offset, i as u32);
        }
    }
}
