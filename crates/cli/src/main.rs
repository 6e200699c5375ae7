//! The `stalloc` command: arguments, tables, progress; no logic.
//!
//! A command is a module of [`commands`]: an `Args` that clap fills and a `run` that calls one library function and
//! prints what it returns. Results go to standard output, everything else to standard error. `Ending` and
//! [`error::Error`] decide the exit status: 0 done, 1 the answer is no, 2 bad input or usage.

#![forbid(unsafe_code)]

mod commands;
mod error;
mod input;
mod output;
mod progress;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use stalloc_common::settings;
use stalloc_dryrun_setup::nvidia_smi;

use crate::commands::Command;
use crate::error::Ending;

/// Planned GPU memory for PyTorch training.
#[derive(Parser)]
#[command(
    name = "stalloc",
    version,
    arg_required_else_help = true,
    override_usage = "stalloc <COMMAND>",
    about = "Planned GPU memory for PyTorch training: see what a job wastes, and run it in less.",
    after_help = "Start here:\n  stalloc demo                                    what stalloc does, on a built-in trace\n  \
                  stalloc report snapshot.pickle -o report.html   your own job, from a PyTorch memory snapshot\n  \
                  stalloc run -- python train.py                  your own job, on our allocator\n\n\
                  `stalloc COMMAND --help` shows examples of each command."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print every variable of the environment that changes something, and what it is now
    #[arg(long, exclusive = true)]
    settings: bool,
}

fn main() -> ExitCode {
    // Dry runs find this command under the name of NVIDIA's, for the scripts that ask it.
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    // They start it under this name to ask the installed cuDNN.
    if Path::new(&name).ends_with(stalloc_cudnn::COMMAND) {
        return stalloc_cudnn::serve(Path::new(&words.next().unwrap_or_default()));
    }
    if Path::new(&name).ends_with(nvidia_smi::COMMAND) {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let answer = nvidia_smi::answer_in_environment(&words);
        // A reader that went away needs no word.
        let _ = std::io::stdout().write_all(answer.text.as_bytes());
        return ExitCode::from(answer.status);
    }
    let command = Cli::parse().command;
    // The job itself says it under `run`, as it does without this command.
    if !matches!(command, Some(Command::Run(_))) {
        settings::unknown(std::env::vars_os().map(|(name, _)| name)).iter().for_each(|line| output::say(line));
    }
    match command.map_or_else(commands::settings::run, Command::run) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::No) => ExitCode::from(1),
        Ok(Ending::Exit(code)) => ExitCode::from(code),
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&error.to_string());
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests;
