//! `stalloc levers`: what would make a job fit, tried without a GPU.

use stalloc_common::CommandLine;
use stalloc_dryrun_setup::find;
use stalloc_jobs::fit::{self, FailureKind, Variable};
use stalloc_jobs::levers::{self, Answer, FoundLever, LeverFigures, LeverQuestion, Row};

use crate::commands::trials::{Trials, happened, summary};
use crate::error::{Ending, Error};
use crate::output::{self, Table};
use crate::progress::Spinner;

/// Arguments of `stalloc levers`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc levers --dry-run h100-80gb -- python train.py                 what each saves\n  \
    stalloc levers --dry-run a100-80gb --goal 24GB -- python train.py     the cheapest set that fits\n  \
    stalloc levers --dry-run h100-80gb --vary BATCH=1..64 -- python train.py --batch {BATCH}\n  \
    stalloc levers --dry-run h100-80gb -o levers.html -- python train.py  who holds the peak with each\n\n\
    The script runs for a few steps as it is, and once with each lever, on a stand-in GPU whose\n\
    memory does not run out. Levers are applied from outside; the script stays as it is. What it\n\
    writes to disk is written.\n\n\
    Exit status: 0 if the script fits or a set of levers makes it fit, 1 if none does, 2 if the\n\
    command does not run or the question is invalid, 130 after Ctrl-C, which prints what was found."
)]
pub struct Args {
    /// The GPU to stand in for: h100-80gb, a100-80gb... or sm=132,memory=80GiB,capability=9.0,name=mine
    #[arg(long, value_name = "GPU", num_args = 0..=1, default_missing_value = "")]
    pub dry_run: String,
    /// The memory to fit into, as in 24GB; by default the GPU's
    #[arg(long, value_name = "SIZE")]
    pub goal: Option<String>,
    /// Search the largest value that fits with each lever, for {NAME} in the command: NAME=A..B, or NAME=A..B:STEP
    #[arg(long, value_name = "NAME=A..B")]
    pub vary: Option<String>,
    /// Run rank 0 of a script of N ranks, as torchrun would, alone
    #[arg(long, value_name = "N")]
    pub world_size: Option<u32>,
    /// Try these alone, separated by commas: checkpoint,foreach_off; as_it_is: none of them
    #[arg(long, value_name = "LEVER,LEVER...", value_delimiter = ',')]
    pub only: Vec<String>,
    #[command(flatten)]
    pub trials: Trials,
}

/// Runs `stalloc levers`.
pub fn run(args: Args) -> Result<Ending, Error> {
    let message = |error: fit::Error| Error::message(error.to_string());
    if args.trials.steps < 2 {
        return Err(Error::message("--steps: levers are tried with 2 or more: the first makes the optimizer's states"));
    }
    output::check_folder(args.trials.output.as_deref())?;
    let gpu = find(&args.dry_run).map_err(|error| Error::message(error.to_string()))?;
    let goal = |text: &String| output::parse_memory(text).map_err(|why| Error::message(format!("--goal: {why}")));
    let variables = args.vary.iter().map(|text| Variable::parse(text)).collect::<Result<_, _>>().map_err(message)?;
    let question = LeverQuestion {
        fit: fit::Question {
            command: args.trials.command.iter().collect(),
            gpus: vec![gpu],
            devices: 1,
            variables,
            world_size: None,
            ranks: vec![0],
            goal: args.goal.as_ref().map(goal).transpose()?,
            searched: vec![levers::OURS],
            at_once: args.trials.jobs,
            keeps: !args.trials.no_cache,
            setting: args.trials.setting()?,
        },
        world_size: args.world_size,
        only: args.only,
        only_if_needed: false,
    };
    let stop =
        stalloc_launcher::stop_flag().map_err(|error| Error::message(format!("cannot listen to signals: {error}")))?;
    let mut spinner = Spinner::new();
    let answer = levers::levers(&question, &mut watching(&mut spinner), &stop).map_err(message)?;
    drop(spinner);
    if answer.is_interrupted {
        output::say("stopped; this is what was found so far");
    } else if let Err(failure) = &answer.base.outcome {
        let lines: String = failure.lines.iter().map(|line| format!("\n    {line}")).collect();
        return Err(Error::message(format!("the command {}; no lever was tried{lines}", happened(failure))));
    }
    say_rising(&answer);
    if args.trials.json {
        output::json(&levers::json(&answer))?;
    } else {
        print(&answer, &question.fit.command)?;
    }
    if let Some(path) = &args.trials.output {
        output::whole_file(path, |file| file.write_all(levers::page(&question.fit.command, &answer).as_bytes()))?;
        output::say(&format!("wrote {}", path.display()));
    }
    Ok(match &answer.combination {
        _ if answer.is_interrupted => Ending::Exit(130),
        Some(combination) if combination.figures.fits => Ending::Done,
        _ => Ending::No,
    })
}

/// Trials as they end, on a line each, and how many are done.
pub fn watching(spinner: &mut Spinner) -> impl FnMut(&'static str, fit::FitEvent<'_>) {
    move |stage, event| match event {
        fit::FitEvent::Tick { running, done, .. } => {
            spinner.update(&format!("{stage}: {done} trials done, {running} running"));
        }
        fit::FitEvent::Levers { trials, needed, goal } => {
            let fits = if needed.is_some_and(|needed| needed <= goal) { "fits" } else { "does not fit" };
            let needed = needed.map_or("an unknown amount".to_owned(), output::bytes);
            spinner.line(&format!("It {fits} as it is: {needed} of {}. Levers to try: {trials}.", output::bytes(goal)));
        }
        fit::FitEvent::Tried { levers, values, tried, is_cached, .. } => {
            let mut words: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            words.push(if levers.is_empty() { "as it is".to_owned() } else { names(levers) });
            spinner.line(&format!("{}: {}", words.join(" "), summary(tried, is_cached)));
        }
    }
}

/// Says so where the script as it is needs more with each step.
pub fn say_rising(answer: &Answer) {
    if let Some(rise) = answer.base.outcome.as_ref().ok().and_then(|base| base.rise) {
        output::say(&output::rising(rise, None));
    }
}

/// The names of levers, without what they are told.
fn names(levers: &[String]) -> String {
    levers.iter().map(|lever| lever.split(':').next().unwrap_or(lever)).collect::<Vec<_>>().join(" + ")
}

fn print(answer: &Answer, command: &CommandLine) -> Result<(), Error> {
    let Ok(base) = &answer.base.outcome else { return Ok(()) };
    let at: String = answer.at.iter().map(|(name, value)| format!(" with {name}={value}")).collect();
    let goal = output::bytes(answer.goal);
    if let Some(verdict) = verdict(answer) {
        output::line(&format!("{verdict}\n"))?;
    }
    output::line(&format!("{}{at}: to fit into {goal}", answer.gpu.product))?;
    let searched = answer.at.first().map(|(name, _)| name.as_str());
    let mut heads =
        vec!["lever", "peak allocated", "saves", "reserved", "fits", "a step", "to and from host", "numbers"];
    heads.extend(searched.map(|_| "largest"));
    let mut table = Table::new(&heads);
    table.row(row(answer, "as it is", &answer.base, base));
    // What saves most first.
    let mut ran: Vec<(&Row, &LeverFigures)> =
        answer.rows.iter().filter_map(|row| Some((row, row.outcome.as_ref().ok()?))).collect();
    ran.sort_by_key(|(_, figures)| figures.peak_allocated);
    for (one, figures) in &ran {
        let name = one.lever.as_ref().map_or("", |lever| lever.name.as_str());
        table.row(row(answer, name, one, figures));
    }
    table.print()?;
    if base.step_us.is_some() {
        output::line("\na step: by the dry run's clock, from operations, bytes and the GPU's data sheet")?;
    }
    if let Some(own) = own(answer) {
        output::line(&format!("\n{own}"))?;
    }
    print_not(answer)?;
    let saving = ran.iter().filter(|(_, figures)| figures.peak_allocated < base.peak_allocated);
    for lever in saving.filter_map(|(row, _)| row.lever.as_ref()) {
        output::line(&format!("\n{}: {}", lever.name, lever.what))?;
        print_code(lever)?;
    }
    print_combination(answer, command)
}

fn print_code(lever: &FoundLever) -> Result<(), Error> {
    let is_new = ["before ", "after ", "nowhere"].iter().any(|kind| lever.r#where.starts_with(kind));
    if !lever.r#where.is_empty() {
        output::line(&format!("  {}{}:", if is_new { "" } else { "in place of " }, lever.r#where))?;
    }
    lever.how.lines().try_for_each(|line| output::line(&format!("    {line}")))
}

fn row(answer: &Answer, name: &str, row: &Row, figures: &LeverFigures) -> Vec<String> {
    let peak = answer.base.outcome.as_ref().map_or(0, |base| base.peak_allocated);
    let saves = if figures.peak_allocated > peak {
        format!("-{}", output::bytes(figures.peak_allocated - peak))
    } else {
        output::bytes(peak - figures.peak_allocated)
    };
    let mut cells = vec![
        name.to_owned(),
        output::bytes(figures.peak_allocated),
        if row.lever.is_none() { String::new() } else { saves },
        figures.peak_reserved.last().copied().map_or(String::new(), output::bytes),
        if figures.fits { "yes" } else { "no" }.to_owned(),
        step(answer, figures, row.lever.is_some()),
        match answer.extra_host_bytes(figures) {
            _ if row.lever.is_none() => String::new(),
            Some(bytes) => output::bytes(bytes.max(0).unsigned_abs()),
            None => "unknown".to_owned(),
        },
        row.lever.as_ref().map_or(String::new(), |lever| lever.numerics.clone()),
    ];
    if !answer.at.is_empty() {
        let more = if row.is_end { " or more" } else { "" };
        // A lever that saves nothing is not searched.
        let none = if figures.peak_allocated > peak { "" } else { "none" };
        cells.push(row.largest.map_or(none.to_owned(), |largest| format!("{largest}{more}")));
    }
    cells
}

/// How long a step takes, and how much longer than without a lever: `391.0 ms, +2.8 %`.
pub fn step(answer: &Answer, figures: &LeverFigures, is_lever: bool) -> String {
    let base = answer.base.outcome.as_ref().ok().and_then(|base| base.step_us);
    let (Some(step), Some(base)) = (answer.step_us(figures), base) else { return "unknown".to_owned() };
    let ms =
        if step < 10_000 { format!("{:.2} ms", step as f64 / 1e3) } else { format!("{:.1} ms", step as f64 / 1e3) };
    if !is_lever || base == 0 {
        return ms;
    }
    let share = 100.0 * (step as f64 / base as f64 - 1.0);
    if share.abs() < 0.05 { format!("{ms}, as without") } else { format!("{ms}, {share:+.1} %") }
}

/// What the script saves by itself, where checkpointing each block, or what else there is about saved tensors, saves more than twice as much.
pub fn own(answer: &Answer) -> Option<String> {
    let peak = |row: &Row| row.outcome.as_ref().ok().map(|figures| figures.peak_allocated);
    let rows = || answer.rows.iter().filter_map(|row| Some((row.lever.as_ref()?, peak(row)?)));
    let (own, without) = rows().find(|(lever, _)| lever.name == levers::WITHOUT_OWN)?;
    let is_alike = |lever: &FoundLever| lever.group.contains("activations") || lever.group == "copies";
    let (best, least) =
        rows().filter(|(lever, _)| is_alike(lever)).min_by_key(|(lever, peak)| (lever.name != "checkpoint", *peak))?;
    let [saved, all] = [peak(&answer.base)?, least].map(|peak| without.saturating_sub(peak));
    let of = format!("{} of the {} that {} saves", output::bytes(saved), output::bytes(all), best.name);
    (saved < all / 2).then(|| format!("{} saves {of}", own.what))
}

/// Levers that were not tried, and those that the script does not run with.
fn print_not(answer: &Answer) -> Result<(), Error> {
    let failed: Vec<_> =
        answer.rows.iter().filter_map(|row| Some((row.lever.as_ref()?, row.outcome.as_ref().err()?))).collect();
    if answer.skipped.is_empty() && failed.is_empty() {
        return Ok(());
    }
    output::line("\nno figures:")?;
    for lever in &answer.skipped {
        output::line(&format!("  {}: {}", lever.name, lever.why_not.as_deref().unwrap_or("not tried")))?;
    }
    for (lever, failure) in failed {
        // A message may have several lines, of which the first has the error's name.
        let error = failure.lines.iter().rfind(|line| line.contains("Error: ")).or(failure.lines.last());
        let said = match failure.kind {
            FailureKind::Failed => error.cloned().unwrap_or_default(),
            _ => happened(failure),
        };
        output::line(&format!("  {}: the script does not run with it: {said}", lever.name))?;
    }
    Ok(())
}

/// The answer in a sentence; none where trials were stopped before there is one.
fn verdict(answer: &Answer) -> Option<String> {
    let Some(combination) = &answer.combination else {
        return (!answer.is_interrupted).then(|| "No set of these levers makes it fit.".to_owned());
    };
    let needed = combination.figures.needed.map_or("an unknown amount".to_owned(), output::bytes);
    let goal = output::bytes(answer.goal);
    let names: Vec<&str> = combination.levers.iter().map(|lever| lever.name.as_str()).collect();
    let names = names.join(" + ");
    Some(match (combination.levers.is_empty(), combination.figures.fits) {
        (true, true) => format!("It fits as it is: {needed} of {goal}."),
        (_, true) => format!("The cheapest set that fits: {names}; {needed} of {goal}."),
        (true, false) => format!("No set of these levers makes it fit; as it is it needs {needed} of {goal}."),
        (false, false) => {
            format!("No set of these levers makes it fit; nearest: {names}, which needs {needed} of {goal}.")
        }
    })
}

fn print_combination(answer: &Answer, command: &CommandLine) -> Result<(), Error> {
    let Some(combination) = answer.combination.as_ref().filter(|one| !one.levers.is_empty()) else { return Ok(()) };
    output::line("\nthe lines of that set:")?;
    combination.levers.iter().try_for_each(print_code)?;
    let is_applied = |lever: &FoundLever| levers::FROM_OUTSIDE.contains(&lever.name.as_str());
    if combination.figures.fits && combination.levers.iter().all(is_applied) {
        let run = format!("stalloc run --fit={}B -- {}", answer.goal, fit::substitute(command, &answer.at));
        output::next(&run, "applies the cheapest set by itself")?;
    }
    Ok(())
}
