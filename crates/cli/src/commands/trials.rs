//! What `stalloc fit` and `stalloc levers` share: the options of trials, and what is said of one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use stalloc_jobs::fit::{FailureKind, TrialFailure, TrialSetting, Tried};

use crate::commands::trace::{Answers, failed};
use crate::error::Error;
use crate::output;

/// How trials are run, of what, and how the answer is given.
#[derive(clap::Args)]
pub struct Trials {
    /// Training steps of each trial: the first makes the optimizer's states, the later ones show the peak; up to 12 while what stays rises
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Trials at once; by default as many as there are cores, at most eight
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// End a trial that takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub trial_limit: u64,
    /// Try everything again, and keep nothing
    #[arg(long)]
    pub no_cache: bool,
    #[command(flatten)]
    pub answers: Answers,
    /// Write the answer as a page with a chart and its table
    #[arg(short, long, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments, with {NAME} where values belong
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Trials {
    /// As the library takes it.
    pub fn setting(&self) -> Result<TrialSetting, Error> {
        Ok(TrialSetting {
            package: stalloc_launcher::python_package().map_err(failed)?,
            steps: self.steps,
            limit: Duration::from_secs(self.trial_limit),
            answers: self.answers.answers.clone(),
            answers_file: self.answers.answers_file.clone(),
            shared_start: None,
            priced_on: None,
        })
    }
}

/// What one trial said, for the one who waits.
pub fn summary(tried: &Tried, is_cached: bool) -> String {
    let known = if is_cached { ", known from before" } else { "" };
    let peak = tried.devices.iter().map(|device| device.peak_allocated).max().unwrap_or(0);
    let failed = tried.failure.as_ref().map(|(_, failure)| happened(failure));
    format!("{}{known}", failed.unwrap_or_else(|| format!("peak allocated {}", output::bytes(peak))))
}

/// What happened to a command that did not run.
pub fn happened(failure: &TrialFailure) -> String {
    let status = failure.status.map_or(String::new(), |status| format!(" (exit status {status})"));
    match failure.kind {
        FailureKind::Refused => "refused by the script: it does not take this value".to_owned(),
        FailureKind::Failed => format!("failed{status}, not for want of memory"),
        FailureKind::OutOfMemory => format!("out of the memory that the script allows itself{status}"),
        FailureKind::Killed => format!("killed{status}: most often the system, for want of host memory"),
        FailureKind::TimedOut => "ended because it took too long (--trial-limit)".to_owned(),
        FailureKind::NothingRecorded => "allocated no GPU memory through PyTorch".to_owned(),
        FailureKind::Unreadable => "its recording cannot be used".to_owned(),
    }
}
