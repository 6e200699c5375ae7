//! The `stalloc` command: arguments, tables, progress; no logic.
//!
//! A command is a module of [`commands`]: an `Args` that clap fills and a `run` that calls one library function and
//! prints what it returns. Results go to standard output, everything else to standard error. `Outcome` and
//! [`error::Error`] decide the exit status: 0 done, 1 the answer is no, 2 bad input or usage.

mod commands;
mod error;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::error::Outcome;

/// Planned GPU memory for PyTorch training.
#[derive(Parser)]
#[command(
    name = "stalloc",
    version,
    about = "Planned GPU memory for PyTorch training: see what a job wastes, plan it away, run it from the plan.",
    after_help = "Start here:\n  stalloc demo                                  what stalloc does, on a built-in trace\n  \
                  stalloc report snapshot.pickle -o report.html   your own job, from a PyTorch memory snapshot"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Ok(Outcome::Exit(code)) => ExitCode::from(code),
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stalloc: {error}");
            ExitCode::from(2)
        }
    }
}
