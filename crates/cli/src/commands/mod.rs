//! The commands, a module each.

mod demo;
mod info;
mod plan;
mod report;
mod run;
mod simulate;
mod trace;
mod verify;

use clap::Subcommand;

use crate::error::{Error, Outcome};

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Plan, verify and compare a built-in trace, and write its report: the main job, with no GPU.
    Demo(demo::Args),
    /// Say what a file holds, or how two recordings differ.
    Info(info::Args),
    /// Choose an address for every request of a recording, or for every buffer of a CSV instance.
    Plan(plan::Args),
    /// Write a report that people look at: what is wasted, where it comes from, what a plan would save.
    Report(report::Args),
    /// Run a training command on the planned allocator.
    Run(run::Args),
    /// Replay a recording through PyTorch's allocator, expandable segments, GMLake and stalloc.
    Simulate(simulate::Args),
    /// Run a training command and record what it allocates, on a GPU or with none.
    Trace(trace::Args),
    /// Check a plan, or an instance with offsets, by code that shares nothing with what made it.
    Verify(verify::Args),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Error> {
        match self {
            Command::Demo(args) => demo::run(&args),
            Command::Info(args) => info::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Trace(args) => trace::run(args),
            Command::Verify(args) => verify::run(&args),
        }
    }
}
