//! Runs a training command so that it is recorded or served from plans.
//!
//! A [`Job`] is the command with everything that its environment has to say; [`run`] starts one process of it for
//! each rank and waits.

#![forbid(unsafe_code)]

mod background;
mod folder;
mod job;
mod options;
mod package;
mod process;
mod reach;

use std::path::PathBuf;

pub use crate::background::{Background, run_in_background, stop_flag};
pub use crate::folder::prepare;
pub use crate::job::{Job, Purpose, Rank, rank_of_environment};
pub use crate::package::python_package;
pub use crate::process::{Ended, ProcessWatch, replace, run};
pub use crate::reach::out_of_reach;

/// Ranks that a job may have: no machine has as many GPUs.
pub const MOST_RANKS: u32 = 1 << 20;

/// Ranks that are run one after the other because all are asked for.
pub const MOST_RANKS_RUN: u32 = 1 << 16;

/// Why a command could not be run. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dry run cannot be set up.
    #[error(transparent)]
    DryRun(#[from] stalloc_dryrun_setup::SetupError),
    /// The command cannot be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// What was to be run.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A directory cannot be written to.
    #[error("cannot write to {}: {source}", path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The Python package is not where the command looks.
    #[error(
        "the Python part of stalloc was not found; install the package (`pip install .`) and use its command, or set \
         STALLOC_PYTHON_PACKAGE to the package's folder"
    )]
    NoPackage,
    /// A process could not be waited for.
    #[error("cannot wait for the command: {0}")]
    Wait(#[source] std::io::Error),
}
