//! The commands, a module each.

mod completions;
mod demo;
mod fit;
mod info;
mod levers;
mod plan;
mod ranks;
mod report;
mod run;
mod run_fit;
pub mod settings;
mod simulate;
mod top;
mod trace;
mod trials;
mod verify;

use clap::Subcommand;

use crate::error::{Ending, Error};

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Print what a shell reads to complete commands and options.
    Completions(completions::Args),
    /// Plan a built-in trace, check the plan, compare the allocators and write a report; needs no GPU.
    Demo(demo::Args),
    /// Find what fits, without a GPU: the largest batch, the longest sequence, the smallest card.
    Fit(fit::Args),
    /// Say what a file holds, or how two recordings differ.
    Info(info::Args),
    /// Find what would make it fit, without a GPU: each lever tried on the script, and how to write it.
    Levers(levers::Args),
    /// Choose an address for every request of a recording, or for every buffer of a CSV instance.
    Plan(plan::Args),
    /// Write a report that people look at: what is wasted, where it comes from, what a plan would save.
    Report(report::Args),
    /// Run a training command on our allocator, which plans its memory while it trains.
    Run(run::Args),
    /// Replay a recording through PyTorch's allocator, expandable segments, GMLake and stalloc.
    Simulate(simulate::Args),
    /// Show a running job's memory, live, in the terminal.
    Top(top::Args),
    /// Run a training command and record what it allocates, on a GPU or with none.
    Trace(trace::Args),
    /// Check a plan, or an instance with offsets, by an independent checker.
    Verify(verify::Args),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<Ending, Error> {
        match self {
            Command::Completions(args) => completions::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Fit(args) => fit::run(args),
            Command::Info(args) => info::run(&args),
            Command::Levers(args) => levers::run(args),
            Command::Plan(args) => plan::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Trace(args) => trace::run(args),
            Command::Verify(args) => verify::run(&args),
        }
    }
}
