//! What the commands do, on files: their figures, as the JSON that `--json` prints.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use stalloc_jobs::refresh::{self, Wanted};
use stalloc_jobs::simulating::{Replays, simulate};
use stalloc_jobs::{KeptSentences, inputs, planning};
use stalloc_simulator::Kind;

fn failed(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Plans a trace; with `output`, keeps the plan there.
#[pyfunction]
pub fn plan_file(
    py: Python<'_>,
    path: PathBuf,
    output: Option<PathBuf>,
    device: Option<u32>,
    seconds: f64,
) -> PyResult<(String, Vec<String>)> {
    let time_limit = Duration::try_from_secs_f64(seconds)
        .map_err(|_| failed(format!("time_limit={seconds}: a number of seconds, such as 0.5 or 60")))?;
    py.detach(|| {
        let mut notes = KeptSentences::default();
        let trace = inputs::trace(&path, device, &mut notes)?;
        let effort = stalloc_planner::SolveOptions { time_limit, ..planning::usual_effort() };
        let (plan, summary) = planning::trace(&trace, effort, &mut notes)?;
        if let Some(output) = output {
            stalloc_plan::write_as_named(&output, &plan)?;
        }
        notes.0.extend(summary.notes.iter().cloned());
        Ok((serde_json::to_string(&summary), notes.0))
    })
    .map_err(|error: stalloc_jobs::Error| failed(error))
    .and_then(|(json, notes)| Ok((json.map_err(failed)?, notes)))
}

/// Plans that were written, with a sentence each, and what the user should know.
type PlansAndNotes = (Vec<(PathBuf, String)>, Vec<String>);

/// Plans what a folder holds and has no plan of, into another folder: see [`refresh::folder`]. ``rank``: which process of several
/// this is. Returns the plans that were written with a sentence each, and what the user should know.
#[pyfunction]
pub fn plan_folder(py: Python<'_>, folder: PathBuf, out: PathBuf, rank: Option<u32>) -> PyResult<PlansAndNotes> {
    py.detach(|| {
        let (mut notes, mut planned) = (KeptSentences::default(), Vec::new());
        let wanted = Wanted { folder: &folder, out: &out, rank, frozen: false };
        let mut tell = |plan: &Path, summary: &planning::PlanSummary| {
            let (requests, peak) = (summary.planned.requests, summary.planned_reserved);
            let peak = stalloc_common::figures::bytes(peak);
            let efficiency = 100.0 * summary.efficiency;
            planned.push((plan.to_owned(), format!("{requests} requests into {peak}, efficiency {efficiency:.1} %")));
        };
        refresh::folder(wanted, &planning::usual_effort(), &mut notes, &mut tell).map(|()| (planned, notes.0))
    })
    .map_err(failed)
}

/// Replays a trace through allocators.
#[pyfunction]
pub fn simulate_file(
    py: Python<'_>,
    path: PathBuf,
    device: Option<u32>,
    allocators: Vec<String>,
    plan: Option<PathBuf>,
    capacity: Option<u64>,
    smallest: bool,
) -> PyResult<(String, Vec<String>)> {
    let kinds = allocators.iter().map(|name| name.parse()).collect::<Result<Vec<Kind>, String>>().map_err(failed)?;
    let kinds = if kinds.is_empty() { Kind::ALL.to_vec() } else { kinds };
    py.detach(|| {
        let mut notes = KeptSentences::default();
        let trace = inputs::trace(&path, device, &mut notes)?;
        let plan = plan.as_deref().map(inputs::plan).transpose()?;
        let comparison = simulate(&trace, &kinds, Replays { plan, capacity, smallest }, &mut notes)?;
        Ok((serde_json::to_string(&comparison), notes.0))
    })
    .map_err(|error: stalloc_jobs::Error| failed(error))
    .and_then(|(json, notes)| Ok((json.map_err(failed)?, notes)))
}

/// A number of bytes for people.
#[pyfunction]
pub fn format_bytes(count: u64) -> String {
    stalloc_common::figures::bytes(count)
}

/// The words of a command as one line, without what looks like a secret.
#[pyfunction]
pub fn redacted(words: Vec<String>) -> String {
    stalloc_common::redacted(words.iter().map(String::as_str))
}

/// When a buffer is not there, or only a window of it: the buffer, from, to, and the window.
type BufferGap = (usize, u64, u64, Option<(u64, u64)>);

/// What `stalloc.plan_buffers` asks for. Numbers are bytes of native unsigned 64-bit ones.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Buffers {
    lower: Vec<u8>,
    upper: Vec<u8>,
    size: Vec<u8>,
    alignment: Vec<u8>,
    fixed: Option<Vec<Option<u64>>>,
    period: Option<u64>,
    conflicts: Vec<(usize, usize)>,
    gaps: Vec<BufferGap>,
    capacity: Option<u64>,
    seconds: f64,
    work_limit: Option<u64>,
    threads: Option<usize>,
    seed: u64,
}

/// What an instance of buffers came to: offsets as bytes, peak, lower bound, whether that is proven the least, and whether Ctrl-C
/// ended the search.
type Placed<'py> = (Bound<'py, PyBytes>, u64, u64, bool, bool);

/// How often Python is asked whether to go on.
const BETWEEN_ASKING: Duration = Duration::from_millis(50);

/// Places buffers; `callback(peak, lower_bound)` hears of each better plan and may end the search with `False`.
#[pyfunction]
pub fn plan_buffers<'py>(py: Python<'py>, wanted: Buffers, callback: Option<Py<PyAny>>) -> PyResult<Placed<'py>> {
    let instance = wanted.instance()?;
    let usual = planning::usual_effort();
    let options = stalloc_planner::SolveOptions {
        time_limit: Duration::try_from_secs_f64(wanted.seconds)
            .map_err(|_| failed(format!("time_limit={}: a number of seconds, such as 0.5 or 60", wanted.seconds)))?,
        work_limit: wanted.work_limit,
        threads: wanted.threads.unwrap_or(usual.threads).clamp(1, 1024),
        seed: wanted.seed,
        enough: wanted.capacity.unwrap_or(0),
        ..usual
    };
    let (mut ended, mut error) = (false, None);
    let mut asked: Option<Instant> = None;
    let mut best = u64::MAX;
    let solution = py.detach(|| {
        stalloc_planner::solve_watched(&instance, &options, &mut |progress| {
            let is_better = progress.peak < best;
            if !is_better && asked.is_some_and(|at| at.elapsed() < BETWEEN_ASKING) {
                return true;
            }
            (best, asked) = (progress.peak, Some(Instant::now()));
            Python::attach(|py| {
                if py.check_signals().is_err() {
                    ended = true;
                    return false;
                }
                let Some(callback) = callback.as_ref().filter(|_| is_better) else { return true };
                match callback.call1(py, (progress.peak, progress.lower_bound)) {
                    Ok(answer) => !answer.bind(py).is(&*PyBool::new(py, false)),
                    Err(raised) => {
                        error = Some(raised);
                        false
                    }
                }
            })
        })
    });
    if let Some(error) = error {
        return Err(error);
    }
    let solution = solution.map_err(failed)?;
    let offsets: Vec<u8> = solution.offsets.iter().flat_map(|offset| offset.to_ne_bytes()).collect();
    Ok((PyBytes::new(py, &offsets), solution.peak, solution.lower_bound, solution.optimal, ended))
}

impl Buffers {
    fn instance(&self) -> PyResult<stalloc_planner::Instance> {
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks::<8>().0.iter().map(|&number| u64::from_ne_bytes(number)).collect()
        };
        let (lower, upper) = (numbers(&self.lower), numbers(&self.upper));
        let (size, alignment) = (numbers(&self.size), numbers(&self.alignment));
        let n = lower.len();
        let fixed = self.fixed.as_ref();
        let counts = [("upper", upper.len()), ("size", size.len()), ("alignment", alignment.len())];
        let counts = counts.into_iter().chain(fixed.map(|fixed| ("fixed", fixed.len())));
        if let Some((name, count)) = counts.into_iter().find(|&(_, count)| count != n) {
            return Err(failed(format!("{name} has {count} numbers, and lower has {n}: one for each buffer")));
        }
        let buffer = |i: usize| stalloc_planner::Buffer {
            lower: lower[i],
            upper: upper[i],
            size: size[i],
            alignment: alignment[i],
            fixed: fixed.and_then(|fixed| fixed[i]),
        };
        let gap = |&(buffer, lower, upper, window)| stalloc_planner::LifetimeGap { buffer, lower, upper, window };
        Ok(stalloc_planner::Instance {
            buffers: (0..n).map(buffer).collect(),
            period: self.period,
            conflicts: self.conflicts.clone(),
            gaps: self.gaps.iter().map(gap).collect(),
        })
    }
}
