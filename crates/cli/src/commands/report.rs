//! `stalloc report`: why a job ran out of memory, in the terminal; with -o the page, and the same figures in other forms.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use stalloc_jobs::Watch;
use stalloc_jobs::inputs::{self, AlikeTraces};
use stalloc_report::{Report, ReportInput, Screen, prepare};
use stalloc_trace::Recording;

use crate::commands::ranks::Ranks;
use crate::error::{Ending, Error};
use crate::input;
use crate::output;
use crate::progress::Terminal;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc report job.pickle                                 the answer in the terminal\n  \
                        stalloc report traces --rank 3                            of a folder of `stalloc trace`\n  \
                        stalloc report job.pickle --open                          the page, in a browser\n  \
                        stalloc report before.pickle after.pickle -o report.html  and compare the two\n  \
                        stalloc report job.pickle --snapshot planned.pickle       the plan, for PyTorch's memory_viz\n\n\
                        Two lines in the script, before the model is built, leave a snapshot and its report when memory runs out:\n  \
                        import stalloc\n  stalloc.on_out_of_memory(\"reports\")"
)]
pub struct Args {
    /// Snapshots, traces, mem_logs or folders of traces; the first is compared with each of the others
    #[arg(required = true, value_parser = input::parser())]
    inputs: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Only this device
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Only this rank, of a folder
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Print the report's figures as one JSON object
    #[arg(long)]
    json: bool,
    /// Print the answer in about ten lines
    #[arg(long, conflicts_with = "json")]
    summary: bool,
    /// Write the two main pictures of the first device as SVG
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Write the two main pictures of the first device as PNG
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Write what the plan would have done as a PyTorch memory snapshot, for memory_viz
    #[arg(long, value_name = "OUT.pickle")]
    snapshot: Option<PathBuf>,
}

/// The figures of a report, with those of the job where it is a folder of several ranks.
#[derive(Serialize)]
struct WithRanks<'a> {
    #[serde(flatten)]
    figures: &'a stalloc_report::Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<&'a Ranks>,
}

/// Reads, plans and replays once; writes whatever was asked for.
pub fn run(args: &Args) -> Result<Ending, Error> {
    for input in &args.inputs {
        let outputs = [&args.output, &args.svg, &args.png, &args.snapshot];
        outputs.into_iter().try_for_each(|output| input::keep(input, output.as_deref()))?;
    }
    let read = args.inputs.iter().map(|path| read(path, args)).collect::<Result<Vec<_>, Error>>()?;
    let (inputs, kinds): (Vec<ReportInput>, Vec<Option<Vec<AlikeTraces>>>) = read.into_iter().unzip();
    let report = Report::new(&inputs);
    let first = report.figures().inputs.first().zip(kinds.first().and_then(Option::as_ref));
    let ranks = first.and_then(|(figures, kinds)| Ranks::of(kinds, &figures.devices));
    if let Some(failed) = ranks.as_ref().and_then(Ranks::failed).filter(|_| !args.json) {
        output::line(&failed)?;
    }
    if args.json {
        output::json(&WithRanks { figures: report.figures(), ranks: ranks.as_ref() })?;
    } else if args.summary {
        output::line(report.summary(screen().width).trim_end_matches('\n'))?;
    } else {
        output::line(report.text(screen()).trim_end_matches('\n'))?;
        if let Some(ranks) = &ranks {
            ranks.print()?;
        }
    }
    let page = match (&args.output, args.open) {
        (None, true) => {
            let made = stalloc_common::temporary_file("stalloc-report-", ".html");
            Some(made.map_err(|error| Error::write(&std::env::temp_dir(), error))?)
        }
        (path, _) => path.clone(),
    };
    write(page.as_deref(), || report.html().map(String::into_bytes))?;
    write(args.svg.as_deref(), || report.svg().map(String::into_bytes))?;
    write(args.png.as_deref(), || report.png())?;
    if !args.json && !args.summary {
        next(args, page.as_deref())?;
    }
    if let Some(page) = page.filter(|_| args.open) {
        open(&page);
    }
    // Last, for an input without a history has everything but a plan.
    write(args.snapshot.as_deref(), || report.snapshot())?;
    Ok(Ending::Done)
}

/// The size of the terminal; where there is none, COLUMNS says the width, else it is one which shows a good part.
fn screen() -> Screen {
    let size = terminal_size::terminal_size();
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    size.map_or_else(
        || Screen { width: columns().unwrap_or(120), height: 48 },
        |(width, height)| Screen { width: usize::from(width.0), height: usize::from(height.0) },
    )
}

/// Names what to type next.
fn next(args: &Args, page: Option<&Path>) -> Result<(), Error> {
    if let Some(page) = page.filter(|_| !args.open) {
        return output::line(&format!("\nNext: open {} in a browser", page.display()));
    }
    if page.is_none() {
        let mut names: Vec<String> = args.inputs.iter().map(|path| path.display().to_string()).collect();
        names.extend(args.rank.map(|rank| format!("--rank {rank}")));
        names.extend(args.device.map(|device| format!("--device {device}")));
        return output::line(&format!(
            "\nNext: stalloc report {} --open     (flame graph, curves and map in a browser)",
            names.join(" ")
        ));
    }
    Ok(())
}

/// Opens a page in a browser, as far as this machine has one.
fn open(page: &Path) {
    let mut names: Vec<String> = std::env::var("BROWSER").ok().into_iter().collect();
    names.extend(["xdg-open", "open", "wslview"].map(str::to_owned));
    let started = names.iter().any(|name| {
        let silent = || (Stdio::null(), Stdio::null());
        let (out, err) = silent();
        Command::new(name).arg(page).stdin(Stdio::null()).stdout(out).stderr(err).spawn().is_ok()
    });
    if !started {
        output::say(&format!("no browser was found here: open {} yourself", page.display()));
    }
}

/// Writes what `make` makes, if there is a path.
fn write(path: Option<&Path>, make: impl FnOnce() -> Result<Vec<u8>, stalloc_report::Error>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let bytes = make().map_err(|error| Error::message(error.to_string()))?;
    output::whole_file(path, |file| file.write_all(&bytes))?;
    output::say(&format!("wrote {}", path.display()));
    Ok(())
}

fn read(path: &Path, args: &Args) -> Result<(ReportInput, Option<Vec<AlikeTraces>>), Error> {
    let terminal = &mut Terminal::new();
    // Of a folder every rank: which one ran out of memory is part of the answer.
    let (mut recording, mut kinds) = match args.rank {
        None if path.is_dir() => inputs::of_all_ranks(path, terminal).map(|(all, kinds)| (all, Some(kinds)))?,
        Some(_) if path.is_dir() => (inputs::of_rank(path, args.rank, terminal)?, None),
        _ => (inputs::recording(path, terminal)?, None),
    };
    let wanted = |trace: &stalloc_trace::Trace| {
        let rank = trace.metadata.get("rank").and_then(|rank| rank.parse().ok());
        let is_rank = path.is_dir() || args.rank.is_none_or(|wanted| rank == Some(wanted));
        args.device.is_none_or(|device| trace.device == device) && is_rank
    };
    if (args.device.is_some() || args.rank.is_some()) && !recording.traces.iter().any(wanted) {
        let (rank, device) =
            (args.rank.map(|rank| format!(" rank {rank}")), args.device.map(|n| format!(" device {n}")));
        return Err(Error::message(format!(
            "{} has no{}{}: leave --rank and --device out to see what it holds",
            path.display(),
            rank.unwrap_or_default(),
            device.unwrap_or_default()
        )));
    }
    recording.traces.retain(wanted);
    if let Some(kinds) = &mut kinds {
        kinds.retain(|kind| args.device.is_none_or(|device| kind.device == device));
    }
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok((prepared(&name, recording), kinds))
}

/// Plans and replays every device of a recording, with progress.
pub fn prepared(name: &str, recording: Recording) -> ReportInput {
    let mut terminal = Terminal::on(name);
    prepare(name, recording, &mut |what, done, total| terminal.progress(what, done, total))
}
