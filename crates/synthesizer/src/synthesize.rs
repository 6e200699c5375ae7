//! The whole way, from a trace to a plan.

use std::time::Instant;

use serde::Serialize;
use stalloc_plan::{Plan, fingerprint};
use stalloc_trace::Trace;

use crate::draft::Draft;
use crate::ends;
use crate::error::Error;
use crate::layout::{ALIGNMENT, Work};
use crate::learner::Learner;
use crate::make::Made;
use crate::notes;
use crate::recorded::{learner, most_alive, sequence};
use crate::step_detection::{self, Steps};
use crate::tuning::worthwhile;

/// How to plan.
#[derive(Clone, Debug, Default)]
pub struct SynthesisOptions {
    /// What to give to the planner.
    pub planner: stalloc_planner::SolveOptions,
}

/// What was planned, as `stalloc plan --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSummary {
    /// `trace`.
    pub kind: &'static str,
    /// Device.
    pub device: u32,
    /// Requests in the trace.
    pub requests: u64,
    /// Steps found in it.
    pub steps: u64,
    /// What is planned.
    #[serde(rename = "static")]
    pub planned: Static,
    /// What is not.
    pub dynamic: Dynamic,
    /// Most live bytes, as PyTorch counts.
    pub peak_allocated: u64,
    /// Most live bytes to expect: those of the recording.
    pub expected_peak: u64,
    /// Device memory that the plan needs: the arena, and the most live bytes without offset; or what a replay reserved
    /// ([`PlanSummary::replayed`]).
    pub planned_reserved: u64,
    /// `peak_allocated / planned_reserved`.
    pub efficiency: f64,
    /// How long planning took.
    pub seconds: f64,
    /// What a user should know, in sentences.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl PlanSummary {
    /// Takes into account what a replay of the trace under the plan reserved. The arena is addresses: where the device maps
    /// pages, memory of blocks that are gone backs others. It maps up to `at_once` bytes at a time, the last of which may not be full.
    pub fn replayed(&mut self, reserved: u64, at_once: u64) {
        if reserved < self.planned_reserved || reserved > self.planned_reserved.saturating_add(at_once) {
            self.planned_reserved = reserved;
            self.efficiency = self.peak_allocated as f64 / reserved.max(1) as f64;
        }
    }
}

/// Planned requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Static {
    /// Requests of the trace that have a slot.
    pub requests: u64,
    /// No plan of them can need less, bytes.
    pub lower_bound: u64,
    /// What they need, bytes: the arena.
    pub peak: u64,
    /// `peak / lower_bound`; 1 where nothing is planned.
    pub ratio: f64,
}

/// Requests without an offset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dynamic {
    /// How many.
    pub requests: u64,
    /// Most live bytes of them at once.
    pub peak: u64,
}

/// The steps of a trace, for a first look. O(n log n).
pub fn steps(trace: &Trace) -> Steps {
    let mut steps = step_detection::find(trace, &sequence(trace));
    let learner = learner(trace, &steps.starts);
    steps.notes = notes::on_steps(&learner, &steps);
    steps
}

/// Plans a trace. `progress` is told how much is done, of how much.
///
/// # Errors
/// If the trace holds no request. What cannot be planned gets a plan without offsets, and a note says why.
pub fn plan(
    trace: &Trace,
    options: &SynthesisOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Plan, PlanSummary), Error> {
    let started = Instant::now();
    if trace.requests.is_empty() {
        return Err(Error::Empty(trace.device));
    }
    progress(0, 4);
    let steps = step_detection::find(trace, &sequence(trace));
    progress(1, 4);
    let learner = learner(trace, &steps.starts);
    progress(2, 4);
    let mut notes = notes::on_steps(&learner, &steps);
    let made = learner.make_whole(options, &mut notes, |made| {
        finish(&mut made.plan, trace);
        map_trace(made, trace.requests.len(), &learner);
        let verdict = made.plan.check().and(made.plan.check_against(trace));
        if verdict.ok { Ok(()) } else { Err(verdict.problems.into_iter().next().unwrap_or_default()) }
    });
    progress(3, 4);
    let made = made.filter(|made| {
        let open = most_alive(trace, |i| made.plan.trace_map[i].is_none());
        let times = made.plan.arena.saturating_add(open) as f64 / most_alive(trace, |_| true) as f64;
        let worthwhile = times <= worthwhile();
        if !worthwhile {
            notes.push(notes::on_waste(times));
        }
        worthwhile
    });
    let mut plan = made.map_or_else(|| learner.without_offsets(), |made| made.plan);
    finish(&mut plan, trace);
    plan.trace_map.resize(trace.requests.len(), None);
    // What is alive at once needs its bytes, however it is placed.
    let load =
        if plan.slots.is_empty() { plan.expected_peak } else { most_alive(trace, |i| plan.trace_map[i].is_some()) };
    plan.lower_bound = plan.lower_bound.max(load);
    let summary = summarize(trace, &plan, steps.requests.len() as u64, notes, started);
    progress(4, 4);
    Ok((plan, summary))
}

/// What a plan says of its trace.
fn finish(plan: &mut Plan, trace: &Trace) {
    plan.device = trace.device;
    plan.fingerprint = fingerprint(trace);
    plan.expected_peak = trace.peak_allocated();
    plan.metadata = trace.metadata.clone();
}

impl Learner {
    /// A plan of all that is known, prologue and first step too, for keeping at the end of a run. Without slots if the steps
    /// do not repeat exactly.
    pub fn whole_plan(mut self, options: &SynthesisOptions) -> Plan {
        self.finish();
        let made = self.make_whole(options, &mut Vec::new(), |made| {
            let verdict = made.plan.check();
            if verdict.ok { Ok(()) } else { Err(verdict.problems.into_iter().next().unwrap_or_default()) }
        });
        made.map_or_else(|| self.without_offsets(), |made| made.plan)
    }

    fn without_offsets(&self) -> Plan {
        Plan { alignment: ALIGNMENT, expected_peak: self.peak, lower_bound: self.peak, ..Plan::default() }
    }

    /// A plan that `holds`, if the steps repeat: of all that is known, or else of the repeating steps alone.
    fn make_whole(
        &self,
        options: &SynthesisOptions,
        notes: &mut Vec<String>,
        mut holds: impl FnMut(&mut Made) -> Result<(), String>,
    ) -> Option<Made> {
        if !self.repeats(usize::MAX) {
            notes.push(notes::on_varying(self.exact(usize::MAX)));
            return None;
        }
        let mut budget = Work::new(&options.planner);
        for whole in [true, false] {
            let draft: Draft = self.snapshot(whole);
            let made = draft.make(ends::find(&draft), &[], &mut budget).map_err(|error| error.to_string());
            match made.and_then(|mut made| holds(&mut made).map(|()| made)) {
                Ok(made) => {
                    notes.extend(notes::on_ends(&made.ends));
                    return Some(made);
                }
                Err(problem) => notes.push(notes::on_unsound(whole, &problem)),
            }
        }
        None
    }
}

/// Which slot serves which request of the trace.
fn map_trace(made: &mut Made, requests: usize, learner: &Learner) {
    made.plan.trace_map = Vec::with_capacity(requests);
    for (step, (ran, section)) in learner.ran.iter().zip(&made.outline.ran).enumerate() {
        let slots = section.map(|section| &made.outline.sections[section].slot_of);
        made.plan.trace_map.extend((0..ran.requests).map(|entry| {
            let odd = made.ends.odd.contains(&(step as u32, entry));
            slots
                .and_then(|slots| slots.get(entry as usize).copied().flatten())
                .filter(|_| !odd)
                .map(|slot| slot as u32)
        }));
    }
    made.plan.trace_map.resize(requests, None);
}

fn summarize(trace: &Trace, plan: &Plan, steps: u64, notes: Vec<String>, started: Instant) -> PlanSummary {
    let requests = plan.trace_map.iter().flatten().count() as u64;
    let dynamic = most_alive(trace, |i| plan.trace_map[i].is_none());
    let peak_allocated = trace.peak_allocated();
    let planned_reserved = plan.arena.saturating_add(dynamic);
    let ratio = if plan.slots.is_empty() { 1.0 } else { plan.arena as f64 / plan.lower_bound.max(1) as f64 };
    PlanSummary {
        kind: "trace",
        device: trace.device,
        requests: trace.requests.len() as u64,
        steps,
        planned: Static { requests, lower_bound: plan.lower_bound, peak: plan.arena, ratio },
        dynamic: Dynamic { requests: trace.requests.len() as u64 - requests, peak: dynamic },
        peak_allocated,
        expected_peak: peak_allocated,
        planned_reserved,
        efficiency: peak_allocated as f64 / planned_reserved.max(1) as f64,
        seconds: started.elapsed().as_secs_f64(),
        notes,
    }
}
