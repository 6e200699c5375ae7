//! `stalloc fit`: what fits, tried without a GPU.

use stalloc_dryrun_setup::{Gpu, find_all};
use stalloc_jobs::fit::{
    self, ALLOCATORS, Candidate, CardVerdict, FailureKind, FitAnswer, FitsGpu, Frontier, Question, Variable, WorldSize,
};

use crate::commands::levers;
use crate::commands::trials::{Trials, happened, summary};
use crate::error::{Ending, Error};
use crate::output::{self, Table};
use crate::progress::Spinner;

/// Lines of a failed program that are shown below the answer; all that were kept where nothing ran.
const LINES_SHOWN: usize = 3;

/// Lines that do without what they are refused.
const SLOWER_SHOWN: usize = 3;

/// Arguments of `stalloc fit`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc fit --dry-run h100-80gb -- python train.py                         does it fit, and how much is left?\n  \
    stalloc fit --dry-run h100-80gb --vary MB=1..64 -- python train.py --micro-batch {MB}\n  \
    stalloc fit --dry-run a100-80gb,h200-141gb --vary SEQ=1024..65536:1024 --vary CKPT=full,none -- python train.py {SEQ} {CKPT}\n  \
    stalloc fit --dry-run h100-80gb --world-size 64 --vary MB=1..16 -- python pretrain.py --mb {MB}\n  \
    stalloc fit --dry-run a100-80gb --levers --goal 24GB -- python train.py    what would make it fit\n  \
    stalloc fit --dry-run sm=114,memory=80GiB,capability=9.0,name=mine -- python train.py\n\n\
    Each trial runs the command for a few steps on a stand-in GPU whose memory does not run out, and replays what it asked for\n\
    under PyTorch's allocator, expandable segments and stalloc with what the card leaves. What it writes to disk is written.\n\n\
    yes: fits even if CUDA, its libraries and NCCL take the most that is known; edge: only if they take the least; no: not then.\n\
    Exit status: 0 if something fits, 1 if nothing does, 2 if the command does not run or the question is invalid, 130 after Ctrl-C."
)]
pub struct Args {
    /// The GPUs to stand in for, separated by commas: h100-80gb, a100-80gb... or sm=132,memory=80GiB,capability=9.0,name=mine
    #[arg(long, value_name = "GPU[,GPU...]", required = true, num_args = 0..=1, default_missing_value = "")]
    dry_run: Vec<String>,
    /// What to try for {NAME} in the command: NAME=A..B searches the largest that fits (A..B:STEP in steps), NAME=A,B,C tries each;
    /// may be repeated
    #[arg(long, value_name = "NAME=VALUES")]
    vary: Vec<String>,
    /// How many ranks the job has, as a number or as lists multiplied ({TP}x{PP}x{DP}): each is run alone, its collectives doing nothing
    #[arg(long, value_name = "W")]
    world_size: Option<WorldSize>,
    /// Which ranks of --world-size to try; by default all of up to eight, else the first two, those at the quarters and the last
    #[arg(long, value_name = "R,R...", value_delimiter = ',', requires = "world_size")]
    ranks: Vec<u32>,
    /// How many GPUs each process has
    #[arg(long, value_name = "N", default_value_t = 1)]
    devices: u32,
    /// Say how much host memory each rank needs for `stalloc.sleep()` between steps
    #[arg(long)]
    colocated: bool,
    /// Find what would make it fit instead, as `stalloc levers` does with the same options
    #[arg(long, conflicts_with_all = ["ranks", "devices", "colocated"])]
    levers: bool,
    /// With --levers: the memory to fit into, as in 24GB; by default the GPU's
    #[arg(long, value_name = "SIZE", requires = "levers")]
    goal: Option<String>,
    /// With --levers: try these alone, separated by commas
    #[arg(long, value_name = "LEVER,LEVER...", value_delimiter = ',', requires = "levers")]
    only: Vec<String>,
    #[command(flatten)]
    trials: Trials,
}

/// Runs `stalloc fit`.
pub fn run(args: Args) -> Result<Ending, Error> {
    let message = |error: fit::Error| Error::message(error.to_string());
    if args.levers {
        return levers::run(as_levers(args)?);
    }
    output::check_folder(args.trials.output.as_deref())?;
    let mut gpus = Vec::new();
    for list in &args.dry_run {
        for gpu in find_all(list).map_err(|error| Error::message(error.to_string()))? {
            let is_new = !gpus.contains(&gpu);
            gpus.extend(is_new.then_some(gpu));
        }
    }
    let variables = args.vary.iter().map(|text| Variable::parse(text)).collect::<Result<_, _>>().map_err(message)?;
    let question = Question {
        command: args.trials.command.iter().collect(),
        gpus,
        devices: args.devices,
        variables,
        world_size: args.world_size,
        ranks: args.ranks,
        goal: None,
        searched: (0..ALLOCATORS.len()).collect(),
        at_once: args.trials.jobs,
        keeps: !args.trials.no_cache,
        setting: args.trials.setting()?,
    };
    let stop =
        stalloc_launcher::stop_flag().map_err(|error| Error::message(format!("cannot listen to signals: {error}")))?;
    let mut spinner = Spinner::new();
    let mut watch = |event: fit::FitEvent<'_>| match event {
        fit::FitEvent::Tick { running, done, oldest } => {
            let longest =
                oldest.map_or(String::new(), |(values, time)| format!(": {} for {} s", words(values), time.as_secs()));
            spinner.update(&format!("{done} trials done, {running} running{longest}"));
        }
        fit::FitEvent::Tried { gpu, values, tried, is_cached, .. } => {
            spinner.line(&format!("{} {}: {}", label(gpu), words(values), summary(tried, is_cached)));
        }
        fit::FitEvent::Levers { .. } => {}
    };
    let answer = fit::fit(&question, &mut watch, &stop).map_err(message)?;
    drop(spinner);
    if args.trials.json {
        output::json(&fit::json(&question, &answer))?;
    } else {
        print(&question, &answer)?;
        if args.colocated {
            print_asleep(&answer)?;
        }
        print_next(&question, &answer)?;
    }
    if let Some(path) = &args.trials.output {
        output::whole_file(path, |file| file.write_all(fit::page(&question, &answer).as_bytes()))?;
        output::say(&format!("wrote {}", path.display()));
    }
    if answer.is_interrupted {
        output::say("stopped; this is what was found so far");
        return Ok(Ending::Exit(130));
    }
    match answer.trouble {
        Some(fit::Trouble::NothingRan) => Err(Error::message(nothing_ran(&answer))),
        _ if answer.anything_fits() => Ok(Ending::Done),
        _ => Ok(Ending::No),
    }
}

/// The same question to `stalloc levers`.
fn as_levers(args: Args) -> Result<levers::Args, Error> {
    let not_so = || Error::message("--levers takes one GPU, at most one --vary, and a number as --world-size");
    let dry_run = args.dry_run.join(",");
    if find_all(&dry_run).is_ok_and(|gpus| gpus.len() > 1) || args.vary.len() > 1 {
        return Err(not_so());
    }
    let world_size = args.world_size.map(|size| size.of(&Vec::new()).ok_or_else(not_so));
    Ok(levers::Args {
        dry_run,
        goal: args.goal,
        vary: args.vary.into_iter().next(),
        world_size: world_size.transpose()?,
        only: args.only,
        trials: args.trials,
    })
}

/// A preset's name; of a described GPU the name that it was given.
fn label(gpu: &Gpu) -> &str {
    if gpu.name.contains('=') { gpu.product } else { gpu.name }
}

/// `MB=8 SEQ=4096`.
fn words(values: &fit::Assignment) -> String {
    match &values[..] {
        [] => "as it is".to_owned(),
        _ => values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
    }
}

/// Why there is no answer, with the program's last words.
fn nothing_ran(answer: &FitAnswer) -> String {
    let Some((candidate, (rank, failure))) = answer.candidates.iter().find_map(|c| Some((c, c.failure.as_ref()?)))
    else {
        return "nothing was tried".to_owned();
    };
    let of_rank = if *rank > 0 { format!(" on rank {rank}") } else { String::new() };
    let what = if candidate.values.is_empty() {
        "the command".to_owned()
    } else {
        format!("with {} the command", words(&candidate.values))
    };
    let text = match failure.kind {
        FailureKind::Refused => "was refused by the script".to_owned(),
        FailureKind::Failed => format!("failed with status {}", failure.status.unwrap_or(1)),
        _ => happened(failure),
    };
    let lines: String = failure.lines.iter().map(|line| format!("\n    {line}")).collect();
    format!("{what} {text}{of_rank}; nothing is known about its memory.{lines}")
}

fn print(question: &Question, answer: &FitAnswer) -> Result<(), Error> {
    for candidate in answer.candidates.iter().filter(|one| question.variables.is_empty() && one.failure.is_none()) {
        let of = if question.gpus.len() > 1 { format!("{}: ", label(&candidate.gpu)) } else { String::new() };
        output::line(&format!("{of}{}\n", yes_or_no(question, candidate)))?;
    }
    print_ranks(answer)?;
    for gpu in &question.gpus {
        let of_gpu: Vec<&Candidate> = answer.candidates.iter().filter(|candidate| candidate.gpu == *gpu).collect();
        let Some(shown) = of_gpu.iter().rev().find(|candidate| candidate.failure.is_none()) else { continue };
        output::line(&format!("{}: {}; of it outside PyTorch", gpu.product, output::bytes(gpu.total)))?;
        for part in &shown.outside.parts {
            output::line(&format!("    {part}"))?;
        }
        if question.variables.is_empty() {
            print_one(shown)?;
        } else {
            print_largest(question, answer, gpu)?;
            print_tried(&of_gpu)?;
        }
        for (values, refused) in
            answer.frontier.iter().filter(|row| row.gpu == *gpu).filter_map(|row| row.caught.as_ref())
        {
            let with = if values.is_empty() { String::new() } else { format!(" up to {}", words(values)) };
            output::line(&format!(
                "  it runs{with} under pytorch all the same: {} requests are refused and caught, as cuDNN does, which then takes a slower way",
                output::count(refused.iter().map(|one| one.count).sum())
            ))?;
            for one in refused.iter().take(SLOWER_SHOWN) {
                let site = one.site.as_deref().unwrap_or("a line that is not known");
                output::line(&format!(
                    "    {site}: {} of up to {}",
                    output::count(one.count),
                    output::bytes(one.most)
                ))?;
            }
        }
        output::line("")?;
    }
    if let Some(steps) = answer.candidates.iter().filter(|one| one.is_cut).map(|one| one.steps).max() {
        output::line(&format!(
            "Trials ended after {steps} steps: what comes then (an evaluation, a save, the end of the script) was not seen. More: --steps N."
        ))?;
    }
    if let Some(rising) = answer.candidates.iter().filter(|one| one.failure.is_none()).max_by_key(|one| one.rise)
        && let Some(rise) = rising.rise
    {
        let fitting = rising.verdicts.iter().filter(|verdict| verdict.fits == FitsGpu::Yes);
        output::line(&output::rising(rise, fitting.filter_map(|verdict| verdict.left).max()))?;
    }
    print_failures(answer)
}

/// The answer to a command without variables, in a sentence.
fn yes_or_no(question: &Question, candidate: &Candidate) -> String {
    const UNDER: [&str; 3] = ["", ", with expandable segments", ", under `stalloc run`"];
    let total = output::bytes(candidate.gpu.total);
    let needed = |verdict: &CardVerdict| verdict.needed.map_or("an unknown amount".to_owned(), output::bytes);
    let rising = if candidate.rise.is_some() { ", and what stays rises" } else { "" };
    let seen =
        if candidate.is_cut { format!(", in its first {} steps{rising}", candidate.steps) } else { String::new() };
    let guessed = if candidate.peak_if_none.is_some() { ", where guessed sizes hold" } else { "" };
    for (fits, word) in
        [(FitsGpu::Yes, "Yes"), (FitsGpu::Edge, "Only if CUDA and its libraries take the least that is known")]
    {
        let found = candidate.verdicts.iter().zip(UNDER).find(|(verdict, _)| verdict.fits == fits);
        if let Some((verdict, under)) = found {
            return format!("{word}{under}: {} of {total}{seen}{guessed}.", needed(verdict));
        }
    }
    let least = candidate.verdicts.iter().min_by_key(|verdict| verdict.needed.unwrap_or(u64::MAX));
    format!(
        "No: {} of {total}{seen}{guessed}; `stalloc levers --dry-run {} -- {}` says what would make it fit.",
        least.map_or("an unknown amount".to_owned(), needed),
        candidate.gpu.name,
        fit::substitute(&question.command, &candidate.values)
    )
}

fn print_ranks(answer: &FitAnswer) -> Result<(), Error> {
    // Combinations whose ranks are alike in the same way are named together.
    let mut worlds: Vec<(&Frontier, Vec<String>)> = Vec::new();
    for row in
        answer.frontier.iter().filter(|row| row.classes.iter().map(|class| class.members.len()).sum::<usize>() > 1)
    {
        let name = words(&row.fixed);
        match worlds.iter_mut().find(|(other, _)| other.world_size == row.world_size && other.classes == row.classes) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => worlds.push((row, vec![name])),
        }
    }
    for (row, names) in &worlds {
        let with = if worlds.len() > 1 { format!(" with {}", names.join("; ")) } else { String::new() };
        let mut tried: Vec<u32> = row.classes.iter().flat_map(|class| class.members.clone()).collect();
        tried.sort_unstable();
        let of = row.world_size.map_or(String::new(), |size| format!(" of {}", output::count(u64::from(size))));
        output::line(&format!("tried{with}: {}{of}", output::ranks(&tried)))?;
        for class in row.classes.iter().filter(|class| class.members.len() > 1) {
            output::line(&format!("  the same: {}", output::ranks(&class.members)))?;
        }
    }
    if worlds.is_empty() { Ok(()) } else { output::line("") }
}

/// A command without variables: yes or no.
fn print_one(candidate: &Candidate) -> Result<(), Error> {
    let mut table = Table::new(&heads("fits", candidate.ranks.len() > 1));
    for (kind, verdict) in ALLOCATORS.iter().zip(&candidate.verdicts) {
        let reserved = output::bytes_between(verdict.peak_reserved, verdict.peak_reserved_late);
        let mut row = vec![kind.name().to_owned(), fits(verdict), reserved];
        row.extend(rest(verdict, candidate.ranks.len() > 1));
        table.row(row);
    }
    output::line(&peak(candidate))?;
    table.print()?;
    let verdicts = candidate.verdicts.iter();
    output::why_a_range(verdicts.map(|verdict| (verdict.peak_reserved, verdict.peak_reserved_late)))
}

/// The largest job that fits, under the first allocator that it fits under; else how to see what it needs.
fn print_next(question: &Question, answer: &FitAnswer) -> Result<(), Error> {
    let ways = ["", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ", "stalloc run -- "];
    let fits = |candidate: &&Candidate| candidate.verdicts.iter().any(|verdict| verdict.fits == FitsGpu::Yes);
    let command = |values: &fit::Assignment| fit::substitute(&question.command, values);
    let largest = answer.candidates.iter().filter(fits).max_by_key(|candidate| candidate.peak_allocated);
    if let Some(largest) = largest {
        let way = largest.verdicts.iter().position(|verdict| verdict.fits == FitsGpu::Yes);
        let command = format!("{}{}", way.map_or("", |index| ways[index]), command(&largest.values));
        let margin = way.map_or_else(String::new, |index| margin(largest, &largest.verdicts[index]));
        let what = if largest.values.is_empty() { "fits" } else { "the largest that fits" };
        return output::next(&command, &format!("{what} {}{margin}", label(&largest.gpu)));
    }
    let smallest =
        answer.candidates.iter().filter(|tried| tried.failure.is_none()).min_by_key(|tried| tried.peak_allocated);
    match smallest {
        Some(tried) => {
            let gpu = tried.gpu.name;
            let row = answer.frontier.iter().find(|row| row.fixed.iter().all(|value| tried.values.contains(value)));
            let rank = row.and_then(|row| row.world_size).map_or(String::new(), |size| {
                format!(" --world-size {size} --rank {}", tried.fullest.map_or(0, |(rank, _)| rank))
            });
            let record = format!("stalloc trace --dry-run {gpu}{rank} -o traces -- {}", command(&tried.values));
            output::next(&record, "then `stalloc report traces`: who holds the memory")?;
            let run = format!("stalloc run --fit -- {}", command(&tried.values));
            output::next(&run, "applies the cheapest levers that make it fit")
        }
        None => Ok(()),
    }
}

/// What is left of a card at most, and what may take some of it: `; 190.0 MiB to spare, of which cuDNN's workspaces may take 130.0 MiB`.
fn margin(candidate: &Candidate, verdict: &CardVerdict) -> String {
    let Some(left) = verdict.left.and_then(|left| u64::try_from(left).ok()) else { return String::new() };
    let may = candidate.outside.parts.iter().map(|part| (&part.name, part.high - part.low)).filter(|&(_, may)| may > 0);
    let spare = left + may.clone().map(|(_, may)| may).sum::<u64>();
    let of_which: String =
        may.map(|(name, may)| format!(", of which {name} may take {}", output::bytes(may))).collect();
    format!("; {} to spare{of_which}", output::bytes(spare))
}

/// The largest value of each row of the frontier.
fn print_largest(question: &Question, answer: &FitAnswer, gpu: &Gpu) -> Result<(), Error> {
    let Some(searched) = question.variables.iter().position(|v| matches!(v.values, fit::Values::Range { .. })) else {
        return Ok(());
    };
    let name = &question.variables[searched].name;
    let has_ranks = answer.candidates.iter().any(|candidate| candidate.ranks.len() > 1);
    let mut reserved = Vec::new();
    for row in answer.frontier.iter().filter(|row| row.gpu == *gpu) {
        let with = if row.fixed.is_empty() { String::new() } else { format!(" with {}", words(&row.fixed)) };
        let so_far = if row.is_complete { "" } else { ", so far" };
        output::line(&format!("  the largest {name}{with}{so_far}"))?;
        let mut table = Table::new(&heads(name, has_ranks));
        for (index, kind) in ALLOCATORS.iter().enumerate() {
            let Some(values) = &row.largest[index] else {
                table.row(vec![kind.name().to_owned(), "none".to_owned()]);
                continue;
            };
            let more = if row.is_end[index] { " or more" } else { "" };
            let mut cells = vec![kind.name().to_owned(), format!("{}{more}", values[searched].1)];
            let found = answer.candidates.iter().find(|candidate| candidate.gpu == *gpu && candidate.values == *values);
            if let Some(verdict) = found.and_then(|candidate| candidate.verdicts.get(index)) {
                reserved.push((verdict.peak_reserved, verdict.peak_reserved_late));
                cells.push(output::bytes_between(verdict.peak_reserved, verdict.peak_reserved_late));
                cells.extend(rest(verdict, has_ranks));
            }
            table.row(cells);
        }
        table.print()?;
        if let Some((first, last)) = &row.open {
            let values = if first == last { first.clone() } else { format!("{first} to {last}") };
            output::line(&format!("  open: {values}; a larger value than the one above may fit"))?;
        }
        if row.is_unused {
            output::line(&format!("  every value made the same requests: does the command use {{{name}}}?"))?;
        }
    }
    output::why_a_range(reserved.into_iter())
}

/// The host memory that sleeping takes.
fn print_asleep(answer: &FitAnswer) -> Result<(), Error> {
    for candidate in answer.candidates.iter().filter(|one| one.failure.is_none()) {
        let needed = candidate.asleep.map_or("no step was seen".to_owned(), |asleep| {
            let [least, most] = [asleep.between_steps, asleep.at_step_end].map(output::bytes);
            let gradients = if least == most { String::new() } else { format!(", {most} while gradients live") };
            format!("{least} of page-locked host memory for each rank{gradients}")
        });
        output::line(&format!("asleep between steps, {}: {needed}", words(&candidate.values)))?;
    }
    Ok(())
}

/// Everything that was tried.
fn print_tried(candidates: &[&Candidate]) -> Result<(), Error> {
    let names = ALLOCATORS.map(|kind| kind.name());
    let has_ranks = candidates.iter().any(|candidate| candidate.ranks.len() > 1);
    let mut heads = vec!["tried", "peak allocated", names[0], names[1], names[2]];
    heads.extend(has_ranks.then_some("fullest rank"));
    let mut table = Table::new(&heads);
    for candidate in candidates {
        let mut row = vec![words(&candidate.values)];
        match &candidate.failure {
            Some(_) => row.push("did not run".to_owned()),
            None => {
                row.push(allocated(candidate));
                row.extend(candidate.verdicts.iter().map(|verdict| {
                    let left = verdict.left.map_or(String::new(), |left| format!(", {}", signed(left)));
                    format!("{}{left}", fits(verdict))
                }));
                row.extend(candidate.fullest.filter(|_| has_ranks).map(|(rank, _)| rank.to_string()));
            }
        }
        table.row(row);
    }
    output::line("  what was tried, with what is left or missing")?;
    table.print()
}

/// The peak, as a range where it hangs on guesses.
fn allocated(candidate: &Candidate) -> String {
    let peak = candidate.peak_allocated.unwrap_or(0);
    match candidate.peak_if_none {
        Some(least) => format!("guessed: {} to {}", output::bytes(least.min(peak)), output::bytes(least.max(peak))),
        None => output::bytes(peak),
    }
}

fn peak(candidate: &Candidate) -> String {
    let peak = allocated(candidate);
    let rank = match (candidate.ranks.len(), candidate.fullest) {
        (2.., Some((rank, device))) => format!(" on rank {rank}, device {device}"),
        _ => String::new(),
    };
    format!("  peak allocated {peak}{rank} in {} steps", candidate.steps)
}

fn fits(verdict: &CardVerdict) -> String {
    match verdict.fits {
        FitsGpu::Yes => "yes",
        FitsGpu::Edge => "edge",
        FitsGpu::No => "no",
    }
    .to_owned()
}

/// What the columns of an allocator's row are; of a job of ranks also the one that needs most.
fn heads(second: &str, has_ranks: bool) -> Vec<&str> {
    let mut heads = vec!["allocator", second, "peak reserved", "needed in all", "left", "smallest GPU"];
    heads.extend(has_ranks.then_some("needs most"));
    heads
}

fn rest(verdict: &CardVerdict, has_ranks: bool) -> Vec<String> {
    let mut cells = vec![
        verdict.needed.map_or("unknown".to_owned(), output::bytes),
        verdict.left.map_or(String::new(), signed),
        verdict.smallest_gpu.unwrap_or("none").to_owned(),
    ];
    cells.extend(has_ranks.then(|| format!("rank {}", verdict.rank.0)));
    cells
}

fn signed(bytes: i64) -> String {
    let size = output::bytes(bytes.unsigned_abs());
    if bytes < 0 { format!("-{size}") } else { size }
}

/// Values with which the command did not run, where it ran with others.
fn print_failures(answer: &FitAnswer) -> Result<(), Error> {
    if answer.trouble != Some(fit::Trouble::SomeFailed) {
        return Ok(());
    }
    for candidate in &answer.candidates {
        let Some((rank, failure)) = &candidate.failure else { continue };
        let of_rank = if *rank > 0 { format!(" on rank {rank}") } else { String::new() };
        output::line(&format!(
            "{} {}{of_rank}: {}",
            label(&candidate.gpu),
            words(&candidate.values),
            happened(failure)
        ))?;
        let start = failure.lines.len().saturating_sub(LINES_SHOWN);
        for line in &failure.lines[start..] {
            output::line(&format!("    {line}"))?;
        }
    }
    Ok(())
}
