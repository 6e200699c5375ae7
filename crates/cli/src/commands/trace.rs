//! `stalloc trace`: runs a training command and records one trace per process and device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Serialize;
use stalloc_dryrun_setup::DryRun;
use stalloc_jobs::recorded::{self, HostReadSite, Summary};
use stalloc_launcher::{Ended, Error as LaunchError, Job, Purpose, Rank};

use crate::error::{Ending, Error};
use crate::output::{self, Table};
use crate::progress::{DelayedBar, Terminal};

/// Lines of a call stack that are shown.
const FRAMES_SHOWN: usize = 3;
/// Places of the program that are shown.
const PLACES_SHOWN: usize = 8;

/// Run a training command and record what it allocates: one trace per process and device
/// (`DIR/rank<R>_dev<N>.trace`). Without a GPU, add --dry-run.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  stalloc trace --dry-run h100-80gb --steps 3 -o traces -- python train.py\n  \
    stalloc trace -o traces -- torchrun --nproc-per-node 8 train.py\n  \
    stalloc trace --dry-run h200-141gb --world-size 1024 --ranks 0,8 -o out -- python pretrain.py")]
pub struct Args {
    /// Directory for the traces; made if missing. Each replaces the one of an earlier run with its rank and device
    #[arg(short, long, value_name = "DIR", default_value = "stalloc-traces")]
    output: PathBuf,
    /// Run with no GPU, on a stand-in for this one: h100-80gb, a100-80gb... Values are not computed
    #[arg(long, value_name = "GPU", num_args = 0..=1, default_missing_value = "")]
    dry_run: Option<String>,
    /// How many GPUs the stand-in has
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dry_run")]
    devices: u32,
    /// End the program after so many training steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Record all call stacks until so many steps are done, then those of what lives at a new peak; 0: none
    #[arg(long, value_name = "N")]
    stacks: Option<u32>,
    /// Run one rank of a job of W alone, its collectives doing nothing
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..=i64::from(stalloc_launcher::MOST_RANKS)))]
    world_size: Option<u32>,
    /// Which rank of --world-size
    #[arg(long, value_name = "R", requires = "world_size", conflicts_with = "ranks")]
    rank: Option<u32>,
    /// Which ranks of --world-size, several at a time; all: every one, those that are alike stored once
    #[arg(long, value_name = "R,R...|all", value_parser = chosen, requires = "world_size")]
    ranks: Option<Chosen>,
    #[command(flatten)]
    answers: Answers,
    /// Say after the program's steps how far it is, one line a second at most; on a terminal this is so anyway
    #[arg(long)]
    progress: bool,
    /// Print one JSON object; the command's own output goes to standard error
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The ranks that are asked for.
#[derive(Clone)]
enum Chosen {
    All,
    These(Vec<u32>),
}

fn chosen(text: &str) -> Result<Chosen, String> {
    if text == "all" {
        return Ok(Chosen::All);
    }
    let rank = |rank: &str| rank.trim().parse().map_err(|_| format!("'{rank}' is no rank: write 0,7 or all"));
    text.split(',').map(rank).collect::<Result<_, _>>().map(Chosen::These)
}

/// What a dry run tells the program in place of values that it does not compute.
#[derive(ClapArgs, Clone)]
pub struct Answers {
    /// Answer a value that the program reads back at a line of its code, as train.py:31=1.0; may be repeated
    #[arg(long = "answer", value_name = "FILE:LINE=VALUE", requires = "dry_run")]
    pub answers: Vec<String>,
    /// A JSON file of answers: {"train.py:31": 1.0, "moe.py:7": [3, 5]}
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    pub answers_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct TraceOutput<'a> {
    directory: &'a Path,
    exit: u8,
    traces: &'a [Summary],
}

/// Runs it.
pub fn run(args: Args) -> Result<Ending, Error> {
    let stores_once = matches!(args.ranks, Some(Chosen::All));
    let wanted = match args.ranks {
        Some(Chosen::All) if args.world_size > Some(stalloc_launcher::MOST_RANKS_RUN) => {
            let most = output::count(stalloc_launcher::MOST_RANKS_RUN.into());
            return Err(Error::message(format!("--ranks all runs at most {most} ranks: name some, as in --ranks 0,7")));
        }
        Some(Chosen::All) => (0..args.world_size.unwrap_or(1)).collect(),
        Some(Chosen::These(ranks)) => ranks,
        None => vec![args.rank.unwrap_or(0)],
    };
    let ranks = args.world_size.map(|world_size| ranks(world_size, wanted)).transpose()?;
    let launch = stalloc_launcher::prepare(&args.output).map_err(failed)?;
    // Several ranks write logs, and a bar says how many are done.
    let several = ranks.as_ref().is_some_and(|ranks| ranks.len() > 1);
    let is_watched = !args.json && !several && std::io::stderr().is_terminal();
    let job = Job {
        purpose: Purpose::Record,
        directory: std::path::absolute(&args.output).map_err(|source| Error::write(&args.output, source))?,
        solid: None,
        fit: None,
        plans: None,
        package: stalloc_launcher::python_package().map_err(failed)?,
        dry_run: stand_in(args.dry_run.as_deref(), args.devices)?,
        command: args.command.into_iter().collect(),
        steps: args.steps,
        stacks: args.stacks,
        answers: args.answers.answers,
        answers_file: args.answers.answers_file,
        launch,
        says_progress: args.progress || is_watched,
    };
    let ranks = match ranks {
        Some(ranks) => ranks.into_iter().map(Some).collect(),
        None => vec![job.rank_of_environment()],
    };
    if let Some(why) = stalloc_launcher::out_of_reach(job.command.words(), &job.package) {
        output::say(&why);
    }
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut progress = DelayedBar::new("recording");
    let mut watch = |_running: usize, ended: usize| {
        if several {
            progress.update(ended as u64, ranks.len() as u64);
        }
    };
    let ended = stalloc_launcher::run(&job, &ranks, at_once, args.json, &mut watch).map_err(failed)?;
    let mut summaries = recorded::of_launch(&job.directory, &job.launch, &mut Terminal::new())?;
    if ended.iter().all(|process| process.code == 0) && summaries.iter().any(Summary::is_guessed) {
        if !args.json {
            output::say(
                "sizes hang on values that are not computed: running once more, with the least that they can be",
            );
        }
        try_fewest(&job, &ranks, &mut summaries)?;
    }
    finish(&job, &ended, &summaries, args.json, stores_once)
}

/// Runs the job once more with no element chosen where it is guessed how many are, and notes what it needs then.
fn try_fewest(job: &Job, ranks: &[Option<Rank>], summaries: &mut [Summary]) -> Result<(), Error> {
    let folder = stalloc_common::PrivateFolder::passing().map_err(|error| Error::message(error.to_string()))?;
    let directory = folder.path().join("traces");
    let launch = stalloc_launcher::prepare(&directory).map_err(failed)?;
    let dry_run = job.dry_run.clone().map(DryRun::with_fewest_chosen);
    let fewest = Job { dry_run, directory, launch, says_progress: false, ..job.clone() };
    let stop = stalloc_launcher::stop_flag().map_err(|source| Error::message(source.to_string()))?;
    for rank in ranks {
        let mut process = fewest.process(*rank).map_err(failed)?;
        let log = folder.path().join("output.log");
        stalloc_launcher::run_in_background(&mut process, &log, Duration::MAX, &stop).map_err(failed)?;
    }
    let others = recorded::of_launch(&fewest.directory, &fewest.launch, &mut Terminal::new())?;
    for summary in summaries.iter_mut().filter(|summary| summary.is_guessed()) {
        let other = others.iter().find(|other| (other.rank, other.device) == (summary.rank, summary.device));
        summary.peak_if_none = other.map(|other| other.peak_allocated);
    }
    Ok(())
}

/// The GPU to stand in for, if one is named.
pub fn stand_in(gpu: Option<&str>, devices: u32) -> Result<Option<DryRun>, Error> {
    gpu.map(|gpu| DryRun::new(gpu, devices)).transpose().map_err(|error| failed(error.into()))
}

/// A command that could not be run, in a sentence.
pub fn failed(error: LaunchError) -> Error {
    Error::message(error.to_string())
}

/// The ranks of a job of `world_size` to run alone.
pub fn ranks(world_size: u32, mut wanted: Vec<u32>) -> Result<Vec<Rank>, Error> {
    wanted.sort_unstable();
    wanted.dedup();
    match wanted.iter().find(|&&rank| rank >= world_size) {
        Some(rank) => {
            Err(Error::message(format!("rank {rank} of {world_size}: ranks are counted from 0 to {}", world_size - 1)))
        }
        None => Ok(wanted.into_iter().map(|rank| Rank { rank, world_size }).collect()),
    }
}

/// Says how it went.
fn finish(job: &Job, ended: &[Ended], summaries: &[Summary], json: bool, stores_once: bool) -> Result<Ending, Error> {
    if stores_once {
        recorded::store_once(&job.directory, summaries);
    }
    let exit = ended.iter().map(|process| process.code).find(|&code| code != 0).unwrap_or(0);
    if json {
        output::json(&TraceOutput { directory: &job.directory, exit, traces: summaries })?;
    } else if !summaries.is_empty() {
        print(&job.directory, summaries)?;
    }
    for process in ended.iter().filter(|process| process.code != 0) {
        let rank = process.rank.map_or(String::new(), |rank| format!(" of rank {}", rank.rank));
        let log = process.output.as_ref().map_or(String::new(), |path| format!("; see {}", path.display()));
        output::say(&format!("the command{rank} ended with status {}{log}", process.code));
    }
    if exit != 0 {
        return Ok(Ending::Exit(exit));
    }
    if summaries.is_empty() {
        let hint = if job.dry_run.is_some() { "" } else { "; on a machine without one, add --dry-run h100-80gb" };
        return Err(Error::message(format!(
            "nothing was recorded: unless a line above says why, the command allocated no memory of a CUDA device \
             through PyTorch{hint}"
        )));
    }
    let lost: u64 = summaries.iter().map(|summary| summary.lost_events).sum();
    if lost > 0 {
        output::say(&format!(
            "the recording is not complete: {} events could not be written, so the traces end before them; make room and record again",
            output::count(lost)
        ));
        return Ok(Ending::No);
    }
    Ok(Ending::Done)
}

fn print(directory: &Path, summaries: &[Summary]) -> Result<(), Error> {
    output::line(&format!("recorded in {}", directory.display()))?;
    let mut table = Table::new(&["trace", "events", "requests", "steps", "peak allocated", "peak reserved", ""]);
    for summary in summaries.iter().filter(|summary| summary.same_as.is_none()) {
        let alike = summaries.iter().filter(|other| other.same_as.as_ref() == Some(&summary.file));
        let alike: Vec<u32> = alike.map(|other| other.rank).collect();
        table.row(vec![
            summary.file.clone(),
            output::count(summary.events),
            output::count(summary.requests),
            output::count(summary.steps),
            output::bytes(summary.peak_allocated),
            summary.peak_reserved.map_or("unknown".into(), output::bytes),
            if alike.is_empty() { String::new() } else { format!("the same on {}", output::ranks(&alike)) },
        ]);
    }
    table.print()?;
    let differing: Vec<&Summary> = summaries.iter().filter(|summary| summary.same_as.is_none()).collect();
    if let Some(most) = differing.iter().max_by_key(|summary| summary.peak_allocated).filter(|_| differing.len() > 1) {
        output::line(&format!("most is needed by {}: {}", most.file, output::bytes(most.peak_allocated)))?;
    }
    // Ranks that read the same are told of once.
    for (at, summary) in differing.iter().enumerate() {
        if differing[..at].iter().all(|other| other.host_reads != summary.host_reads) {
            let alike = differing[at + 1..].iter().filter(|other| other.host_reads == summary.host_reads);
            print_reads(summary, &alike.map(|other| other.rank).collect::<Vec<_>>())?;
        }
    }
    output::next(&format!("stalloc report {}", directory.display()), "who holds the memory, and what would need less")
}

fn print_reads(summary: &Summary, alike: &[u32]) -> Result<(), Error> {
    let reads: u64 = summary.host_reads.iter().map(|place| place.count).sum();
    if reads == 0 {
        return Ok(());
    }
    let alike = if alike.is_empty() { String::new() } else { format!(" (the same on {})", output::ranks(alike)) };
    output::line(&format!(
        "{}{alike}: the program read {} values from the device that a dry run does not compute: {}",
        summary.file,
        output::count(reads),
        read_as(&summary.host_reads)
    ))?;
    print_guesses(summary)?;
    let others = summary.host_reads.iter().filter(|read| read.guessed.is_none());
    let (deciding, harmless): (Vec<_>, Vec<_>) = others.partition(|read| read.may_change_memory);
    if !deciding.is_empty() {
        output::line(
            "  what may decide about memory (a yes or no, a length, a count), read as zeros; --answer gives another value:",
        )?;
    }
    for HostReadSite { count, bytes, stack, .. } in deciding.iter().take(PLACES_SHOWN) {
        output::line(&format!("  {} times, {}", output::count(*count), output::bytes(*bytes)))?;
        for frame in stack.iter().take(FRAMES_SHOWN) {
            output::line(&format!("    {frame}"))?;
        }
    }
    let more = deciding.len().saturating_sub(PLACES_SHOWN);
    if more > 0 {
        output::line(&format!("  and at {more} more places"))?;
    }
    if !harmless.is_empty() {
        output::line(&format!("  harmless: {}", places(&harmless)))?;
    }
    Ok(())
}

/// What decided a size with nothing known of it, and what to type where the user knows more.
fn print_guesses(summary: &Summary) -> Result<(), Error> {
    if !summary.is_guessed() {
        return Ok(());
    }
    let range = summary.peak_if_none.map_or(String::new(), |low| {
        let (low, high) = (low.min(summary.peak_allocated), low.max(summary.peak_allocated));
        format!(": the peak is {} to {}", output::bytes(low), output::bytes(high))
    });
    output::line(&format!(
        "  guessed, and sizes hang on it{range}; all elements count as chosen, a GPU chooses fewer:"
    ))?;
    let guesses = summary.host_reads.iter().filter_map(|read| Some((read, read.guessed?)));
    for (read, most) in guesses.take(PLACES_SHOWN) {
        let own = read.stack.iter().find(|frame| !frame.contains("/site-packages/")).or(read.stack.first());
        let place = own.map_or("a thread without Python".to_owned(), |frame| short(frame));
        output::line(&format!("    {place}: {0}, of 0 to {0}; --answer {place}={most} or fewer", output::count(most)))?;
    }
    Ok(())
}

/// Where values were read, in one line: `train.py:31, train.py:40 and 3 more places`.
fn places(reads: &[&HostReadSite]) -> String {
    let named: Vec<String> = reads.iter().filter_map(|read| read.stack.first()).map(|frame| short(frame)).collect();
    let shown = named.iter().take(PLACES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match reads.len() - named.len().min(PLACES_SHOWN) {
        0 => shown,
        more if shown.is_empty() => format!("{more} places"),
        more => format!("{shown} and {more} more places"),
    }
}

/// `FILE:LINE` of `/path/FILE:LINE in FUNCTION`.
fn short(frame: &str) -> String {
    let place = frame.split(" in ").next().unwrap_or(frame);
    place.rsplit('/').next().unwrap_or(place).to_owned()
}

/// What a program saw in place of values: `zeros: 9; answered: 3 (packed sequences: 1, by the user: 2)`.
fn read_as(reads: &[HostReadSite]) -> String {
    let (mut zeros, mut answered) = (0, BTreeMap::<&str, u64>::new());
    for read in reads {
        match &read.answer {
            Some(_) if read.guessed.is_some() => *answered.entry("guessed").or_default() += read.count,
            Some(answer) => *answered.entry(answer).or_default() += read.count,
            None => zeros += read.count,
        }
    }
    let all: u64 = answered.values().sum();
    let by: Vec<_> = answered.iter().map(|(answer, count)| format!("{answer}: {}", output::count(*count))).collect();
    match (zeros, all) {
        (zeros, 0) => format!("zeros: {}", output::count(zeros)),
        (zeros, all) => {
            format!("zeros: {}; answered: {} ({})", output::count(zeros), output::count(all), by.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_answers_are_told_apart() {
        let read = |count, answer: Option<&str>| HostReadSite {
            count,
            bytes: 4 * count,
            stack: Vec::new(),
            answer: answer.map(str::to_owned),
            may_change_memory: answer.is_none(),
            guessed: None,
        };
        assert_eq!(read_as(&[read(1200, None), read(1, None)]), "zeros: 1,201");
        let reads = [read(7, None), read(2, Some("packed sequences")), read(1, Some("by the user"))];
        assert_eq!(read_as(&reads), "zeros: 7; answered: 3 (by the user: 1, packed sequences: 2)");
        assert_eq!(read_as(&reads[1..2]), "zeros: 0; answered: 2 (packed sequences: 2)");
    }

    #[test]
    fn harmless_reads_are_named_in_one_line() {
        let read = |frames: &[&str]| HostReadSite {
            count: 1,
            bytes: 4,
            stack: frames.iter().map(|&frame| frame.to_owned()).collect(),
            answer: None,
            may_change_memory: false,
            guessed: None,
        };
        let reads =
            [read(&["/a/train.py:31 in step", "/a/train.py:7 in main"]), read(&["train.py:40 in log"]), read(&[])];
        let shown = |count: usize| places(&reads[..count].iter().collect::<Vec<_>>());
        assert_eq!(shown(2), "train.py:31, train.py:40");
        assert_eq!(shown(3), "train.py:31, train.py:40 and 1 more places");
        let many: Vec<HostReadSite> = (0..10).map(|line| read(&[&format!("a.py:{line} in f")])).collect();
        assert!(places(&many.iter().collect::<Vec<_>>()).ends_with("a.py:7 and 2 more places"));
        assert_eq!(places(&[&reads[2]]), "1 places");
    }
}
