//! `stalloc plan`: an address for every request of a recording, or for every buffer of an instance.

use std::path::PathBuf;
use std::time::Duration;

use stalloc_jobs::{inputs, planning};
use stalloc_planner::{SolveOptions, Stop};
use stalloc_synthesizer::PlanSummary;
use stalloc_trace::{Input, InstanceTable, Trace};

use crate::error::{Ending, Error};
use crate::input;
use crate::output::{self, Table};
use crate::progress::Terminal;

/// Arguments of `stalloc plan`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc plan job.pickle -o job.plan           plan a PyTorch memory snapshot\n  \
                        stalloc plan instance.csv -o solved.csv       the same rows with an offset column\n  \
                        stalloc plan instance.csv --time-limit 60     take a minute for a better answer\n  \
                        stalloc plan traces                           a plan next to each trace of a folder\n\n\
                        Without -o nothing is written but for a folder: the figures are printed.\n\
                        Ctrl-C ends the search, and the best plan so far is the answer; a second one ends the command.\n\
                        Exit status: 0 if done, 1 if with --capacity no plan was found that fits, 2 if a file cannot be read.")]
pub struct Args {
    /// A recording (PyTorch snapshot, stalloc trace, mem_log), a folder of traces, or an instance as CSV
    /// (id,lower,upper,size; MiniMalloc's columns start, end, gaps and offset are read as it reads them)
    #[arg(value_parser = input::parser())]
    input: PathBuf,
    /// Where to write the plan, or the CSV with offsets; for a folder, another folder
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Device to plan; by default the one that ran out of memory, else the fullest, and of a folder all
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Rank to plan, of a folder; all by default
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Of an instance, the highest address that there is: whether a plan fits below it
    #[arg(long, value_name = "BYTES", value_parser = output::parse_bytes)]
    capacity: Option<u64>,
    #[command(flatten)]
    effort: EffortArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How to plan, and how hard to try.
#[derive(clap::Args, Clone, Copy)]
pub struct EffortArguments {
    /// Stop searching for a better plan after about this long
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    time_limit: Duration,
    /// Stop after so much work on each thread, whatever the time: the same plan however busy the machine is. A second of
    /// the time limit stands for 60,000,000
    #[arg(long, value_name = "UNITS", conflicts_with = "time_limit")]
    work_limit: Option<u64>,
    /// Threads; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Seed of everything random: the same input, seed and threads give the same plan
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no number of seconds, such as 0.5 or 60");
    let value: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(value).map_err(|_| wrong())
}

impl EffortArguments {
    /// The planner's options.
    pub fn options(self) -> SolveOptions {
        let usual = planning::usual_effort();
        SolveOptions {
            time_limit: self.time_limit,
            work_limit: self.work_limit,
            threads: self.threads.map_or(usual.threads, usize::from),
            seed: self.seed,
            ..usual
        }
    }
}

/// Runs `stalloc plan`.
pub fn run(args: &Args) -> Result<Ending, Error> {
    if args.input.is_dir() {
        args.folder()?;
        return Ok(Ending::Done);
    }
    match inputs::open(&args.input, &mut Terminal::new())? {
        Input::Recording(recording) => {
            input::keep(&args.input, args.output.as_deref())?;
            if args.capacity.is_some() {
                return Err(Error::message("--capacity is for instances; stalloc simulate has it for recordings"));
            }
            args.trace(&inputs::device(&args.input, recording, args.device, &mut Terminal::new())?)?;
            Ok(Ending::Done)
        }
        Input::Instance(instance) => args.instance(&instance),
    }
}

/// What Ctrl-C raises from now on: the best plan so far is the answer then.
fn stop() -> Result<Stop, Error> {
    let flag = stalloc_launcher::stop_flag();
    let flag = flag.map_err(|error| Error::message(format!("cannot listen to signals: {error}")))?;
    // Once for each command, which ends with the process.
    let flag: &'static std::sync::Arc<_> = Box::leak(Box::new(flag));
    Ok(Stop(flag))
}

impl Args {
    fn folder(&self) -> Result<(), Error> {
        let out = self.output.as_deref().unwrap_or(&self.input);
        let problem = |error| Error::message(format!("{}: no folder for plans: {error}", out.display()));
        std::fs::create_dir_all(out).map_err(problem)?;
        let which = (self.rank, self.device);
        let planned = planning::folder(&self.input, out, which, self.effort.options(), &mut Terminal::new())?;
        if self.json {
            return output::json(&serde_json::json!({"kind": "folder", "plans": planned}));
        }
        for first in planned.iter().filter(|one| one.same_as.is_none()) {
            let requests = output::count(first.summary.planned.requests);
            let peak = output::bytes(first.summary.planned_reserved);
            let efficiency = output::percent(first.summary.efficiency);
            let alike = planned.iter().filter(|one| one.same_as.as_ref() == Some(&first.plan)).count();
            let others = if alike > 0 { format!("; {alike} more share it") } else { String::new() };
            let path = first.plan.display();
            output::line(&format!("{path}: {requests} planned into {peak}, efficiency {efficiency}{others}"))?;
            for note in &first.summary.notes {
                output::line(&format!("  {note}"))?;
            }
        }
        output::next(&format!("stalloc run --plan {} -- COMMAND", out.display()), "serves the job from these plans")
    }

    fn instance(&self, instance: &InstanceTable) -> Result<Ending, Error> {
        let effort = SolveOptions { stop: Some(stop()?), enough: self.capacity.unwrap_or(0), ..self.effort.options() };
        let solved = planning::instance(&self.input, instance, &effort)?;
        let outcome =
            if self.capacity.is_some_and(|capacity| solved.peak > capacity) { Ending::No } else { Ending::Done };
        if let Some(path) = &self.output {
            output::whole_file(path, |out| instance.write(out, &solved.offsets))?;
        }
        if self.json {
            output::json(&solved)?;
            return Ok(outcome);
        }
        let proof = if solved.optimal { ", proven the least" } else { "" };
        output::line(&format!(
            "{} buffers: peak {}, {:.4} of the lower bound {}{proof}; {:.2} s",
            output::count(solved.buffers as u64),
            solved.peak,
            solved.ratio,
            solved.lower_bound,
            solved.seconds,
        ))?;
        if let Some(capacity) = self.capacity {
            output::line(&match capacity {
                _ if solved.peak <= capacity => format!("fits into {capacity}"),
                _ if solved.lower_bound > capacity => format!("does not fit into {capacity}, and no plan can"),
                _ => format!("no plan found that fits into {capacity}; a longer --time-limit may find one"),
            })?;
        }
        match &self.output {
            Some(path) => output::next(&format!("stalloc verify {}", path.display()), "checks the offsets"),
            None => output::next(&format!("stalloc plan {} -o solved.csv", self.input.display()), "keeps the offsets"),
        }?;
        Ok(outcome)
    }

    fn trace(&self, trace: &Trace) -> Result<(), Error> {
        let effort = SolveOptions { stop: Some(stop()?), ..self.effort.options() };
        let (plan, summary) = planning::trace(trace, effort, &mut Terminal::new())?;
        if let Some(path) = &self.output {
            stalloc_plan::write_as_named(path, &plan).map_err(|error| Error::message(error.to_string()))?;
        }
        if self.json {
            return output::json(&summary);
        }
        print(&summary)?;
        match &self.output {
            Some(path) => {
                output::line(&format!("\nwritten to {}", path.display()))?;
                let verify = format!("stalloc verify {} {}", path.display(), self.input.display());
                output::next(&verify, "checks it against the recording")
            }
            None => {
                output::line("\nnothing written")?;
                output::next(&format!("stalloc plan {} -o job.plan", self.input.display()), "keeps the plan")
            }
        }
    }
}

/// Prints what a plan promises.
pub fn print(summary: &PlanSummary) -> Result<(), Error> {
    for note in &summary.notes {
        output::line(&format!("  {note}"))?;
    }
    let mut table = Table::new(&["", "requests", "bytes", "of the bound"]);
    let planned = &summary.planned;
    let row = |name: &str, requests: u64, bytes: u64, share: String| {
        vec![name.to_owned(), output::count(requests), output::bytes(bytes), share]
    };
    table.row(row("planned", planned.requests, planned.peak, format!("{:.4}", planned.ratio)));
    table.row(row("without an offset, at most at once", summary.dynamic.requests, summary.dynamic.peak, String::new()));
    table.print()?;
    output::line(&format!(
        "\n  peak allocated {}, reserved under the plan {}: efficiency {}; planned in {:.2} s",
        output::bytes(summary.peak_allocated),
        output::bytes(summary.planned_reserved),
        output::percent(summary.efficiency),
        summary.seconds,
    ))
}
