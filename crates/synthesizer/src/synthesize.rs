//! The whole way, from a trace to a plan.

use std::time::Instant;

use serde::Serialize;
use stalloc_plan::{Entry, Plan, Release, Section, Slot, fingerprint};
use stalloc_trace::{StackId, Trace};
use thiserror::Error;

use crate::borrow;
use crate::chance;
use crate::dynamic::{self, Group, Headroom, Room};
use crate::expected;
use crate::layout::{self, ALIGNMENT, Budget};
use crate::lifetimes::{Nature, Natures, classify};
use crate::likes::likes;
use crate::notes;
use crate::outline::{Outline, outline};
use crate::outliving::outliving;
use crate::parts::{self, Program};
use crate::rounds::{self, Rounds, Witness};
use crate::sequence::Sequence;

/// Steps that nobody marked and of whose memory more than this share is dynamic are believed only if there are many.
const MOSTLY: f64 = 0.5;
/// Many steps.
const MANY_STEPS: usize = 4;
/// How often a plan is made again because requests of the recording outlive their places in it.
const REVISIONS: usize = 4;

/// How to plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to give to the planner.
    pub planner: stalloc_planner::Options,
    /// How much room to keep for what differs from step to step.
    pub headroom: Headroom,
}

impl Default for Options {
    fn default() -> Self {
        Options { planner: stalloc_planner::Options::default(), headroom: Headroom { deviations: 2.0 } }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The trace has no request.
    #[error("the trace of device {0} holds no request: there is nothing to plan")]
    Empty(u32),
    /// The planner refused.
    #[error("the requests cannot be planned: {0}")]
    Planner(#[from] stalloc_planner::Error),
    /// The plan did not pass the independent check.
    #[error("the plan did not pass its check, which is a fault of this program: {0}")]
    Unsound(String),
}

/// What was planned, as `stalloc plan --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
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
    /// The room that is kept for the latter.
    pub room: Room,
    /// Most live bytes, as PyTorch counts.
    pub peak_allocated: u64,
    /// Most live bytes to expect in steps like the recorded ones: as `peak_allocated`, or more where the largest batch
    /// came first, before all that lasts was made.
    pub expected_peak: u64,
    /// Device memory that the plan needs: the arena, and beside it the most live bytes that the trace has and the plan has
    /// no place for; less where a replay shows that it needs less ([`Summary::replayed`]).
    pub planned_reserved: u64,
    /// `peak_allocated / planned_reserved`.
    pub efficiency: f64,
    /// How long planning took.
    pub seconds: f64,
    /// What a user should know, in sentences.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// Memory is mapped in pieces of up to so many bytes, the last of which may not be full.
const PIECE: u64 = 8 << 20;

impl Summary {
    /// Takes into account what a replay of the trace under the plan reserved. The arena is addresses: where the device maps
    /// pages, memory of blocks that are gone backs others, so that ranges kept for what varies hardly cost any. What is to be
    /// expected beyond the recording takes as much in proportion.
    pub fn replayed(&mut self, reserved: u64) {
        let beyond = self.expected_peak as f64 / self.peak_allocated.max(1) as f64;
        let reserved = (reserved as f64 * beyond.max(1.0)) as u64;
        if reserved < self.planned_reserved || reserved > self.planned_reserved.saturating_add(PIECE) {
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
    /// No plan of them, and of the room that is kept for dynamic ones among them, can need less, bytes.
    pub lower_bound: u64,
    /// What they need with that room, bytes: the arena.
    pub peak: u64,
    /// `peak / lower_bound`.
    pub ratio: f64,
}

/// Requests without a slot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dynamic {
    /// How many.
    pub requests: u64,
    /// Most live bytes of them at once.
    pub peak: u64,
}

/// The steps of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Who said where they begin.
    pub witness: Witness,
    /// For each step, its requests; what comes before the first is the prologue.
    pub requests: Vec<std::ops::Range<u32>>,
    /// What a user should know, in sentences.
    pub notes: Vec<String>,
}

/// The steps of a trace, for a first look. O(n log n).
pub fn steps(trace: &Trace) -> Steps {
    let (sequence, rounds) = read(trace);
    let program = parts::sort(&sequence, &rounds);
    let requests = program.rounds.iter().filter(|round| program.is_step(round));
    Steps {
        witness: rounds.witness,
        requests: requests.map(|round| round.requests.clone()).collect(),
        notes: notes::on_steps(&sequence, &program),
    }
}

/// A trace's requests and its rounds.
fn read(trace: &Trace) -> (Sequence, Rounds) {
    let by_size = Sequence::with_stacks(trace, &vec![StackId::NONE; trace.requests.len()]);
    let rounds = rounds::find(trace, &by_size);
    if let Some(stacks) = borrow::stacks(trace, &by_size, &rounds) {
        return (Sequence::with_stacks(trace, &stacks), rounds);
    }
    let sequence = Sequence::new(trace);
    let rounds = rounds::find(trace, &sequence);
    (sequence, rounds)
}

/// Plans a trace. `progress` is told how much is done, of how much.
pub fn plan(trace: &Trace, options: &Options, progress: &mut dyn FnMut(u64, u64)) -> Result<(Plan, Summary), Error> {
    let started = Instant::now();
    if trace.requests.is_empty() {
        return Err(Error::Empty(trace.device));
    }
    progress(0, 4);
    let (sequence, rounds) = read(trace);
    progress(1, 4);
    let mut budget = Budget::new(&options.planner);
    let mut draft = draft_that_holds(trace, &sequence, &rounds, options, &mut budget)?;
    progress(3, 4);
    if let Some(reason) = useless(&draft, trace, &sequence, rounds.witness) {
        let nobody = Rounds { witness: Witness::Nobody, starts: Vec::new() };
        draft = self::draft(trace, &sequence, &nobody, options, &[], &mut budget)?;
        sound(&draft.plan, trace).map_err(Error::Unsound)?;
        draft.notes.push(reason);
    }
    // What is alive at once needs its bytes, however it is placed, and where nothing repeats no more is known.
    let all = 0..sequence.len() as u32;
    let load = sequence.most_alive(all, |request| draft.plan.trace_map[request as usize].is_some());
    draft.plan.lower_bound = draft.plan.lower_bound.max(load);
    let summary = summarize(trace, &sequence, &draft, started.elapsed().as_secs_f64());
    progress(4, 4);
    Ok((draft.plan, summary))
}

/// Why the steps found are not good enough to plan by, if they are not.
fn useless(draft: &Draft, trace: &Trace, sequence: &Sequence, witness: Witness) -> Option<String> {
    if witness == Witness::Nobody {
        return None;
    }
    if let Err(problem) = sound(&draft.plan, trace) {
        return Some(format!("the steps found did not hold together ({problem}), so they were left out of account"));
    }
    let all = 0..sequence.len() as u32;
    let dynamic = sequence.most_alive(all, |request| draft.plan.trace_map[request as usize].is_none());
    let few = draft.program.rounds.iter().filter(|round| draft.program.is_step(round)).count() < MANY_STEPS;
    let mostly = dynamic as f64 > MOSTLY * trace.peak_allocated() as f64;
    (witness == Witness::Repetition && few && mostly).then(|| {
        "what repeats is so different from time to time, and was seen so few times, that no steps were made of it"
            .to_owned()
    })
}

fn sound(plan: &Plan, trace: &Trace) -> Result<(), String> {
    let verdict = plan.check().and(plan.check_against(trace));
    if verdict.ok { Ok(()) } else { Err(verdict.problems.into_iter().next().unwrap_or_default()) }
}

struct Draft {
    plan: Plan,
    program: Program,
    /// Requests that have a home with their group.
    housed: Vec<bool>,
    room: Room,
    notes: Vec<String>,
}

/// A draft in which no request of the recording outlives its place, if leaving out those that do is enough.
fn draft_that_holds(
    trace: &Trace,
    sequence: &Sequence,
    rounds: &Rounds,
    options: &Options,
    budget: &mut Budget,
) -> Result<Draft, Error> {
    let mut left_out = Vec::new();
    let mut draft = draft(trace, sequence, rounds, options, &left_out, budget)?;
    for _ in 0..REVISIONS {
        let outliving = outliving(&draft.plan, sequence);
        if outliving.is_empty() {
            break;
        }
        left_out.extend(outliving);
        draft = self::draft(trace, sequence, rounds, options, &left_out, budget)?;
    }
    Ok(draft)
}

/// A plan in which the entries of the requests `left_out` are dynamic, whatever was made of them.
fn draft(
    trace: &Trace,
    sequence: &Sequence,
    rounds: &Rounds,
    options: &Options,
    left_out: &[u32],
    budget: &mut Budget,
) -> Result<Draft, Error> {
    let program = parts::sort(sequence, rounds);
    let mut natures = classify(sequence, &program);
    chance::follow_siblings(sequence, &program, &mut natures.of);
    for (part, entry) in left_out.iter().filter_map(|&request| program.entry_of(request)) {
        natures.of[part][entry as usize] = Nature::Dynamic;
    }
    let (outline, mut items) = loop {
        let outline = outline(sequence, &program, &natures);
        let items = outline.items(&likes(sequence, &program, &outline));
        // What may still be alive where it is made again has no place in any order of steps: it is dynamic.
        let meets_itself: Vec<usize> = (0..items.len()).filter(|&i| items[i].meets_itself()).collect();
        if meets_itself.is_empty() {
            break (outline, items);
        }
        for slot in meets_itself {
            let slot = &outline.slots[slot];
            natures.of[outline.sections[slot.section].part][slot.lower as usize] = Nature::Dynamic;
        }
    };
    let mut groups: Vec<(usize, Group)> = Vec::new();
    for part in 0..program.parts.len() {
        let gathered = dynamic::gather(sequence, &program, &natures, part, options.headroom);
        for section in (0..outline.sections.len()).filter(|&section| outline.sections[section].part == part) {
            groups.extend(gathered.iter().map(|group| (section, group.clone())));
        }
    }
    items.extend(groups.iter().map(|(section, group)| dynamic::home(group, *section, &outline)));
    let layout = layout::place(&outline.places(), &items, budget)?;
    let (offsets, homes) = layout.offsets.split_at(outline.slots.len());
    let mut plan = assemble(trace, &outline, offsets);
    plan.arena = layout.top;
    plan.lower_bound = layout.lower_bound;
    for ((section, group), &offset) in groups.iter().zip(homes) {
        let index = plan.dynamic.len() as u32;
        for &entry in &group.entries {
            plan.sections[*section].entries[entry as usize] = Entry::Dynamic(index);
        }
        plan.dynamic.push(dynamic::describe(sequence, group, *section, offset..offset + group.home));
    }
    items.truncate(plan.slots.len());
    dynamic::find_ranges(&mut plan, &items);
    map_trace(&mut plan, sequence, &program, &natures, &outline);
    let mut housed = vec![false; sequence.len()];
    groups.iter().flat_map(|(_, group)| &group.requests).for_each(|&request| housed[request as usize] = true);
    let room = Room::new(&groups, options.headroom);
    let notes = notes::on_plan(sequence, &program, &natures, &room);
    Ok(Draft { plan, program, housed, room, notes })
}

/// The plan's slots and sections. Entries that are no slot are filled in later.
fn assemble(trace: &Trace, outline: &Outline, offsets: &[u64]) -> Plan {
    let slots = outline.slots.iter().zip(offsets).map(|(slot, &offset)| Slot {
        size: slot.size,
        offset,
        stream: slot.stream,
        lower: slot.lower,
        upper: slot.upper,
    });
    let sections = outline.sections.iter().map(|section| {
        let mut releases: Vec<Release> =
            section.releases.iter().map(|(&slot, &at)| Release { at, slot: slot as u32 }).collect();
        releases.sort_unstable();
        let entry = |slot: &Option<usize>| slot.map_or(Entry::Dynamic(u32::MAX), |slot| Entry::Slot(slot as u32));
        Section {
            kind: section.kind,
            name: section.name.clone(),
            runs: section.runs,
            entries: section.slot_of.iter().map(entry).collect(),
            releases,
            followers: section.followers.iter().map(|&next| next as u32).collect(),
        }
    });
    Plan {
        device: trace.device,
        fingerprint: fingerprint(trace),
        alignment: ALIGNMENT,
        slots: slots.collect(),
        sections: sections.collect(),
        metadata: trace.metadata.clone(),
        ..Plan::default()
    }
}

/// Which slot serves which request of the trace.
fn map_trace(plan: &mut Plan, sequence: &Sequence, program: &Program, natures: &Natures, outline: &Outline) {
    plan.trace_map = vec![None; sequence.len()];
    for (round, &section) in program.rounds.iter().zip(&outline.ran) {
        for (request, entry) in round.requests.clone().zip(round.entry.iter().copied()) {
            let Some(entry) = entry.filter(|&entry| natures.is_like(sequence, round.part, entry, request)) else {
                continue;
            };
            let slot = outline.sections[section].slot_of[entry as usize];
            plan.trace_map[request as usize] = slot.map(|slot| slot as u32);
        }
    }
}

fn summarize(trace: &Trace, sequence: &Sequence, draft: &Draft, seconds: f64) -> Summary {
    let plan = &draft.plan;
    let all = 0..sequence.len() as u32;
    let mapped = |request: u32| plan.trace_map[request as usize].is_some();
    let requests = plan.trace_map.iter().flatten().count() as u64;
    let dynamic = sequence.most_alive(all.clone(), |request| !mapped(request));
    let outside = sequence.most_alive(all, |request| !mapped(request) && !draft.housed[request as usize]);
    let peak_allocated = trace.peak_allocated();
    let planned_reserved = plan.arena.saturating_add(outside);
    Summary {
        kind: "trace",
        device: trace.device,
        requests: sequence.len() as u64,
        steps: draft.program.rounds.iter().filter(|round| draft.program.is_step(round)).count() as u64,
        planned: Static {
            requests,
            lower_bound: plan.lower_bound,
            peak: plan.arena,
            ratio: plan.arena as f64 / plan.lower_bound.max(1) as f64,
        },
        dynamic: Dynamic { requests: sequence.len() as u64 - requests, peak: dynamic },
        room: draft.room.clone(),
        peak_allocated,
        expected_peak: peak_allocated.max(expected::peak_of_first_shape(sequence, &draft.program)),
        planned_reserved,
        efficiency: peak_allocated as f64 / planned_reserved.max(1) as f64,
        seconds,
        notes: draft.notes.clone(),
    }
}
