//! `stalloc run`: runs a training command on the planned allocator.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stalloc_launcher::{Job, Purpose, Rank};
use stalloc_plan::Plan;
use stalloc_trace::Input;

use crate::commands::plan;
use crate::commands::trace::{Answers, failed, ranks, stand_in};
use crate::error::{Error, Outcome};
use crate::input;
use crate::progress::Progress;

/// Steps that `--learn` records: the first differs, and two alike show what repeats.
const LEARN_STEPS: u32 = 4;

/// Arguments of `stalloc run`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc run --learn -- python train.py                        record four steps, plan them, then run\n  \
                        stalloc run --plan plans -- torchrun --nproc-per-node 8 train.py\n  \
                        stalloc run --plan plans --dry-run h100-80gb -- python train.py   the same with no GPU\n\n\
                        The script stays as it is. A plan that does not fit costs one warning, never the job."
)]
pub struct Args {
    /// Directory with plans (`rank<R>_dev<N>.plan`); traces in it that no plan there was made from are planned first
    #[arg(long, value_name = "DIR", required_unless_present = "learn")]
    plan: Option<PathBuf>,
    /// Record four steps of the command and plan them first, into --plan DIR (by default ./stalloc-plans)
    #[arg(long)]
    learn: bool,
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
    let directory = args.plan.clone().unwrap_or_else(|| PathBuf::from("stalloc-plans"));
    let rank = args.world_size.map(|world_size| ranks(world_size, vec![args.rank.unwrap_or(0)])).transpose()?;
    let rank = rank.and_then(|ranks| ranks.first().copied());
    if args.learn {
        match stalloc_launcher::prepare(&directory) {
            Ok(launch) => {
                let ended = learn(args, &directory, rank, &launch)?;
                if ended != 0 {
                    eprintln!("stalloc: the command ended with status {ended} while it was recorded");
                    return Ok(Outcome::Exit(ended));
                }
                plan_each(&stalloc_launcher::traces_of(&directory, &launch).unwrap_or_default(), args.effort);
            }
            Err(error) => eprintln!("stalloc: nothing is recorded: {error}; the command runs without"),
        }
    } else {
        plan_directory(&directory, args.effort)?;
    }
    let job = job(args, &directory, Purpose::Serve, "")?;
    Err(failed(stalloc_launcher::replace(&job, rank.or_else(|| job.rank_of_environment()))))
}

/// Records the command once; its exit status.
fn learn(args: &Args, directory: &Path, rank: Option<Rank>, launch: &str) -> Result<u8, Error> {
    eprintln!("stalloc: recording {LEARN_STEPS} steps into {}", directory.display());
    let job = job(args, directory, Purpose::Record, launch)?;
    let rank = rank.or_else(|| job.rank_of_environment());
    let ended = stalloc_launcher::run(&job, &[rank], 1, false, &mut |_, _| {}).map_err(failed)?;
    Ok(ended.first().map_or(0, |process| process.code))
}

fn job(args: &Args, directory: &Path, purpose: Purpose, launch: &str) -> Result<Job, Error> {
    Ok(Job {
        purpose,
        directory: std::path::absolute(directory).map_err(|source| Error::write(directory, source))?,
        package: stalloc_launcher::python_package().map_err(failed)?,
        dry_run: stand_in(args.dry_run.as_deref(), args.devices)?,
        command: args.command.clone(),
        steps: (purpose == Purpose::Record).then_some(LEARN_STEPS),
        stacks: None,
        answers: args.answers.answers.clone(),
        answers_file: args.answers.answers_file.clone(),
        launch: launch.to_owned(),
        says_progress: false,
    })
}

/// Plans every trace in a directory that the plan beside it was not made from. Whatever cannot be used there is said
/// and left: the command runs all the same.
///
/// # Errors
/// If there is nothing in it that was meant for us: the directory is another one, probably.
fn plan_directory(directory: &Path, effort: plan::Effort) -> Result<(), Error> {
    let path = directory.display();
    if !directory.is_dir() {
        return Err(Error::message(format!(
            "{path}: no such directory; make plans with `stalloc plan`, or use --learn"
        )));
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
    if meant.is_empty() && traces.is_empty() {
        return Err(Error::message(format!(
            "{path} holds neither plans nor traces; use --learn, or `stalloc trace -o {path}`"
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
