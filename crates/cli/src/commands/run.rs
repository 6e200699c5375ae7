//! `stalloc run`: runs a training command on the planned allocator.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stalloc_launcher::{Job, Purpose};
use stalloc_trace::Input;

use crate::commands::plan;
use crate::commands::trace::{failed, stand_in};
use crate::error::{Error, Outcome};
use crate::input;

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
    /// Directory with plans (`rank<R>_dev<N>.plan`); traces in it that have no plan of theirs are planned first
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
    #[command(flatten)]
    effort: plan::Effort,
    /// The command, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `stalloc run`.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    let directory = args.plan.clone().unwrap_or_else(|| PathBuf::from("stalloc-plans"));
    if args.learn {
        stalloc_launcher::clear(&directory).map_err(failed)?;
        eprintln!("stalloc: recording {LEARN_STEPS} steps into {}", directory.display());
        let ended = start(args, &directory, Purpose::Record)?;
        if ended != 0 {
            eprintln!("stalloc: the command ended with status {ended} while it was recorded");
            return Ok(Outcome::Exit(ended));
        }
    }
    plan_directory(&directory, args.effort, args.learn)?;
    Ok(match start(args, &directory, Purpose::Serve)? {
        0 => Outcome::Done,
        code => Outcome::Exit(code),
    })
}

/// Runs the command once, in one process of ours, and returns its exit status.
fn start(args: &Args, directory: &Path, purpose: Purpose) -> Result<u8, Error> {
    let job = Job {
        purpose,
        directory: std::path::absolute(directory).map_err(|source| Error::write(directory, source))?,
        package: stalloc_launcher::python_package().map_err(failed)?,
        dry_run: stand_in(args.dry_run.as_deref(), args.devices)?,
        command: args.command.clone(),
        steps: (purpose == Purpose::Record).then_some(LEARN_STEPS),
        stacks: None,
        answers: Vec::new(),
        answers_file: None,
        says_progress: false,
    };
    let rank = job.rank_of_environment();
    let ended = stalloc_launcher::run(&job, &[rank], 1, false, &mut |_, _| {}).map_err(failed)?;
    Ok(ended.first().map_or(0, |process| process.code))
}

/// Whether a trace has a plan that was made from it: one that is not older than it, and that this build can follow.
fn is_current(plan: &Path, trace: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    time(plan).is_some_and(|made| time(trace).is_none_or(|recorded| recorded <= made))
        && stalloc_plan::read(plan).is_ok()
}

/// Plans every trace in a directory that has no current plan beside it (or each, if `again`).
fn plan_directory(directory: &Path, effort: plan::Effort, again: bool) -> Result<(), Error> {
    if !directory.is_dir() {
        let path = directory.display();
        return Err(Error::message(format!(
            "{path}: no such directory; make plans with `stalloc plan`, or use --learn"
        )));
    }
    let mut plans = 0;
    for path in stalloc_launcher::traces(directory).map_err(failed)? {
        let out = path.with_extension("plan");
        plans += 1;
        if !again && is_current(&out, &path) {
            continue;
        }
        let Input::Recording(recording) = input::open(&path)? else { continue };
        let trace = input::device(&path, recording, None)?;
        let (plan, summary) = plan::synthesize(&trace, effort)?;
        stalloc_plan::write(&out, &plan).map_err(|error| Error::message(error.to_string()))?;
        eprintln!(
            "stalloc: {}: {} planned into {}, efficiency {}",
            out.display(),
            crate::output::count(summary.planned.requests),
            crate::output::bytes(summary.planned_reserved),
            crate::output::percent(summary.efficiency),
        );
    }
    let has_plans = || std::fs::read_dir(directory).is_ok_and(|mut files| files.any(|file| is_plan(file.ok())));
    if plans == 0 && !has_plans() {
        let path = directory.display();
        return Err(Error::message(format!(
            "{path} holds neither plans nor traces; use --learn, or `stalloc trace -o {path}`"
        )));
    }
    Ok(())
}

fn is_plan(file: Option<std::fs::DirEntry>) -> bool {
    file.is_some_and(|file| file.path().extension().is_some_and(|extension| extension == "plan"))
}
