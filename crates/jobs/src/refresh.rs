//! Plans of a folder, made again where they are out of date.

use std::fs;
use std::path::{Path, PathBuf};

use stalloc_plan::Plan;
use stalloc_planner::Options;
use stalloc_synthesizer::Summary;
use stalloc_trace::Input;

use crate::{Error, Watch, inputs, planning, recorded};

/// Plans every trace in a folder that the plan of the same name was not made from. `planned` is told of each plan that was
/// written. Whatever cannot be used there is noted and left: a command that follows the plans runs all the same.
///
/// # Errors
/// If the plans of the folder are to be followed alone (`frozen`) and it holds nothing that was meant for us.
pub fn folder(
    folder: &Path,
    frozen: bool,
    effort: &Options,
    watch: &mut dyn Watch,
    planned: &mut dyn FnMut(&Path, &Summary),
) -> Result<(), Error> {
    if !folder.is_dir() && frozen {
        return Err(Error::NoFolder(folder.to_owned()));
    }
    if !folder.exists() {
        return Ok(());
    }
    let files = match fs::read_dir(folder) {
        Ok(files) => files.filter_map(|file| Some(file.ok()?.path())),
        Err(error) => {
            watch.note(&format!("{} cannot be read: {error}; the command runs without a plan", folder.display()));
            return Ok(());
        }
    };
    let is_meant = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "plan" || kind == "trace");
    let meant: Vec<PathBuf> = files.filter(is_meant).collect();
    for other in meant.iter().filter(|path| !path.is_file()) {
        watch.note(&format!("{} is not used: it is not a file", other.display()));
    }
    let traces = recorded::traces(folder).unwrap_or_default();
    if meant.is_empty() && traces.is_empty() && frozen {
        return Err(Error::NothingToFollow(folder.to_owned()));
    }
    for trace in traces {
        let out = trace.with_extension("plan");
        if out.exists() && !out.is_file() {
            // Said above; a pipe would be waited for.
            continue;
        }
        let existing = stalloc_plan::read(&out).ok();
        match plan_one(&trace, &out, existing.as_ref(), effort, watch) {
            Ok(Some(summary)) => planned(&out, &summary),
            Ok(None) => {}
            Err(why) => {
                let kept =
                    if existing.is_some() { format!("; {} stays as it is", out.display()) } else { String::new() };
                watch.note(&format!("{} is not used: {why}{kept}", trace.display()));
            }
        }
    }
    Ok(())
}

/// Plans a trace, unless the plan that there is was made from it; an error is a sentence on the trace.
fn plan_one(
    path: &Path,
    out: &Path,
    existing: Option<&Plan>,
    effort: &Options,
    watch: &mut dyn Watch,
) -> Result<Option<Summary>, String> {
    let work = format!("reading {}", path.display());
    let read = stalloc_trace::open(path, &mut |done, total| watch.progress(&work, done, total));
    let Input::Recording(recording) = read.map_err(|error| error.fault.to_string())? else {
        return Err("it is no recording".to_owned());
    };
    let trace = inputs::device(path, recording, None, watch).map_err(|error| error.to_string())?;
    if existing.is_some_and(|plan| plan.fingerprint == stalloc_plan::fingerprint(&trace)) {
        return Ok(None);
    }
    if trace.requests.is_empty() {
        return Err("it holds no requests".to_owned());
    }
    if existing.is_some() && (!recorded::is_whole(path) || trace.metadata.contains_key("lost_events")) {
        return Err("the recording was cut off".to_owned());
    }
    let (plan, summary) = planning::trace(&trace, *effort, watch).map_err(|error| error.to_string())?;
    stalloc_plan::write(out, &plan).map_err(|error| format!("its plan cannot be written: {error}"))?;
    Ok(Some(summary))
}
