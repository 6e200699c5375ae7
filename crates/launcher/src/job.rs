//! What to run, and what its environment says to the recorder inside.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use stalloc_common::{CommandLine, settings};
use stalloc_dryrun_setup::DryRun;

use crate::Error;

/// One rank of a distributed job, to be run without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Which one, from 0.
    pub rank: u32,
    /// How many there would be.
    pub world_size: u32,
}

/// What a command is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To record what it allocates.
    Record,
    /// To serve it from one arena that learns, starting from the plans there are.
    Serve,
    /// To follow plans and learn nothing.
    Follow,
}

/// A command to record or to serve.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it is run for.
    pub purpose: Purpose,
    /// The program and its arguments.
    pub command: CommandLine,
    /// Where the traces go: exists.
    pub directory: PathBuf,
    /// Where plans lie, and where what is learned is kept.
    pub plans: Option<PathBuf>,
    /// Have the arena in one allocation, so many bytes larger than the plan needs.
    pub solid: Option<u64>,
    /// Levers to apply to the program, and what they are to come to, as `python/stalloc/_levers/fitting.py` reads it.
    pub fit: Option<String>,
    /// The Python package.
    pub package: PathBuf,
    /// The GPU to stand in for, if there is none.
    pub dry_run: Option<DryRun>,
    /// End the program after so many steps.
    pub steps: Option<u32>,
    /// Record call stacks for so many steps.
    pub stacks: Option<u32>,
    /// Answers to what the program reads back: `FILE:LINE=VALUE`.
    pub answers: Vec<String>,
    /// A file of such answers.
    pub answers_file: Option<PathBuf>,
    /// The launch's name, from [`prepare`](crate::prepare): what its processes record is known by it.
    pub launch: String,
    /// Have the program say after its steps how far the recording is.
    pub says_progress: bool,
}

impl Job {
    /// The process of one rank, or of a job that has one process or starts its ranks itself.
    pub fn process(&self, rank: Option<Rank>) -> Result<Command, Error> {
        let mut command = Command::new(self.command.words().first().map_or("".as_ref(), OsString::as_os_str));
        command.args(self.command.words().iter().skip(1));
        command.env("PYTHONPATH", first_of_list(&self.package.join("_bootstrap"), "PYTHONPATH"));
        match self.purpose {
            Purpose::Record => {
                command.env(settings::TRACE_DIR, &self.directory).env(settings::TRACE_LAUNCH, &self.launch);
                command.env_remove(settings::MODE);
            }
            Purpose::Serve | Purpose::Follow => {
                command.env(settings::MODE, if self.purpose == Purpose::Serve { "Auto" } else { "Alloc" });
                // The second says that the folder's traces have been planned.
                for name in [settings::FOLDER, settings::PLANNED] {
                    match &self.plans {
                        Some(directory) => command.env(name, directory),
                        None => command.env_remove(name),
                    };
                }
                command.env_remove(settings::TRACE_DIR);
                if let Some(more) = self.solid {
                    // 1 says as large as the plan.
                    command.env(settings::SOLID, if more == 0 { "1".to_owned() } else { format!("{more}B") });
                }
            }
        }
        match &self.fit {
            Some(told) => command.env(settings::FIT, told),
            None => command.env_remove(settings::FIT),
        };
        match crate::options::write(self)? {
            Some(file) => command.env(settings::LAUNCH, file),
            None => command.env_remove(settings::LAUNCH),
        };
        if let Some(dry_run) = &self.dry_run {
            dry_run.apply(&mut command)?;
        }
        if let Some(Rank { rank, world_size }) = rank {
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", world_size.to_string());
            command.env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "1");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500");
            command.env(settings::TRACE_ALONE, "1");
        }
        Ok(command)
    }

    /// The rank that the environment asks for, to be run alone: only without a GPU, where there cannot be others.
    pub fn rank_of_environment(&self) -> Option<Rank> {
        self.dry_run.as_ref()?;
        let number = |name| env::var(name).ok()?.parse().ok();
        let rank = Rank { rank: number("RANK")?, world_size: number("WORLD_SIZE")? };
        (rank.world_size > 1 && rank.rank < rank.world_size).then_some(rank)
    }
}

/// Which process of a job of several this is, as its launcher says: torchrun's variable, then those of Slurm, Open MPI and MPICH.
pub fn rank_of_environment() -> Option<u32> {
    ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"]
        .iter()
        .find_map(|name| env::var(name).ok()?.parse().ok())
}

/// `path` in front of the list of paths in the variable `name`.
fn first_of_list(path: &Path, name: &str) -> OsString {
    let mut list = path.as_os_str().to_owned();
    if let Some(rest) = env::var_os(name).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}
