//! One trial: a dry run of a few steps, and what its recording needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stalloc_common::{CommandLine, settings};
use stalloc_dryrun_setup::{DryRun, Gpu};
use stalloc_launcher::{Background, Job, Purpose, Rank, run_in_background};
use stalloc_trace::Input;
use tempfile::TempDir;

use crate::fit::Error;
use crate::fit::evaluate::{MORE_STEPS, RankDevice, Recorded, evaluate};
use crate::fit::notes::{LeverNotes, Notes, read_lever_notes, read_notes};
use crate::recorded;

/// Lines of a failed program's output that are kept.
const LAST_LINES: usize = 12;

/// Bytes of them.
const LAST_BYTES: usize = 4000;

/// PyTorch's variables for its allocator's options.
const ALLOCATOR_OPTIONS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// What is the same in every trial.
#[derive(Clone, Debug)]
pub struct TrialSetting {
    /// The Python package that records.
    pub package: PathBuf,
    /// Steps to record.
    pub steps: u32,
    /// How long a trial may take.
    pub limit: Duration,
    /// Answers to what the program reads back: `FILE:LINE=VALUE`.
    pub answers: Vec<String>,
    /// A file of such answers.
    pub answers_file: Option<PathBuf>,
    /// The folder where trials of levers meet that share their start; none: each starts by itself.
    pub shared_start: Option<PathBuf>,
    /// The size of a card, bytes, on which steps with levers are timed.
    pub priced_on: Option<u64>,
}

impl TrialSetting {
    /// That size for a trial, a little rounded down: what others use of a card differs from day to day, and a trial is kept.
    pub fn priced_on(&self, levers: Option<&[String]>, gpu: &Gpu) -> Option<u64> {
        let unit = (gpu.total / 4096).max(1);
        self.priced_on.filter(|_| levers.is_some_and(|levers| !levers.is_empty())).map(|bytes| bytes / unit * unit)
    }
}

/// How a trial of one rank went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ran: what each of its devices needs, and what it said of levers.
    Ran(Vec<RankDevice>, Option<Box<LeverNotes>>),
    /// It did not.
    Failed(TrialFailure),
}

impl Outcome {
    /// Whether it failed for a reason that may pass.
    pub fn may_pass(&self) -> bool {
        matches!(self, Outcome::Failed(failure) if matches!(failure.kind, FailureKind::Failed | FailureKind::Killed))
    }
}

/// Why a trial says nothing about memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFailure {
    /// What happened.
    pub kind: FailureKind,
    /// The exit status, where the program ended by itself.
    pub status: Option<u8>,
    /// The last lines of its output.
    pub lines: Vec<String>,
}

impl TrialFailure {
    /// A fault of ours.
    pub fn internal() -> Self {
        let lines = vec!["internal error of stalloc, which its output above describes".to_owned()];
        TrialFailure { kind: FailureKind::Unreadable, status: None, lines }
    }
}

/// What happened instead of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The program does not take these arguments.
    Refused,
    /// The program failed by itself.
    Failed,
    /// The program ran out of the memory that it allows itself.
    OutOfMemory,
    /// Somebody killed the program: most often the system, for want of host memory.
    Killed,
    /// It took too long.
    TimedOut,
    /// It used no GPU.
    NothingRecorded,
    /// The recording cannot be used.
    Unreadable,
}

/// Runs `command` on one rank and says what it needs, there and on other GPUs; none if it was stopped. The notes say what the answer
/// depends on.
pub fn run(
    command: &CommandLine,
    (dry_run, others): (&DryRun, &[Gpu]),
    rank: Option<Rank>,
    levers: Option<&[String]>,
    setting: &TrialSetting,
    stop: &AtomicBool,
) -> Result<Option<(Outcome, Notes)>, Error> {
    let folder = scratch()?;
    let notes = folder.path().join("notes");
    stalloc_launcher::prepare(&notes)?;
    let mut job = recording(command, dry_run, folder.path().join("traces"), setting)?;
    // On the card itself it is run, and its stacks kept to name who asks for what is refused; else the steps that follow are replayed.
    if !dry_run.is_ample() {
        let longer = setting.steps.saturating_add(MORE_STEPS);
        (job.steps, job.stacks) = (Some(longer), Some(longer));
    }
    let mut process = job.process(rank)?;
    process.env(settings::TRIAL_NOTES, &notes);
    match levers {
        Some(levers) => process.env(settings::LEVERS, levers.join(",")),
        None => process.env_remove(settings::LEVERS),
    };
    if let Some(meeting) = &setting.shared_start {
        process.env(settings::LEVERS_SHARED, format!("{}:{}", std::process::id(), meeting.display()));
    }
    without_expandable_segments(&mut process);
    let log = folder.path().join("output.log");
    let ended = run_in_background(&mut process, &log, setting.limit, stop)?;
    let of_levers = levers.and_then(|_| read_lever_notes(&notes)).map(Box::new);
    let notes = read_notes(&notes);
    let failed = |kind, status| {
        let failure = TrialFailure { kind, status, lines: last_lines(&log) };
        Ok(Some((Outcome::Failed(failure), notes.clone())))
    };
    let status = match ended {
        Background::Stopped => return Ok(None),
        Background::TimedOut => return failed(FailureKind::TimedOut, None),
        Background::Ended(status) => status,
    };
    if status != 0 {
        return failed(kind_of(status, &log), Some(status));
    }
    let priced_on = setting.priced_on(levers, dry_run.gpu());
    match devices(&job, &notes, (dry_run.gpu(), others), rank, (of_levers.as_deref(), priced_on)) {
        Ok((devices, _)) if devices.is_empty() => failed(FailureKind::NothingRecorded, None),
        Ok((mut devices, is_guessed)) => {
            if is_guessed && levers.is_none() && !dry_run.chooses_fewest() {
                let fewest = dry_run.clone().with_fewest_chosen();
                let Some((other, _)) = run(command, (&fewest, &[]), rank, levers, setting, stop)? else {
                    return Ok(None);
                };
                let others = if let Outcome::Ran(others, _) = other { others } else { Vec::new() };
                for (device, other) in devices.iter_mut().zip(others) {
                    device.peak_if_none = Some(other.peak_allocated);
                }
            }
            Ok(Some((Outcome::Ran(devices, of_levers), notes)))
        }
        Err(why) => {
            let failure = TrialFailure { kind: FailureKind::Unreadable, status: None, lines: vec![why] };
            Ok(Some((Outcome::Failed(failure), notes)))
        }
    }
}

/// The recording of a trial's steps into a new folder, without their stacks.
pub fn recording(
    command: &CommandLine,
    dry_run: &DryRun,
    directory: PathBuf,
    setting: &TrialSetting,
) -> Result<Job, stalloc_launcher::Error> {
    let launch = stalloc_launcher::prepare(&directory)?;
    Ok(Job {
        purpose: Purpose::Record,
        command: command.clone(),
        directory,
        solid: None,
        fit: None,
        plans: None,
        package: setting.package.clone(),
        dry_run: Some(dry_run.clone()),
        steps: Some(setting.steps),
        stacks: Some(0),
        answers: setting.answers.clone(),
        answers_file: setting.answers_file.clone(),
        launch,
        says_progress: false,
    })
}

/// What each recorded device needs, and whether sizes hang on guesses.
fn devices(
    job: &Job,
    notes: &Notes,
    gpus: (&Gpu, &[Gpu]),
    rank: Option<Rank>,
    (of_levers, priced_on): (Option<&LeverNotes>, Option<u64>),
) -> Result<(Vec<RankDevice>, bool), String> {
    let (mut devices, mut is_guessed) = (Vec::new(), false);
    for path in recorded::traces_of(&job.directory, &job.launch).map_err(|error| error.to_string())? {
        let input = stalloc_trace::open(&path, &mut |_, _| {}).map_err(|error| error.to_string())?;
        let Input::Recording(mut recording) = input else { continue };
        for trace in recording.traces.iter_mut().filter(|trace| !trace.requests.is_empty()) {
            let about = recorded::summary::of(&path, trace);
            if about.lost_events > 0 {
                return Err(format!("{} events of the recording were lost: is the disk full?", about.lost_events));
            }
            is_guessed |= about.is_guessed();
            trace.pace_first(job.steps.unwrap_or(u32::MAX));
            let recorded = trace.metadata.get("world_size").and_then(|size| size.parse().ok());
            let world_size = rank.map(|rank| rank.world_size).or(recorded).unwrap_or(1);
            let recorded = Recorded {
                rank: about.rank,
                steps: about.steps,
                content: about.content,
                is_cut: notes.is_cut,
                priced_on,
            };
            let mut device = evaluate(trace, recorded, gpus, world_size, notes.groups.as_ref())?;
            device.holders = of_levers.map(|notes| stalloc_report::at_peak(trace, &notes.places)).unwrap_or_default();
            devices.push(device);
        }
    }
    Ok((devices, is_guessed))
}

/// Expandable segments have addresses for the card's own memory only, and a trial may need more. What is asked for is the
/// same without them.
pub fn without_expandable_segments(process: &mut Command) {
    for name in ALLOCATOR_OPTIONS {
        let Some(value) = std::env::var(name).ok().filter(|value| value.contains("expandable_segments")) else {
            continue;
        };
        let kept: Vec<&str> = value.split(',').filter(|option| !option.contains("expandable_segments")).collect();
        process.env(name, kept.join(","));
    }
}

/// What a status and the output tell.
fn kind_of(status: u8, log: &Path) -> FailureKind {
    let output = tail(log);
    if output.contains("OutOfMemoryError") || output.contains("out of memory. Tried to allocate") {
        FailureKind::OutOfMemory
    } else if status == 2 && output.contains("usage:") && output.contains("error:") {
        FailureKind::Refused
    } else if status == 137 {
        FailureKind::Killed
    } else {
        FailureKind::Failed
    }
}

/// The end of the output.
fn tail(log: &Path) -> String {
    let output = fs::read(log).unwrap_or_default();
    let start = output.len().saturating_sub(LAST_BYTES);
    String::from_utf8_lossy(&output[start..]).into_owned()
}

fn last_lines(log: &Path) -> Vec<String> {
    let tail = tail(log);
    let lines: Vec<&str> = tail.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| stalloc_common::redacted_line(line)).collect()
}

/// A private folder, which goes when it is dropped.
pub fn scratch() -> Result<TempDir, Error> {
    stalloc_common::PrivateFolder::passing().map_err(Error::Scratch)
}

#[cfg(test)]
mod tests;
