//! The answer: what fits, by how much, and the largest values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use stalloc_dryrun_setup::Gpu;

use crate::fit::Question;
use crate::fit::caught::Refused;
use crate::fit::evaluate::{ALLOCATORS, Asleep, FitsGpu, RankDevice};
use crate::fit::found::{Found, Tried, points};
use crate::fit::outside::Outside;
use crate::fit::ranks::Class;
use crate::fit::scheduler::Line;
use crate::fit::search::{self, Next};
use crate::fit::trial::TrialFailure;
use crate::fit::values::{Assignment, Variable};
use crate::fit::verdict::{CardVerdict, smallest_gpu, verdict};

/// One combination of values on one GPU.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The GPU.
    pub gpu: Gpu,
    /// The values.
    pub values: Assignment,
    /// Largest live bytes of any device; none where the command did not run.
    pub peak_allocated: Option<u64>,
    /// The same if no element is chosen of those that are guessed about; none where nothing is guessed.
    pub peak_if_none: Option<u64>,
    /// What sleeping takes of the host at most, for one rank; none where no steps were seen.
    pub asleep: Option<Asleep>,
    /// The rank and the device that need most.
    pub fullest: Option<(u32, u32)>,
    /// What is outside PyTorch on that one.
    pub outside: Outside,
    /// The fewest steps that a rank recorded.
    pub steps: u64,
    /// Whether a rank was ended after them.
    pub is_cut: bool,
    /// What each of the last steps added to what stays, if that climbed, on the device where it was most; bytes.
    pub rise: Option<u64>,
    /// One for each of [`ALLOCATORS`]; none where the command did not run.
    pub verdicts: Vec<CardVerdict>,
    /// Each rank's own peak: rank, device, largest live bytes.
    pub ranks: Vec<(u32, u32, u64)>,
    /// Why the command did not run, and on which rank.
    pub failure: Option<(u32, TrialFailure)>,
}

/// The largest value that fits for one GPU and one combination of the other variables, under each allocator.
#[derive(Clone, Debug)]
pub struct Frontier {
    /// The GPU.
    pub gpu: Gpu,
    /// The values of the lists.
    pub fixed: Assignment,
    /// For each allocator all values of the largest that fits; none: nothing does, or nobody knows yet.
    pub largest: Vec<Option<Assignment>>,
    /// For each allocator whether that is the end of the range, so that more may fit.
    pub is_end: Vec<bool>,
    /// What runs under PyTorch's allocator although it does not fit: all values of the largest, and the requests that are refused
    /// and caught.
    pub caught: Option<(Assignment, Vec<Refused>)>,
    /// Whether the search came to its end.
    pub is_complete: bool,
    /// The first and the last value that may still fit and of which nothing is known, where there are such.
    pub open: Option<(String, String)>,
    /// Whether all values made the same requests, so that the command seems not to use the variable.
    pub is_unused: bool,
    /// How many ranks the job has; none for a program that is started as it is.
    pub world_size: Option<u32>,
    /// The ranks that were tried, those together that are alike.
    pub classes: Vec<Class>,
}

/// What stands in the way of an answer, for the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The command ran with none of the values.
    NothingRan,
    /// It did not run with some.
    SomeFailed,
}

/// The answer of `fit`: each combination that was tried, the largest value that fits in each line, and what did not run.
#[derive(Clone, Debug)]
pub struct FitAnswer {
    /// What was tried, in the order of GPUs and values.
    pub candidates: Vec<Candidate>,
    /// The largest values, a row for each GPU and combination of the lists.
    pub frontier: Vec<Frontier>,
    /// Whether it was stopped before everything was tried.
    pub is_interrupted: bool,
    /// Whether something did not run.
    pub trouble: Option<Trouble>,
}

impl FitAnswer {
    /// The largest values that fit `gpu` under an allocator: of the searched variable first, then of the others in their order
    /// (numbers by size, words by their place in the list).
    pub fn largest(&self, question: &Question, gpu: &Gpu, allocator: usize) -> Option<Assignment> {
        let searched = question.variables.iter().position(|v| matches!(v.values, crate::fit::Values::Range { .. }));
        let rank = |values: &Assignment| -> Vec<f64> {
            let weight = |at: usize| {
                let (_, value) = &values[at];
                let place = || match &question.variables[at].values {
                    crate::fit::Values::List(list) => list.iter().position(|other| other == value).unwrap_or(0) as f64,
                    crate::fit::Values::Range { .. } => 0.0,
                };
                let is_numeric = match &question.variables[at].values {
                    crate::fit::Values::List(list) => list.iter().all(|value| value.parse::<f64>().is_ok()),
                    crate::fit::Values::Range { .. } => true,
                };
                if is_numeric { value.parse().unwrap_or(0.0) } else { place() }
            };
            searched.into_iter().chain((0..values.len()).filter(|&at| Some(at) != searched)).map(weight).collect()
        };
        let of_gpu = self.frontier.iter().filter(|row| row.gpu == *gpu);
        let all = of_gpu.filter_map(|row| row.largest[allocator].as_ref());
        all.max_by(|one, other| rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal)).cloned()
    }

    /// Whether anything fits.
    pub fn anything_fits(&self) -> bool {
        self.candidates.iter().flat_map(|candidate| &candidate.verdicts).any(|verdict| verdict.fits == FitsGpu::Yes)
    }
}

/// Puts the answer together.
pub fn answer(question: &Question, lines: &[Line], found: &Found, stop: &AtomicBool) -> FitAnswer {
    let mut candidates = Vec::new();
    let mut frontier = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let gpu = question.gpus[line.gpu];
        let mut places: Vec<u64> =
            found.tried.keys().filter(|(other, _)| *other == index).map(|&(_, place)| place).collect();
        places.sort_unstable();
        for &place in &places {
            candidates.push(candidate(gpu, line.values(&question.variables, place), &found.tried[&(index, place)]));
        }
        let mut row = Frontier {
            gpu,
            fixed: line.fixed.clone(),
            largest: Vec::new(),
            is_end: Vec::new(),
            caught: found
                .caught
                .get(&index)
                .map(|caught| (line.values(&question.variables, caught.place), caught.refused.clone())),
            is_complete: true,
            open: None,
            is_unused: is_unused(found, index),
            world_size: line.world_size,
            classes: found.classes.get(&index).cloned().unwrap_or_default(),
        };
        for allocator in 0..ALLOCATORS.len() {
            let known = points(found, index, allocator, &gpu, question.goal);
            let place = match search::next(line.count(), &known) {
                Next::Found(place) => place,
                Next::Open(_) | Next::Try(..) => {
                    row.is_complete = false;
                    let fits = |point: &search::Point| matches!(point, search::Point::Ran { fits: true, .. });
                    let place = known.iter().rev().find(|(_, point)| fits(point)).map(|(&place, _)| place);
                    row.open = row.open.or_else(|| open(question, line, &known, place));
                    place
                }
            };
            row.largest.push(place.map(|place| line.values(&question.variables, place)));
            row.is_end.push(line.range.is_some() && place == Some(line.count() - 1));
        }
        frontier.push(row);
    }
    let failed = candidates.iter().filter(|candidate| candidate.failure.is_some()).count();
    let trouble = match failed {
        0 => None,
        _ if failed == candidates.len() => Some(Trouble::NothingRan),
        _ => Some(Trouble::SomeFailed),
    };
    FitAnswer { is_interrupted: stop.load(Ordering::Relaxed), candidates, frontier, trouble }
}

/// The values of which nothing is known, above the largest that was seen to fit.
fn open(
    question: &Question,
    line: &Line,
    known: &BTreeMap<u64, search::Point>,
    fits: Option<u64>,
) -> Option<(String, String)> {
    let (searched, first, step, count) = line.range?;
    let limit = match fits {
        Some(place) => search::too_large(known, place),
        None => search::too_large(known, 0),
    };
    let (from, to) = (fits.map_or(0, |place| place + 1), limit.unwrap_or(count).saturating_sub(1));
    let value = |place| format!("{}={}", question.variables[searched].name, Variable::at(first, step, place));
    (from <= to).then(|| (value(from), value(to)))
}

/// Whether several values ran and each recorded the same.
fn is_unused(found: &Found, index: usize) -> bool {
    let ran = found.tried.iter().filter(|((other, _), tried)| *other == index && tried.failure.is_none());
    let mut contents = ran.map(|(_, tried)| tried.devices.iter().map(|device| device.content).collect::<Vec<_>>());
    let Some(first) = contents.next() else { return false };
    let mut others = contents.peekable();
    others.peek().is_some() && others.all(|other| other == first)
}

fn candidate(gpu: Gpu, values: Assignment, tried: &Tried) -> Candidate {
    let devices: &[RankDevice] = if tried.failure.is_some() { &[] } else { &tried.devices };
    let fullest = devices.iter().max_by_key(|device| (device.peak_allocated, std::cmp::Reverse(device.rank)));
    Candidate {
        gpu,
        values,
        peak_allocated: fullest.map(|device| device.peak_allocated),
        peak_if_none: devices.iter().filter_map(|device| device.peak_if_none).max(),
        asleep: devices.iter().filter_map(|device| device.asleep).reduce(Asleep::max),
        fullest: fullest.map(|device| (device.rank, device.device)),
        outside: fullest.map_or_else(Outside::default, |device| device.outside.clone()),
        steps: devices.iter().map(|device| device.steps).min().unwrap_or(0),
        is_cut: devices.iter().any(|device| device.is_cut),
        rise: devices.iter().filter_map(|device| device.rise).max(),
        verdicts: match devices {
            [] => Vec::new(),
            _ => {
                let of = |allocator| CardVerdict {
                    smallest_gpu: smallest_gpu(devices, allocator),
                    ..verdict(devices, allocator, &gpu)
                };
                (0..ALLOCATORS.len()).map(of).collect()
            }
        },
        ranks: devices.iter().map(|device| (device.rank, device.device, device.peak_allocated)).collect(),
        failure: tried.failure.clone(),
    }
}
