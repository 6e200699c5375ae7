//! What the commands do, on files: their figures, as the JSON that `--json` prints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stalloc_jobs::refresh::{self, Wanted};
use stalloc_jobs::simulating::{Replays, simulate};
use stalloc_jobs::{Notes, inputs, planning};
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
        let mut notes = Notes::default();
        let trace = inputs::trace(&path, device, &mut notes)?;
        let effort = stalloc_planner::Options { time_limit, ..planning::usual_effort() };
        let (plan, summary) = planning::trace(&trace, effort, &mut notes)?;
        if let Some(output) = output {
            stalloc_plan::write(&output, &plan)?;
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
        let (mut notes, mut planned) = (Notes::default(), Vec::new());
        let wanted = Wanted { folder: &folder, out: &out, rank, frozen: false };
        let mut tell = |plan: &Path, summary: &planning::Summary| {
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
        let mut notes = Notes::default();
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
