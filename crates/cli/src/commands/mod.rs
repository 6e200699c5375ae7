//! The commands, a module each.

mod report;
mod trace;

use clap::Subcommand;

use crate::error::{Error, Outcome};

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Write a report that people look at: what is wasted, where it comes from, what a plan would save.
    Report(report::Args),
    Trace(trace::Args),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Error> {
        match self {
            Command::Report(args) => report::run(&args),
            Command::Trace(args) => trace::run(args),
        }
    }
}
