//! Serving: plans for the devices of this process, and what was made of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stalloc_runtime as runtime;

/// A rank's plans in a folder, by device: see [`runtime::plans`]. Only files are: opening a pipe would wait for ever.
#[pyfunction]
pub fn serve_plans(folder: PathBuf, rank: u64) -> BTreeMap<i32, PathBuf> {
    runtime::plans(&folder, rank).into_iter().filter(|(_, path)| path.is_file()).collect()
}

/// Has a device (-1: host memory) follow the plan in a file from its first request on. Returns what the plan says of
/// itself; ValueError if the file is no plan.
#[pyfunction]
pub fn serve_prepare<'py>(py: Python<'py>, device: i32, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let plan = stalloc_plan::read(&path).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let about = PyDict::new(py);
    about.set_item("arena", plan.arena)?;
    about.set_item("requests", plan.slots.len())?;
    for (key, value) in &plan.metadata {
        about.set_item(key, value)?;
    }
    if !runtime::prepare(device, plan) {
        return Err(PyValueError::new_err(format!("device {device} has a plan already, or there is no such device")));
    }
    Ok(about)
}

/// Has a device served by the open arena from its first request on, and learn from then on what repeats. False if it has a
/// plan already, or there is no such device: then only the learning begins.
#[pyfunction]
pub fn serve_learn(device: i32) -> bool {
    runtime::learn();
    runtime::prepare(device, stalloc_plan::Plan::default())
}

/// Ends the learning and keeps what was learned as plans in a folder; how many.
#[pyfunction]
pub fn serve_keep(folder: PathBuf, rank: u64) -> usize {
    runtime::keep_learned(&folder, rank)
}

/// Has what is learned kept in a folder from time to time, as plans of this rank: a job may be killed.
#[pyfunction]
pub fn serve_keep_in(folder: PathBuf, rank: u64) {
    runtime::keep_in(&folder, rank);
}

/// Takes back all plans that were not begun with: what a process was told before it was forked is not for its child.
#[pyfunction]
pub fn serve_unprepare() {
    runtime::unprepare();
}

/// What a wish for an arena in one allocation says, as ``STALLOC_SOLID`` has it: None if there is none (empty, 0), else the bytes beyond
/// what the plan needs. ValueError if it is no size.
#[pyfunction]
pub fn serve_solid_size(wish: &str) -> PyResult<Option<u64>> {
    match wish.trim() {
        "" | "0" => Ok(None),
        "1" => Ok(Some(0)),
        size => stalloc_common::figures::parse_bytes(size).map(Some).map_err(PyValueError::new_err),
    }
}

/// A line for each name among these that is one of our variables mistyped.
#[pyfunction]
pub fn unknown_settings(names: Vec<String>) -> Vec<String> {
    stalloc_common::settings::unknown(names.into_iter().map(Into::into))
}

/// Has arenas that are opened from now on in one allocation each, ``more`` bytes larger than their plan needs.
#[pyfunction]
pub fn serve_solid(more: u64) {
    runtime::set_solid(more);
}

/// Address of the table of functions that a C++ shim calls.
#[pyfunction]
pub fn serve_table() -> usize {
    std::ptr::from_ref(runtime::core()).expose_provenance()
}

/// No stream is made to wait for another: see [`runtime::forbid_waits`].
#[pyfunction]
pub fn serve_forbid_waits() {
    runtime::forbid_waits();
}

/// What came of learning on a device: ``finding`` says why no plan is followed, ``pytorch`` and ``expandable`` what PyTorch's
/// allocator would have held, bytes, ``runs_out`` which of the two would have run out of memory. None where nothing is learned, or it takes too long.
#[pyfunction]
pub fn serve_outcome(py: Python<'_>, device: i32) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(outcome) = py.detach(|| runtime::outcome(device)) else { return Ok(None) };
    let out = PyDict::new(py);
    let finding = match outcome.finding {
        runtime::Finding::Vary => "vary",
        runtime::Finding::NoTime => "no_time",
        runtime::Finding::Refused => "refused",
    };
    out.set_item("finding", finding)?;
    if let Some(held) = outcome.held {
        out.set_item("pytorch", held.pytorch)?;
        out.set_item("expandable", held.expandable)?;
        out.set_item("runs_out", held.runs_out)?;
    }
    Ok(Some(out))
}

/// The program begins a step.
#[pyfunction]
pub fn serve_step() {
    runtime::step_begin();
}

/// What was done on a device so far; None if nothing was served there.
#[pyfunction]
pub fn serve_report(py: Python<'_>, device: i32) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(report) = runtime::report(device) else { return Ok(None) };
    let arena = report.arena;
    let out = PyDict::new(py);
    let figures = [
        ("requests", arena.requests),
        ("planned", arena.planned),
        ("open", arena.best_fit),
        ("fallback", arena.fallback),
        ("steps", arena.steps),
        ("arena", arena.arena),
        ("arena_reserved", arena.reserved),
        ("arena_peak_reserved", arena.peak_reserved),
        ("arena_allocated", arena.allocated),
        ("arena_peak_allocated", arena.peak_allocated),
        ("fallback_reserved", report.fallback_reserved),
        ("peak_reserved", report.peak_reserved),
        ("peak_allocated", report.peak_allocated),
        ("remaps", arena.remaps),
        ("remapped_bytes", arena.remapped),
        ("driver_calls", arena.driver.calls),
        ("plans_withdrawn", arena.withdrawn),
        ("plans", arena.plans),
    ];
    for (name, value) in figures {
        out.set_item(name, value)?;
    }
    let (misses, unplanned) = (arena.misses, arena.unplanned);
    let causes = PyDict::new(py);
    let counted = [
        ("address_taken", misses.taken),
        ("no_memory", misses.device),
        ("without_offset", unplanned.without_offset),
        ("not_in_plan", unplanned.not_in_plan),
        ("position_unknown", unplanned.position_unknown),
        ("capturing", unplanned.capturing),
        ("refused", unplanned.refused),
    ];
    for (cause, count) in counted {
        causes.set_item(cause, count)?;
    }
    out.set_item("causes", causes)?;
    let pinned = runtime::pinned_counters(false, false);
    for (name, value) in [
        ("pinned_requests", pinned.blocks.allocated),
        ("pinned_allocated", pinned.requested.current),
        ("pinned_peak_allocated", pinned.requested.peak),
        ("pinned_reserved", pinned.reserved.current),
        ("pinned_peak_reserved", pinned.reserved.peak),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("driver_ms", arena.driver.nanoseconds as f64 / 1e6)?;
    out.set_item("other_program", arena.is_of_another_program())?;
    if let Some(departure) = arena.departure {
        let first = PyDict::new(py);
        first.set_item("request", departure.request)?;
        first.set_item("expected", departure.expected)?;
        first.set_item("seen", departure.seen)?;
        out.set_item("departure", first)?;
    }
    Ok(Some(out))
}
