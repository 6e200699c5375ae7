//! The plan that a job with levers starts with. That it fits was found by replaying its trial under a plan of that trial
//! ([`crate::fit`]): one that learns by itself remaps in its first steps on a card that is just large enough.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use stalloc_common::{CommandLine, PrivateFolder};
use stalloc_dryrun_setup::DryRun;
use stalloc_launcher::{Background, run_in_background};

use crate::fit::trial::{recording, scratch, without_expandable_segments};
use crate::refresh::{self, Wanted};
use crate::{Silent, fit, planning};

/// Folders of plans of launches that nobody waits for, at most; when there are more, the older half goes.
const MOST_FOLDERS: usize = 40;

/// The folder for the plans of a job that is told `told` and whose trial came to `found`: the same for the same. None if there can be none.
pub fn folder(question: &fit::Question, told: &str, found: &super::LeverFigures) -> Option<PathBuf> {
    let all = PrivateFolder::kept("plans").ok()?;
    all.tidy(MOST_FOLDERS);
    let of = format!("{:?} {} {told} {found:?}", question.command, question.gpus.first()?.name);
    let own = all.below(format!("{:016x}", stalloc_common::hash(of.as_bytes())).as_ref()).ok()?;
    Some(own.path().to_owned())
}

/// Records the steps of a trial with what the job is told, and plans them into `out`, unless plans are there. An error is a sentence on why
/// there are none; the job then learns its own.
pub fn plan(
    question: &fit::Question,
    command: &CommandLine,
    told: &str,
    out: &Path,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut there = std::fs::read_dir(out).into_iter().flatten().flatten();
    if there.any(|file| file.path().extension().is_some_and(|kind| kind == "plan")) {
        return Ok(());
    }
    let failed = |error: &dyn std::error::Error| error.to_string();
    std::fs::create_dir_all(out).map_err(|error| failed(&error))?;
    let folder = scratch().map_err(|error| failed(&error))?;
    let gpu = question.gpus.first().ok_or("no GPU is named")?;
    let stand_in = DryRun::new(gpu.name, question.devices).map_err(|error| failed(&error))?.with_ample_memory();
    let mut job = recording(command, &stand_in, folder.path().join("traces"), &question.setting)
        .map_err(|error| failed(&error))?;
    job.fit = Some(told.to_owned());
    let mut process = job.process(None).map_err(|error| failed(&error))?;
    without_expandable_segments(&mut process);
    let log = folder.path().join("output.log");
    let ended = run_in_background(&mut process, &log, question.setting.limit, stop).map_err(|error| failed(&error))?;
    if ended != Background::Ended(0) {
        return Err("its trial did not end".to_owned());
    }
    let wanted = Wanted { folder: &job.directory, out, rank: None, frozen: false };
    let effort = planning::usual_effort();
    let mut is_planned = false;
    refresh::folder(wanted, &effort, &mut Silent, &mut |_, _| is_planned = true).map_err(|error| failed(&error))?;
    if is_planned { Ok(()) } else { Err("nothing was recorded".to_owned()) }
}
