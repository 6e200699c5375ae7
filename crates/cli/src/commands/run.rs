//! `stalloc run`: runs a training command on the planned allocator.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stalloc_launcher::{Job, Purpose};
use stalloc_plan::Plan;
use stalloc_trace::Input;

use crate::commands::plan;
use crate::commands::trace::{Answers, failed, ranks, stand_in};
use crate::error::{Error, Outcome};
use crate::input;
use crate::progress::Progress;

/// Arguments of `stalloc run`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc run -- python train.py                                 nothing else is needed\n  \
                        stalloc run --plan plans -- torchrun --nproc-per-node 8 train.py   keep what is learned for the next run\n  \
                        stalloc run --plan plans --frozen -- python train.py           follow the plans and learn nothing\n  \
                        stalloc run --dry-run h100-80gb -- python train.py             the same with no GPU\n\n\
                        The script stays as it is. Its memory is served from one arena from the first request on; steps that\n\
                        repeat exactly are learned while it trains. What does not fit costs a line, never the job."
)]
pub struct Args {
    /// Directory to start from and to keep what is learned in: plans (`rank<R>_dev<N>.plan`), and traces, which are planned
    /// first unless a plan there was made from them
    #[arg(long, value_name = "DIR")]
    plan: Option<PathBuf>,
    /// Follow the plans of --plan and learn nothing
    #[arg(long, requires = "plan")]
    frozen: bool,
    /// Run with no GPU, on a stand-in for this one: h100-80gb, a100-80gb... Values are not computed
    #[arg(long, value_name = "GPU")]
    dry_run: Option<String>,
    /// How many GPUs the stand-in has
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dry_run")]
    devices: u32,
    /// Run one rank of a job of W alone, its collectives doing nothing
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..))]
    world_size: Option<u32>,
    /// Which rank of --world-size
    #[arg(long, value_name = "R", requires = "world_size")]
    rank: Option<u32>,
    #[command(flatten)]
    answers: Answers,
    #[command(flatten)]
    effort: plan::Effort,
    /// The command, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `stalloc run`: becomes the command, unless that cannot be started at all.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    let rank = args.world_size.map(|world_size| ranks(world_size, vec![args.rank.unwrap_or(0)])).transpose()?;
    let rank = rank.and_then(|ranks| ranks.first().copied());
    if let Some(directory) = &args.plan {
        plan_directory(directory, args.frozen, args.effort)?;
    }
    let job = job(args)?;
    Err(failed(stalloc_launcher::replace(&job, rank.or_else(|| job.rank_of_environment()))))
}

fn job(args: &Args) -> Result<Job, Error> {
    let absolute =
        |directory: &PathBuf| std::path::absolute(directory).map_err(|source| Error::write(directory, source));
    Ok(Job {
        purpose: if args.frozen { Purpose::Follow } else { Purpose::Serve },
        directory: PathBuf::new(),
        plans: args.plan.as_ref().map(absolute).transpose()?,
        package: stalloc_launcher::python_package().map_err(failed)?,
        dry_run: stand_in(args.dry_run.as_deref(), args.devices)?,
        command: args.command.clone(),
        steps: None,
        stacks: None,
        answers: args.answers.answers.clone(),
        answers_file: args.answers.answers_file.clone(),
        launch: String::new(),
        says_progress: false,
    })
}

/// Plans every trace in a directory that the plan beside it was not made from. Whatever cannot be used there is said
/// and left: the command runs all the same.
///
/// # Errors
/// If the plans of a directory are to be followed alone and it holds nothing that was meant for us.
fn plan_directory(directory: &Path, frozen: bool, effort: plan::Effort) -> Result<(), Error> {
    let path = directory.display();
    if !directory.is_dir() && frozen {
        return Err(Error::message(format!(
            "{path}: no such directory; without --frozen, what is learned is kept there"
        )));
    }
    if !directory.exists() {
        return Ok(());
    }
    let files = match std::fs::read_dir(directory) {
        Ok(files) => files.filter_map(|file| Some(file.ok()?.path())),
        Err(error) => {
            eprintln!("stalloc: {path} cannot be read: {error}; the command runs without a plan");
            return Ok(());
        }
    };
    let is_meant = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "plan" || kind == "trace");
    let meant: Vec<PathBuf> = files.filter(is_meant).collect();
    for other in meant.iter().filter(|path| !path.is_file()) {
        eprintln!("stalloc: {} is not used: it is not a file", other.display());
    }
    let traces = stalloc_launcher::traces(directory).unwrap_or_default();
    if meant.is_empty() && traces.is_empty() && frozen {
        return Err(Error::message(format!(
            "{path} holds neither plans nor traces; without --frozen, what is learned is kept there"
        )));
    }
    plan_each(&traces, effort);
    Ok(())
}

/// Plans traces, each beside itself; a line for each that cannot be.
fn plan_each(traces: &[PathBuf], effort: plan::Effort) {
    for trace in traces {
        let out = trace.with_extension("plan");
        let existing = out.is_file().then(|| stalloc_plan::read(&out).ok()).flatten();
        let otherwise = if existing.is_some() { format!("; {} stays as it is", out.display()) } else { String::new() };
        if let Err(why) = plan_one(trace, &out, existing.as_ref(), effort) {
            eprintln!("stalloc: {} is not used: {why}{otherwise}", trace.display());
        }
    }
}

/// Plans a trace, unless the plan that there is was made from it.
fn plan_one(path: &Path, out: &Path, existing: Option<&Plan>, effort: plan::Effort) -> Result<(), Error> {
    let mut progress = Progress::new(format!("reading {}", path.display()));
    let read = stalloc_trace::open(path, &mut |done, total| progress.update(done, total));
    drop(progress);
    let Input::Recording(recording) = read.map_err(|error| Error::message(error.fault.to_string()))? else {
        return Err(Error::message("it is no recording"));
    };
    let trace = input::device(path, recording, None)?;
    if existing.is_some_and(|plan| plan.fingerprint == stalloc_plan::fingerprint(&trace)) {
        return Ok(());
    }
    if trace.requests.is_empty() {
        return Err(Error::message("it holds no requests"));
    }
    if existing.is_some() && (!stalloc_launcher::is_whole(path) || trace.metadata.contains_key("lost_events")) {
        return Err(Error::message("the recording was cut off"));
    }
    let (plan, summary) = plan::synthesize(&trace, effort)?;
    stalloc_plan::write(out, &plan).map_err(|error| Error::message(format!("its plan cannot be written: {error}")))?;
    eprintln!(
        "stalloc: {}: {} planned into {}, efficiency {}",
        out.display(),
        crate::output::count(summary.planned.requests),
        crate::output::bytes(summary.planned_reserved),
        crate::output::percent(summary.efficiency),
    );
    Ok(())
}
