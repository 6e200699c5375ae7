//! Plans of a folder, made again where they are out of date.

use std::fs;
use std::path::{Path, PathBuf};

use stalloc_plan::Plan;
use stalloc_planner::SolveOptions;
use stalloc_synthesizer::PlanSummary;
use stalloc_trace::Input;

use crate::recorded::alike::{self, Alike};
use crate::{Error, Watch, inputs, planning, recorded};

/// What to plan, and where the plans go.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The folder of the traces.
    pub folder: &'a Path,
    /// The folder of the plans: is there, or is `folder`.
    pub out: &'a Path,
    /// The rank of this process among several of a job that all do this: only its traces are planned, where there are some, and
    /// traces that are alike by one of the processes. None: this process is alone and plans for every rank.
    pub rank: Option<u32>,
    /// Whether the plans of the folder are to be followed alone.
    pub frozen: bool,
}

/// Plans every trace in a folder that the plan of the same name was not made from. `planned` is told of each plan that was
/// written. Traces that are alike share one plan. Whatever cannot be used there is noted and left: a command that follows the plans
/// runs all the same.
///
/// # Errors
/// If the plans of the folder are to be followed alone (`frozen`) and it holds nothing that was meant for us.
pub fn folder(
    Wanted { folder, out, rank, frozen }: Wanted<'_>,
    effort: &SolveOptions,
    watch: &mut dyn Watch,
    planned: &mut dyn FnMut(&Path, &PlanSummary),
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
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_meant =
        |path: &PathBuf| path.extension().is_some_and(|kind| kind == "plan" || kind == "trace") && !is_hidden(path);
    let meant: Vec<PathBuf> = files.filter(is_meant).collect();
    for other in meant.iter().filter(|path| !path.is_file()) {
        watch.note(&format!("{} is not used: it is not a file", other.display()));
    }
    let mut traces = recorded::traces(folder).unwrap_or_default();
    if meant.is_empty() && traces.is_empty() && frozen {
        return Err(Error::NothingToFollow(folder.to_owned()));
    }
    if rank.is_some() && traces.iter().any(|path| recorded::rank(path) == rank) {
        traces.retain(|path| recorded::rank(path) == rank);
    }
    let mut one = One { effort, is_one_of_several: rank.is_some(), known: Alike::default() };
    for trace in traces {
        let to = out.join(trace.with_extension("plan").file_name().unwrap_or_default());
        if to.exists() && !to.is_file() {
            // Said above; a pipe would be waited for.
            continue;
        }
        let existing = stalloc_plan::read(&to).ok();
        match one.plan(&trace, &to, existing.as_ref(), watch) {
            Ok(Some(summary)) => planned(&to, &summary),
            Ok(None) => {}
            Err(why) => {
                let kept =
                    if existing.is_some() { format!("; {} stays as it is", to.display()) } else { String::new() };
                watch.note(&format!("{} is not used: {why}{kept}", trace.display()));
            }
        }
    }
    Ok(())
}

/// Plans one trace after the other.
struct One<'a> {
    effort: &'a SolveOptions,
    is_one_of_several: bool,
    known: Alike<PathBuf>,
}

impl One<'_> {
    /// Plans a trace, unless the plan that there is was made from it; an error is a sentence on the trace.
    fn plan(
        &mut self,
        path: &Path,
        out: &Path,
        existing: Option<&Plan>,
        watch: &mut dyn Watch,
    ) -> Result<Option<PlanSummary>, String> {
        let cannot_write = |error: String| format!("its plan cannot be written: {error}");
        let shares = |first: &Path| alike::share(first, out).map_err(|error| cannot_write(error.to_string()));
        if let Some(first) = self.known.of_file(path) {
            return shares(&first).map(|()| None);
        }
        let work = format!("reading {}", path.display());
        let read = stalloc_trace::open(path, &mut |done, total| watch.progress(&work, done, total));
        let Input::Recording(recording) = read.map_err(|error| error.fault.to_string())? else {
            return Err("it is no recording".to_owned());
        };
        let trace = inputs::device(path, recording, None, watch).map_err(|error| error.to_string())?;
        let fingerprint = stalloc_plan::fingerprint(&trace);
        let content = alike::content(&trace);
        if existing.is_some_and(|plan| plan.fingerprint == fingerprint) {
            self.known.add(path, content, out.to_owned());
            return Ok(None);
        }
        if trace.requests.is_empty() {
            return Err("it holds no requests".to_owned());
        }
        if existing.is_some() && (!recorded::is_whole(path) || trace.metadata.contains_key("lost_events")) {
            return Err("the recording was cut off".to_owned());
        }
        if let Some(first) = self.known.of_content(path, content) {
            return shares(&first).map(|()| None);
        }
        let folder = out.parent().filter(|_| self.is_one_of_several);
        let shared = folder.map(|folder| alike::shared(folder, content));
        if let Some(shared) = &shared {
            let is_of = |file: &Path| stalloc_plan::read(file).is_ok_and(|plan| plan.fingerprint == fingerprint);
            // The other process may have been of our own rank's name: ranks that a folder knows nothing of take the one there is.
            if is_of(out) {
                return Ok(None);
            }
            if is_of(&shared.plan) {
                return shares(&shared.plan).map(|()| None);
            }
        }
        let (plan, summary) = planning::trace(&trace, *self.effort, watch).map_err(|error| error.to_string())?;
        match &shared {
            Some(shared) => {
                stalloc_plan::write(&shared.plan, &plan).map_err(|error| cannot_write(error.to_string()))?;
                shares(&shared.plan)?;
            }
            None => stalloc_plan::write(out, &plan).map_err(|error| cannot_write(error.to_string()))?,
        }
        self.known.add(path, content, out.to_owned());
        Ok(Some(summary))
    }
}
