//! What would make a job fit: its script is run as it is, and once with each lever, with no GPU.
//!
//! A lever is applied from outside, in the child process of a dry run (`python/stalloc/_levers`), which also says which levers
//! the script has and how they are written by hand. Trials, their cache and the search of a range are those of [`crate::fit`].

mod combine;
pub mod first_plan;
mod json;
mod picture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stalloc_dryrun_setup::{DryRun, Gpu};
use stalloc_report::Category;

use crate::fit::found::{Found, Tried, points};
pub use crate::fit::notes::{FoundLever, LeverNotes, Spill};
use crate::fit::scheduler::{self, Line};
use crate::fit::search::{self, Next, Point};
use crate::fit::trial::scratch;
use crate::fit::values::{self, Assignment, Values, Variable};
use crate::fit::verdict::{CardVerdict, verdict};
use crate::fit::{self, Error, RankDevice, TrialFailure};
pub use combine::Combination;
pub use json::json;
pub use picture::page;

/// The allocator under which a job is to fit, by its place in [`fit::ALLOCATORS`]: ours.
pub const OURS: usize = 2;

/// The lever that halves the searched variable and takes two steps' gradients together.
const ACCUMULATE: &str = "accumulate";

/// The lever that plans what waits in host memory, within each trial of it.
const SPILL: &str = "spill";

/// The lever that leaves out what the script does itself: it shows what that saves, and is never chosen.
pub const WITHOUT_OWN: &str = "without_own";

/// Levers that are right when they are applied from outside to a job that trains, in the order in which they are shown.
pub const FROM_OUTSIDE: [&str; 12] = [
    "fused",
    "foreach_off",
    "zero_grad_early",
    "no_unused_gradients",
    "chunked_loss",
    "checkpoint_keep_matmuls",
    "checkpoint_every_second",
    "checkpoint",
    SPILL,
    "states_on_host",
    "offload_first_half",
    "offload",
];

/// The same of those that change the numbers.
pub const CHANGING_FROM_OUTSIDE: [&str; 2] = ["autocast_bf16", "weights_bf16"];

/// In place of a lever's name: the script as it is, alone.
pub const AS_IT_IS: &str = "as_it_is";

/// Levers that run one rank of so many, before the number.
const SHARDED: &str = "fsdp2_over_";

/// What a search for levers gets: the question of a `fit` on one GPU, and the levers to try.
#[derive(Clone, Debug)]
pub struct LeverQuestion {
    /// As for `fit`, with one GPU and at most one variable, a range.
    pub fit: fit::Question,
    /// The ranks of the script, one of which is run alone; none: it has no process groups.
    pub world_size: Option<u32>,
    /// The levers to try, by their names, or [`AS_IT_IS`]; none: all that the script has.
    pub only: Vec<String>,
    /// Nothing is tried of a script that fits as it is.
    pub only_if_needed: bool,
}

/// What a trial needs, and what its step costs.
#[derive(Clone, Debug, PartialEq)]
pub struct LeverFigures {
    /// Largest live bytes.
    pub peak_allocated: u64,
    /// Who holds them.
    pub holders: Vec<(Category, u64)>,
    /// The most that each of [`fit::ALLOCATORS`] holds, bytes.
    pub peak_reserved: Vec<u64>,
    /// The least memory that the job gets through with under our allocator, all that is outside PyTorch included at its most; bytes.
    pub needed: Option<u64>,
    /// Whether that is within the goal.
    pub fits: bool,
    /// Floating-point operations of a step.
    pub flops: Option<u64>,
    /// How long a step takes under our allocator by the dry run's clock, microseconds.
    pub step_us: Option<u64>,
    /// Bytes that a step copies between host and device, both ways.
    pub host_bytes: Option<u64>,
    /// What was planned to be spilled.
    pub spill: Option<Spill>,
    /// See [`RankDevice::rise`].
    pub rise: Option<u64>,
}

/// One lever, or none.
#[derive(Clone, Debug)]
pub struct Row {
    /// The lever; none: the script as it is.
    pub lever: Option<FoundLever>,
    /// What it needs, or why it did not run with it.
    pub outcome: Result<LeverFigures, TrialFailure>,
    /// The largest value of the variable that fits; none: nothing does, or it was not searched.
    pub largest: Option<i64>,
    /// Whether that is the end of the range, so that more may fit.
    pub is_end: bool,
}

/// The answer of `levers` for one GPU: the script alone, with each lever, and the cheapest set of levers that reaches the goal.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The GPU.
    pub gpu: Gpu,
    /// The memory to fit into, bytes.
    pub goal: u64,
    /// The values at which peaks are compared.
    pub at: Assignment,
    /// The script as it is.
    pub base: Row,
    /// Each lever that was tried.
    pub rows: Vec<Row>,
    /// Levers that were not tried, each with why.
    pub skipped: Vec<FoundLever>,
    /// What tells the script's models from others.
    pub models: Vec<String>,
    /// The cheapest set that fits, or what came nearest.
    pub combination: Option<Combination>,
    /// Whether it was stopped before everything was tried.
    pub is_interrupted: bool,
}

impl Answer {
    /// Seconds that a row adds to each step, by the dry run's clock; where no step was found, what its operations and copies take by the
    /// data sheet.
    pub fn extra_seconds(&self, figures: &LeverFigures) -> Option<f64> {
        let base = self.base.outcome.as_ref().ok()?;
        if let (Some(before), Some(after)) = (base.step_us, figures.step_us) {
            return Some((after as f64 - before as f64) / 1e6);
        }
        let (operations_a_second, bytes_a_second) = rates(&self.gpu);
        let copies = self.extra_host_bytes(figures)? as f64 / bytes_a_second;
        Some(self.extra_flops(figures)? as f64 / operations_a_second + copies)
    }

    /// How long a step takes, microseconds, by [`Self::extra_seconds`].
    pub fn step_us(&self, figures: &LeverFigures) -> Option<u64> {
        let base = self.base.outcome.as_ref().ok()?.step_us?;
        Some((base as f64 + self.extra_seconds(figures)? * 1e6).max(0.0) as u64)
    }

    /// Operations that a row adds to each step; none where they were not counted.
    pub fn extra_flops(&self, figures: &LeverFigures) -> Option<i64> {
        difference(figures.flops, self.base.outcome.as_ref().ok()?.flops)
    }

    /// Bytes that a row copies to and from the host in each step beyond the script's own.
    pub fn extra_host_bytes(&self, figures: &LeverFigures) -> Option<i64> {
        difference(figures.host_bytes, self.base.outcome.as_ref().ok()?.host_bytes)
    }
}

fn difference(with: Option<u64>, without: Option<u64>) -> Option<i64> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Some(signed(with?).saturating_sub(signed(without?)))
}

/// Runs trials for the rest of this module.
struct Bench<'a> {
    question: LeverQuestion,
    stand_ins: Vec<DryRun>,
    goal: u64,
    /// What the lever `spill` is told; none: nothing is known of the script as it is.
    spill: Option<Aim>,
    watch: &'a mut dyn FnMut(&'static str, fit::FitEvent<'_>),
    stop: &'a AtomicBool,
}

impl Bench<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self, lines: &[Line], stage: &'static str) -> Result<Found, Error> {
        let watch = &mut |event: fit::FitEvent<'_>| (self.watch)(stage, event);
        scheduler::run(&self.question.fit, &self.stand_ins, lines, watch, self.stop)
    }

    /// The line of one value, or of the whole range where there is none.
    fn line(&self, levers: &[String], at: Option<&Assignment>) -> Line {
        let range = self.question.fit.variables.iter().enumerate().find_map(|(at, variable)| match variable.values {
            Values::Range { first, step, count } => Some((at, first, step, count)),
            Values::List(_) => None,
        });
        Line {
            gpu: 0,
            fixed: at.cloned().unwrap_or_default(),
            range: if at.is_some() { None } else { range },
            world_size: levers
                .iter()
                .find_map(|lever| lever.strip_prefix(SHARDED)?.parse().ok())
                .or(self.question.world_size),
            levers: Some(levers.iter().map(|lever| self.told(lever)).collect()),
        }
    }

    /// A lever's name, with what it is told.
    fn told(&self, lever: &str) -> String {
        match &self.spill {
            Some(aim) if lever == SPILL => format!("{SPILL}:{}", aim.words()),
            _ => lever.to_owned(),
        }
    }

    /// What a trial came to; none if there is none.
    fn figures(&self, tried: Option<&Arc<Tried>>) -> Option<Result<LeverFigures, TrialFailure>> {
        let tried = tried?;
        if let Some((_, failure)) = &tried.failure {
            return Some(Err(failure.clone()));
        }
        let CardVerdict { needed, .. } = verdict(&tried.devices, OURS, &self.question.fit.gpus[0]);
        let step_us = |device: &RankDevice| device.needs[OURS].step_us_asked.or(device.needs[OURS].step_us);
        let reserved = |kind: usize| {
            tried.devices.iter().filter_map(|device| device.needs.get(kind)).map(|need| need.peak_reserved).max()
        };
        let notes = tried.levers.as_ref();
        let fullest = tried.devices.iter().max_by_key(|device| device.peak_allocated);
        Some(Ok(LeverFigures {
            peak_allocated: fullest.map_or(0, |device| device.peak_allocated),
            holders: fullest.map(|device| device.holders.clone()).unwrap_or_default(),
            peak_reserved: (0..fit::ALLOCATORS.len()).filter_map(reserved).collect(),
            needed,
            fits: needed.is_some_and(|needed| needed <= self.goal),
            flops: notes.and_then(|notes| notes.flops),
            step_us: tried.devices.iter().filter_map(step_us).max(),
            host_bytes: notes.and_then(|notes| notes.host_bytes),
            spill: notes.and_then(|notes| notes.spill.clone()),
            rise: tried.devices.iter().filter_map(|device| device.rise).max(),
        }))
    }

    /// The largest value along a line whose trials were `found`, and whether it is the last.
    fn largest(&self, found: &Found, index: usize, line: &Line) -> (Option<i64>, bool) {
        let Some((_, first, step, count)) = line.range else { return (None, false) };
        let known = points(found, index, OURS, &self.question.fit.gpus[0], self.question.fit.goal);
        let place = match search::next(count, &known) {
            Next::Found(place) => place,
            Next::Open(_) | Next::Try(..) => {
                let fits = |point: &Point| matches!(point, Point::Ran { fits: true, .. });
                known.iter().rev().find(|(_, point)| fits(point)).map(|(&place, _)| place)
            }
        };
        (place.map(|place| Variable::at(first, step, place)), place == Some(count - 1))
    }
}

/// Answers a question. `watch` is told of every trial, and what it is for; when `stop` is set, what was found so far is the answer.
pub fn levers(
    question: &LeverQuestion,
    watch: &mut dyn FnMut(&'static str, fit::FitEvent<'_>),
    stop: &AtomicBool,
) -> Result<Answer, Error> {
    let asked = &question.fit;
    values::check(&asked.variables, asked.command.words(), None)?;
    for variable in &asked.variables {
        if !matches!(variable.values, Values::Range { .. }) {
            let what = "levers are tried along a range, NAME=A..B".to_owned();
            return Err(Error::Vary { text: variable.name.clone(), what });
        }
    }
    let Some(&gpu) = asked.gpus.first() else { return Err(Error::NoGpu) };
    let stand_in = DryRun::new(gpu.name, asked.devices)?.with_ample_memory();
    stand_in.environment()?;
    let goal = asked.goal.unwrap_or(gpu.total);
    let mut bench = Bench { question: question.clone(), stand_ins: vec![stand_in], goal, spill: None, watch, stop };
    bench.question.fit.setting.priced_on = Some(goal);
    let folder = scratch()?;
    let meeting = Some(folder.path().to_owned());
    // Where a range is searched it is open yet which trial has the levers' values.
    bench.question.fit.setting.shared_start = meeting.clone().filter(|_| asked.variables.is_empty());

    let line = bench.line(&[], None);
    let found = bench.run(std::slice::from_ref(&line), "the script as it is")?;
    let (largest, is_end) = bench.largest(&found, 0, &line);
    // Peaks are compared at the largest value that fits, else at the smallest that runs.
    let mut places: Vec<u64> = found.tried.keys().map(|&(_, place)| place).collect();
    places.sort_unstable();
    let ran = |place: &&u64| found.tried[&(0, **place)].failure.is_none();
    let at_largest = |place: &&u64| {
        line.range.is_some_and(|(_, first, step, _)| largest == Some(Variable::at(first, step, **place)))
    };
    let place = places.iter().find(at_largest).or_else(|| places.iter().find(ran)).or_else(|| places.first()).copied();
    let at = line.values(&asked.variables, place.unwrap_or(0));
    let first = place.and_then(|place| found.tried.get(&(0, place)));
    let notes = first.and_then(|tried| tried.levers.clone()).unwrap_or_default();
    let stopped = || TrialFailure { kind: fit::FailureKind::Killed, status: None, lines: Vec::new() };
    let base = Row { lever: None, outcome: bench.figures(first).unwrap_or_else(|| Err(stopped())), largest, is_end };
    let known: Vec<&str> = notes.levers.iter().map(|lever| lever.name.as_str()).collect();
    let unknown =
        question.only.iter().find(|name| !known.is_empty() && *name != AS_IT_IS && !known.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(Error::UnknownLever { name: name.clone(), known: known.join(", ") });
    }
    let (mut usable, mut skipped): (Vec<FoundLever>, Vec<FoundLever>) =
        notes.levers.into_iter().partition(|lever| lever.why_not.is_none());
    usable.retain(|lever| lever.name != ACCUMULATE || half(&at).is_some());
    let is_asked = |lever: &FoundLever| question.only.is_empty() || question.only.contains(&lever.name);
    usable.retain(is_asked);
    skipped.retain(|lever| is_asked(lever) && lever.name != WITHOUT_OWN);
    let mut answer = Answer {
        gpu,
        goal,
        at,
        base,
        rows: Vec::new(),
        skipped,
        models: notes.models,
        combination: None,
        is_interrupted: false,
    };
    bench.spill = answer.base.outcome.as_ref().ok().map(|base| Aim::of(base, goal, &gpu));
    let is_needed = answer.base.outcome.as_ref().is_ok_and(|base| !question.only_if_needed || !base.fits);
    if let (Ok(base), false) = (&answer.base.outcome, is_needed) {
        answer.combination = Some(Combination { levers: Vec::new(), figures: base.clone() });
    } else if is_needed {
        bench.question.fit.setting.shared_start = meeting;
        let needed = answer.base.outcome.as_ref().ok().and_then(|base| base.needed);
        (bench.watch)("each lever", fit::FitEvent::Levers { trials: usable.len(), needed, goal });
        try_each(&mut bench, &mut answer, usable)?;
        if !bench.is_stopped() {
            answer.combination = combine::combine(&mut bench, &answer)?;
        }
    }
    answer.is_interrupted = bench.is_stopped();
    Ok(answer)
}

/// What the lever `spill` is told.
#[derive(Clone, Copy, Debug)]
struct Aim {
    /// The live bytes that are allowed; none: as few as can be, of a script that fits.
    live: u64,
    /// Bytes of the link in a second.
    link: f64,
}

impl Aim {
    /// Trials with less allowed than before, at most: what the arena holds beyond live bytes is another part of them under a plan.
    const MORE_TRIALS: u32 = 4;

    /// The part of the link's bandwidth that copies are planned with: they sustain 0.78 of it, and each takes a while to begin. With all of
    /// it a GPT that spills 0.5 GiB at 0.9 of its peak took 7 % longer than was planned.
    const LINK: f64 = 0.7;

    fn of(base: &LeverFigures, goal: u64, gpu: &Gpu) -> Aim {
        let missing = base.needed.unwrap_or(u64::MAX).saturating_sub(goal);
        let live = if missing == 0 { 0 } else { base.peak_allocated.saturating_sub(missing) };
        Aim { live, link: rates(gpu).1 * Self::LINK }.lower(goal / 256)
    }

    fn lower(self, bytes: u64) -> Aim {
        Aim { live: self.live.saturating_sub(bytes), ..self }
    }

    /// What follows the lever's name.
    fn words(&self) -> String {
        format!("{}:{:.0}", self.live, self.link)
    }
}

/// Tries a set with `spill` again with less allowed, as long as that may make it fit; the last trial.
fn aim_lower(bench: &mut Bench<'_>, answer: &Answer, names: &[String], first: Arc<Tried>) -> Result<Arc<Tried>, Error> {
    let mut tried = first;
    for _ in 0..Aim::MORE_TRIALS {
        let Some(Ok(LeverFigures { needed: Some(needed), fits: false, spill: Some(_), .. })) =
            bench.figures(Some(&tried))
        else {
            break;
        };
        let Some(aim) = bench.spill.filter(|aim| aim.live > 0 && !bench.is_stopped()) else { break };
        bench.spill = Some(aim.lower(needed.saturating_sub(bench.goal)));
        let line = bench.line(names, Some(&value_with(names, &answer.at)));
        let found = bench.run(std::slice::from_ref(&line), "each lever")?;
        match found.tried.get(&(0, 0)) {
            Some(more) if more.failure.is_none() => tried = Arc::clone(more),
            _ => break,
        }
    }
    Ok(tried)
}

/// What a GPU does in a second at most by its data sheet: operations on 16-bit numbers, and bytes to or from the host.
fn rates(gpu: &Gpu) -> (f64, f64) {
    (f64::from(gpu.peak.max(1)) * 1e12, f64::from(gpu.link.max(1)) * 1e9)
}

/// The value at which a set of levers is tried: half of it for those that accumulate.
fn value_with(levers: &[String], at: &Assignment) -> Assignment {
    let is_halved = levers.iter().any(|lever| lever == ACCUMULATE);
    half(at).filter(|_| is_halved).unwrap_or_else(|| at.clone())
}

/// Half of the value, rounded up: an odd one is split into unequal parts, of which the larger decides.
fn half(at: &Assignment) -> Option<Assignment> {
    let (name, value) = at.first()?;
    let value: i64 = value.parse().ok().filter(|value| *value > 1)?;
    Some(vec![(name.clone(), (value / 2 + value % 2).to_string())])
}

fn try_each(bench: &mut Bench<'_>, answer: &mut Answer, levers: Vec<FoundLever>) -> Result<(), Error> {
    let one = |lever: &FoundLever| vec![lever.name.clone()];
    let lines: Vec<Line> =
        levers.iter().map(|lever| bench.line(&one(lever), Some(&value_with(&one(lever), &answer.at)))).collect();
    let found = bench.run(&lines, "each lever")?;
    for (index, mut lever) in levers.into_iter().enumerate() {
        let mut tried = found.tried.get(&(index, 0)).cloned();
        if let (Some(first), SPILL) = (&tried, lever.name.as_str()) {
            tried = Some(aim_lower(bench, answer, &one(&lever), Arc::clone(first))?);
        }
        let Some(outcome) = bench.figures(tried.as_ref()) else { continue };
        let applied = tried
            .as_ref()
            .and_then(|tried| tried.levers.as_ref())
            .is_some_and(|notes| notes.applied.contains(&lever.name));
        if outcome.is_ok() && !applied {
            lever.why_not = Some("it could not be applied from outside".to_owned());
            answer.skipped.push(lever);
            continue;
        }
        if let Ok(LeverFigures { spill: Some(spill), .. }) = &outcome {
            lever.what.clone_from(&spill.what);
        }
        answer.rows.push(Row { lever: Some(lever), outcome, largest: None, is_end: false });
    }
    if bench.question.fit.variables.is_empty() || bench.is_stopped() {
        return Ok(());
    }
    // The largest value only where there is something to gain.
    let peak = answer.base.outcome.as_ref().map_or(0, |base| base.peak_allocated);
    let gains = |row: &&mut Row| row.outcome.as_ref().is_ok_and(|figures| figures.peak_allocated < peak);
    let mut gaining: Vec<&mut Row> = answer.rows.iter_mut().filter(gains).collect();
    let name = |row: &Row| row.lever.as_ref().map_or(String::new(), |lever| lever.name.clone());
    let lines: Vec<Line> = gaining.iter().map(|row| bench.line(&[name(row)], None)).collect();
    let found = bench.run(&lines, "the largest value with each lever")?;
    for (index, row) in gaining.iter_mut().enumerate() {
        let (largest, is_end) = bench.largest(&found, index, &lines[index]);
        let times = if name(row) == ACCUMULATE { 2 } else { 1 };
        (row.largest, row.is_end) = (largest.map(|value| value * times), is_end);
    }
    for row in answer.rows.iter_mut().filter(|row| row.largest.is_none() && row.outcome.is_ok()) {
        let is_same = row.outcome.as_ref().is_ok_and(|figures| figures.peak_allocated == peak);
        (row.largest, row.is_end) = if is_same { (answer.base.largest, answer.base.is_end) } else { (None, false) };
    }
    Ok(())
}
