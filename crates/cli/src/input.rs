//! Opening what the user named.

use std::io::Read;
use std::path::Path;

use stalloc_plan::Plan;
use stalloc_trace::{Input, Recording, Trace};

use crate::error::Error;
use crate::progress::Progress;

/// Opens an input of any format, with progress; tells on standard error what was odd about it.
pub fn open(path: &Path) -> Result<Input, Error> {
    if is_plan(path) {
        let path = path.display();
        return Err(Error::message(format!(
            "{path} is a plan, not a recording: `stalloc info {path}` describes it, `stalloc verify {path}` checks it, \
             `stalloc simulate INPUT --plan {path}` replays a recording on it"
        )));
    }
    let mut progress = Progress::new(format!("reading {}", path.display()));
    let input = stalloc_trace::open(path, &mut |done, total| progress.update(done, total))
        .map_err(|e| Error::message(e.to_string()))?;
    drop(progress);
    let warnings = match &input {
        Input::Recording(recording) => &recording.warnings,
        Input::Instance(instance) => &instance.warnings,
    };
    for warning in warnings {
        eprintln!("stalloc: {}: {warning}", path.display());
    }
    Ok(input)
}

/// Opens a recording, as [`open`] does.
pub fn recording(path: &Path) -> Result<Recording, Error> {
    match open(path)? {
        Input::Recording(recording) => Ok(recording),
        Input::Instance(_) => Err(Error::message(format!(
            "{}: a CSV instance, not a recording: it has no allocators to look at; plan it with `stalloc plan`",
            path.display()
        ))),
    }
}

/// Whether a file is a plan, by its first bytes; false where it cannot be read.
pub fn is_plan(path: &Path) -> bool {
    let mut start = [0; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|read| stalloc_plan::is_plan(&start[..read]))
}

/// Reads a plan.
pub fn plan(path: &Path) -> Result<Plan, Error> {
    stalloc_plan::read(path).map_err(|error| Error::message(error.to_string()))
}

/// The trace of a device: the one that was asked for, else the first with requests.
pub fn device(path: &Path, mut recording: Recording, wanted: Option<u32>) -> Result<Trace, Error> {
    let devices: Vec<String> = recording.traces.iter().map(|trace| trace.device.to_string()).collect();
    let index = match wanted {
        Some(device) => recording.traces.iter().position(|trace| trace.device == device),
        None => recording.traces.iter().position(|trace| !trace.requests.is_empty()),
    };
    match (index, wanted) {
        (Some(index), _) => {
            let others = recording.traces.iter().filter(|trace| !trace.requests.is_empty()).count();
            let trace = recording.traces.swap_remove(index);
            if wanted.is_none() && others > 1 {
                let (all, device) = (devices.join(", "), trace.device);
                eprintln!("stalloc: {} holds devices {all}; this is device {device} (--device N)", path.display());
            }
            Ok(trace)
        }
        (None, Some(device)) => {
            let (path, all) = (path.display(), devices.join(", "));
            Err(Error::message(format!("{path} has no device {device}: it holds {all} (--device N)")))
        }
        (None, None) => Err(Error::message(format!(
            "{} holds no request to work on; record one with `stalloc trace`, or a snapshot with \
             torch.cuda.memory._record_memory_history() switched on before the work begins",
            path.display()
        ))),
    }
}
