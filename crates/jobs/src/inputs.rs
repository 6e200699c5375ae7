//! Opening what the user named.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use stalloc_plan::Plan;
use stalloc_trace::{Input, Recording, Trace};

use crate::error::list;
use crate::{Error, Watch};

/// Opens an input of any format. What was odd about it is noted.
///
/// # Errors
/// If it cannot be read, or is a plan.
pub fn open(path: &Path, watch: &mut dyn Watch) -> Result<Input, Error> {
    if is_plan(path) {
        return Err(Error::IsPlan(path.to_owned()));
    }
    let work = format!("reading {}", path.display());
    let input = stalloc_trace::open(path, &mut |done, total| watch.progress(&work, done, total))?;
    let warnings = match &input {
        Input::Recording(recording) => &recording.warnings,
        Input::Instance(instance) => &instance.warnings,
    };
    for warning in warnings {
        watch.note(&format!("{}: {warning}", path.display()));
    }
    Ok(input)
}

/// Opens a recording, as [`open`] does.
///
/// # Errors
/// As [`open`], and if it is a CSV instance.
pub fn recording(path: &Path, watch: &mut dyn Watch) -> Result<Recording, Error> {
    match open(path, watch)? {
        Input::Recording(recording) => Ok(recording),
        Input::Instance(_) => Err(Error::IsInstance(path.to_owned())),
    }
}

/// Opens a recording and takes the trace of a device out of it, as [`device`] chooses.
///
/// # Errors
/// As [`recording`] and [`device`].
pub fn trace(path: &Path, wanted: Option<u32>, watch: &mut dyn Watch) -> Result<Trace, Error> {
    let recording = recording(path, watch)?;
    device(path, recording, wanted, watch)
}

/// The trace of a device: the one that was asked for, else the first with requests; if there are others, that is noted.
///
/// # Errors
/// If there is no such device, or none with requests.
pub fn device(
    path: &Path,
    mut recording: Recording,
    wanted: Option<u32>,
    watch: &mut dyn Watch,
) -> Result<Trace, Error> {
    let index = match wanted {
        Some(device) => recording.traces.iter().position(|trace| trace.device == device),
        None => recording.traces.iter().position(|trace| !trace.requests.is_empty()),
    };
    let held: Vec<u32> = recording.traces.iter().map(|trace| trace.device).collect();
    let Some(index) = index else {
        let path = path.to_owned();
        return Err(match wanted {
            Some(wanted) => Error::NoSuchDevice { path, wanted, held },
            None => Error::NoRequests(path),
        });
    };
    let others = recording.traces.iter().filter(|trace| !trace.requests.is_empty()).count();
    let trace = recording.traces.swap_remove(index);
    if wanted.is_none() && others > 1 {
        let (path, all, device) = (path.display(), list(&held), trace.device);
        watch.note(&format!("{path} holds devices {all}; this is device {device} (--device N)"));
    }
    Ok(trace)
}

/// Whether a file is a plan, by its first bytes; false where it cannot be read.
pub fn is_plan(path: &Path) -> bool {
    let mut start = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|read| stalloc_plan::is_plan(&start[..read]))
}

/// Reads a plan.
///
/// # Errors
/// If it is none, or damaged.
pub fn plan(path: &Path) -> Result<Plan, Error> {
    Ok(stalloc_plan::read(path)?)
}
