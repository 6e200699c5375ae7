//! Opening what the user named.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use stalloc_plan::Plan;
use stalloc_trace::{Event, Input, Recording, Trace};

use crate::error::list;
use crate::recorded::alike::{self, Alike};
use crate::{Error, Watch, recorded};

/// Opens an input of any format; of a folder of traces those of one rank, as [`of_rank`] chooses. What was odd about it is noted.
///
/// # Errors
/// If it cannot be read, or is a plan.
pub fn open(path: &Path, watch: &mut dyn Watch) -> Result<Input, Error> {
    if path.is_dir() {
        return Ok(Input::Recording(of_rank(path, None, watch)?));
    }
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

/// The traces of one rank in a folder: the rank that was asked for, else that of the trace that is [`shown`] of all; if there are
/// others, that is noted.
pub fn of_rank(folder: &Path, wanted: Option<u32>, watch: &mut dyn Watch) -> Result<Recording, Error> {
    let files = recorded::traces(folder)?;
    let mut ranks: Vec<u32> = files.iter().filter_map(|path| recorded::rank(path)).collect();
    ranks.dedup();
    let mut best: Option<(u32, Recording)> = None;
    for &rank in ranks.iter().filter(|&&rank| wanted.is_none_or(|wanted| wanted == rank)) {
        let of_it = files.iter().filter(|path| recorded::rank(path) == Some(rank));
        let Some(mut all) = joined(of_it, watch)? else { continue };
        all.traces.sort_by_key(|trace| trace.device);
        let is_more = |best: &Recording| prominence(&all.traces) > prominence(&best.traces);
        if best.as_ref().is_none_or(|(_, best)| is_more(best)) {
            best = Some((rank, all));
        }
    }
    let folder = folder.to_owned();
    let Some((rank, recording)) = best else {
        return Err(match wanted {
            Some(wanted) if !ranks.is_empty() => Error::NoSuchRank { path: folder, wanted, held: ranks },
            _ => Error::NoTraces(folder),
        });
    };
    if wanted.is_none() && ranks.len() > 1 {
        watch.note(&format!("{} holds ranks {}; this is rank {rank}", folder.display(), list(&ranks)));
    }
    Ok(recording)
}

/// Traces of a folder that are alike: the ranks of a job that do the same on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlikeTraces {
    /// The device within each process.
    pub device: u32,
    /// The ranks, in their order.
    pub ranks: Vec<u32>,
}

/// Every rank in a folder as one recording, in the order of ranks and devices: of traces that are alike the first, so that the
/// ranks of a large job take the memory of a few. The kinds are in the order of the recording's traces.
pub fn of_all_ranks(folder: &Path, watch: &mut dyn Watch) -> Result<(Recording, Vec<AlikeTraces>), Error> {
    let mut all: Option<Recording> = None;
    let mut kinds: Vec<AlikeTraces> = Vec::new();
    let mut known: Alike<usize> = Alike::default();
    for path in recorded::traces(folder)? {
        let rank = recorded::rank(&path).unwrap_or(0);
        if let Some(kind) = known.of_file(&path) {
            kinds[kind].ranks.push(rank);
            continue;
        }
        let Input::Recording(mut one) = open(&path, watch)? else { continue };
        let content = match one.traces.as_slice() {
            [trace] => Some(alike::content(trace)),
            _ => None,
        };
        if let Some(kind) = content.and_then(|content| known.of_content(&path, content)) {
            kinds[kind].ranks.push(rank);
            continue;
        }
        if let Some(content) = content {
            known.add(&path, content, kinds.len());
        }
        kinds.extend(one.traces.iter().map(|trace| AlikeTraces { device: trace.device, ranks: vec![rank] }));
        match &mut all {
            Some(all) => {
                all.traces.append(&mut one.traces);
                all.warnings.append(&mut one.warnings);
            }
            None => all = Some(one),
        }
    }
    Ok((all.ok_or_else(|| Error::NoTraces(folder.to_owned()))?, kinds))
}

/// Several recordings as one.
fn joined<'a>(files: impl Iterator<Item = &'a PathBuf>, watch: &mut dyn Watch) -> Result<Option<Recording>, Error> {
    let mut all: Option<Recording> = None;
    for path in files {
        let Input::Recording(one) = open(path, watch)? else { continue };
        match &mut all {
            Some(all) => {
                all.traces.extend(one.traces);
                all.warnings.extend(one.warnings);
            }
            None => all = Some(one),
        }
    }
    Ok(all)
}

/// Whether a device ran out of memory, and the most that was in use: what is shown first.
fn prominence(traces: &[Trace]) -> Option<(bool, u64)> {
    traces.iter().filter(|trace| !trace.requests.is_empty()).map(prominence_of).max()
}

fn prominence_of(trace: &Trace) -> (bool, u64) {
    let ran_out = trace.events.iter().any(|event| matches!(event, Event::OutOfMemory { .. }));
    (ran_out, trace.peak_allocated())
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
pub fn trace(path: &Path, wanted: Option<u32>, watch: &mut dyn Watch) -> Result<Trace, Error> {
    let recording = recording(path, watch)?;
    device(path, recording, wanted, watch)
}

/// The trace of a device: the one that was asked for, else [`shown`]; if there are others, that is noted.
pub fn device(
    path: &Path,
    mut recording: Recording,
    wanted: Option<u32>,
    watch: &mut dyn Watch,
) -> Result<Trace, Error> {
    let index = match wanted {
        Some(device) => recording.traces.iter().position(|trace| trace.device == device),
        None => shown(&recording.traces),
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

/// Which of several traces is shown where nobody says: that of the device that ran out of memory, else the fullest one; none if
/// no trace holds a request. O(events).
pub fn shown(traces: &[Trace]) -> Option<usize> {
    let held = traces.iter().enumerate().filter(|(_, trace)| !trace.requests.is_empty());
    // Of those that are alike the first.
    held.rev().max_by_key(|(_, trace)| prominence_of(trace)).map(|(index, _)| index)
}

/// Whether a file is a plan, by its first bytes; false where it cannot be read.
pub fn is_plan(path: &Path) -> bool {
    let mut start = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|read| stalloc_plan::is_plan(&start[..read]))
}

/// Reads a plan.
pub fn plan(path: &Path) -> Result<Plan, Error> {
    Ok(stalloc_plan::read(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stalloc_trace::{Request, RequestId, StackId, StreamId};

    fn trace(device: u32, bytes: u64, ran_out: bool) -> Trace {
        let request = Request {
            size: bytes * 512,
            stream: StreamId(0),
            address: None,
            stack: StackId(0),
            alloc: Some(0),
            free_requested: None,
            free_completed: None,
        };
        let mut events = vec![Event::Alloc(RequestId(0))];
        events.extend(ran_out.then_some(Event::OutOfMemory { size: 1, device_free: 0, stack: StackId::NONE }));
        Trace { device, requests: vec![request], events, ..Trace::default() }
    }

    #[test]
    fn shown_is_the_device_that_ran_out_of_memory_else_the_fullest() {
        assert_eq!(shown(&[trace(0, 1, false), trace(1, 9, false), trace(2, 9, false)]), Some(1));
        assert_eq!(shown(&[trace(0, 1, false), trace(1, 9, false), trace(2, 5, true)]), Some(2));
        assert_eq!(shown(&[Trace::default()]), None);
    }
}
