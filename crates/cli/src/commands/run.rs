//! `stalloc run`: runs a training command on the planned allocator.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stalloc_jobs::refresh::{self, Wanted};
use stalloc_launcher::{Job, Purpose};
use stalloc_synthesizer::PlanSummary;

use crate::commands::plan;
use crate::commands::run_fit::{self, Decision};
use crate::commands::trace::{Answers, failed, ranks, stand_in};
use crate::error::{Ending, Error};
use crate::output;
use crate::progress::Terminal;

/// Arguments of `stalloc run`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc run -- python train.py                         nothing else is needed\n  \
                        stalloc run --plan plans -- torchrun train.py          keep what is learned for the next run\n  \
                        stalloc run --plan plans --frozen -- python train.py   follow the plans and learn nothing\n  \
                        stalloc run --fit -- python train.py                   make it fit where it does not\n  \
                        stalloc run --dry-run h100-80gb -- python train.py     the same with no GPU\n\n\
                        The script stays as it is. Its memory is served from one arena from the first request on, and\n\
                        steps that repeat exactly are learned while it trains. If stalloc cannot serve the job, it says so\n\
                        in one line and the job runs on PyTorch's own allocator."
)]
pub struct Args {
    /// Directory to start from and to keep what is learned in: plans (`rank<R>_dev<N>.plan`), and traces, which are planned
    /// first unless a plan there was made from them
    #[arg(long, value_name = "DIR")]
    plan: Option<PathBuf>,
    /// Follow the plans of --plan and learn nothing
    #[arg(long, requires = "plan")]
    frozen: bool,
    /// Take the arena's memory in one allocation, as RDMA registration and calls of cudaIpcGetMemHandle want it: as much as the plan needs and SIZE more
    /// (2GiB) for what is not in it; with neither a plan nor SIZE, 9/10 of what is free
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = output::parse_bytes)]
    solid: Option<u64>,
    /// Where the job does not fit the GPU, or SIZE, apply the cheapest set of levers that makes it fit, tried beforehand without the GPU
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["frozen", "world_size"])]
    fit: Option<String>,
    /// A lever that --fit may apply though it changes the numbers: autocast_bf16, weights_bf16
    #[arg(long, value_name = "LEVER", requires = "fit")]
    allow: Vec<String>,
    /// Choose among these levers alone, separated by commas: checkpoint,spill
    #[arg(long, value_name = "LEVER,LEVER...", requires = "fit", value_delimiter = ',')]
    only: Vec<String>,
    /// Print what --fit would apply, as the job's processes read it, and the folder of its plan; run nothing
    #[arg(long, requires = "fit", hide = true)]
    only_say: bool,
    /// Run with no GPU, on a stand-in for this one: h100-80gb, a100-80gb... Values are not computed
    #[arg(long, value_name = "GPU", num_args = 0..=1, default_missing_value = "")]
    dry_run: Option<String>,
    /// How many GPUs the stand-in has
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dry_run")]
    devices: u32,
    /// Run one rank of a job of W alone, its collectives doing nothing
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..=i64::from(stalloc_launcher::MOST_RANKS)))]
    world_size: Option<u32>,
    /// Which rank of --world-size
    #[arg(long, value_name = "R", requires = "world_size")]
    rank: Option<u32>,
    #[command(flatten)]
    answers: Answers,
    #[command(flatten)]
    effort: plan::EffortArguments,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `stalloc run`: becomes the command, unless that cannot be started at all.
pub fn run(args: &Args) -> Result<Ending, Error> {
    let rank = args.world_size.map(|world_size| ranks(world_size, vec![args.rank.unwrap_or(0)])).transpose()?;
    let rank = rank.and_then(|ranks| ranks.first().copied());
    if let Some(directory) = &args.plan {
        let own = rank.map(|rank| rank.rank).or_else(stalloc_launcher::rank_of_environment);
        let wanted = Wanted { folder: directory, out: directory, rank: own, frozen: args.frozen };
        refresh::folder(wanted, &args.effort.options(), &mut Terminal::new(), &mut say)?;
    }
    let mut job = job(args)?;
    if let Some(size) = &args.fit {
        let among = run_fit::among(&args.only, &args.allow)?;
        let plans = job.plans.as_deref();
        match run_fit::decide(size, among, args.dry_run.as_deref(), &args.command, &args.answers, plans)? {
            Decision::With(told, plans) => (job.fit, job.plans) = (Some(told), plans.or(job.plans)),
            Decision::AsItIs => {}
            Decision::Not(outcome) => return Ok(outcome),
        }
    }
    if args.only_say {
        output::line(job.fit.as_deref().unwrap_or(""))?;
        let plans = job.plans.filter(|_| job.fit.is_some()).unwrap_or_default();
        output::line(&plans.to_string_lossy())?;
        return Ok(Ending::Done);
    }
    if let Some(why) = stalloc_launcher::out_of_reach(job.command.words(), &job.package) {
        output::say(&why);
    }
    Err(failed(stalloc_launcher::replace(&job, rank.or_else(|| job.rank_of_environment()))))
}

fn job(args: &Args) -> Result<Job, Error> {
    let absolute =
        |directory: &PathBuf| std::path::absolute(directory).map_err(|source| Error::write(directory, source));
    Ok(Job {
        purpose: if args.frozen { Purpose::Follow } else { Purpose::Serve },
        directory: PathBuf::new(),
        solid: args.solid,
        fit: None,
        plans: args.plan.as_ref().map(absolute).transpose()?,
        package: stalloc_launcher::python_package().map_err(failed)?,
        dry_run: stand_in(args.dry_run.as_deref(), args.devices)?,
        command: args.command.iter().collect(),
        steps: None,
        stacks: None,
        answers: args.answers.answers.clone(),
        answers_file: args.answers.answers_file.clone(),
        launch: String::new(),
        says_progress: false,
    })
}

/// Says what was planned.
fn say(plan: &Path, summary: &PlanSummary) {
    output::say(&format!(
        "{}: {} planned into {}, efficiency {}",
        plan.display(),
        output::count(summary.planned.requests),
        output::bytes(summary.planned_reserved),
        output::percent(summary.efficiency),
    ));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::Cli;
    use crate::commands::Command;

    #[test]
    fn the_command_begins_at_its_first_word_and_keeps_its_own_options() {
        for dashes in [&["--"][..], &[]] {
            let own = ["torchrun", "--plan", "theirs", "train.py", "--", "-x", "--dry-run"];
            let typed = [&["stalloc", "run", "--plan", "ours"][..], dashes, &own[..]].concat();
            let Ok(Cli { command: Some(Command::Run(args)), .. }) = Cli::try_parse_from(&typed) else {
                panic!("{typed:?} is not accepted");
            };
            assert_eq!((args.plan, args.command), (Some("ours".into()), own.map(Into::into).to_vec()));
        }
        assert!(
            Cli::try_parse_from(["stalloc", "run", "--plna", "ours", "python"]).is_err(),
            "a misspelt option is none"
        );
    }
}
