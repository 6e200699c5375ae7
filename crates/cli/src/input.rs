//! Opening what the user named.

use std::io::Read;
use std::path::Path;

use stalloc_plan::Plan;
use stalloc_trace::{Input, Recording, Trace};

use crate::error::Error;
use crate::progress::Progress;

/// Opens an input of any format, with progress.
pub fn open(path: &Path) -> Result<Input, Error> {
    let mut progress = Progress::new(format!("reading {}", path.display()));
    stalloc_trace::open(path, &mut |done, total| progress.update(done, total))
        .map_err(|e| Error::message(e.to_string()))
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
    for warning in &recording.warnings {
        eprintln!("stalloc: {}: {warning}", path.display());
    }
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
