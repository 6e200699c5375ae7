//! `stalloc report`: one HTML file, and the same figures and pictures in other forms.

use std::path::{Path, PathBuf};

use stalloc_jobs::{Watch, inputs};
use stalloc_report::{Input, Report, prepare};
use stalloc_trace::Recording;

use crate::error::{Error, Outcome};
use crate::output;
use crate::progress::Terminal;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc report job.pickle -o report.html                  open it in a browser\n  \
                        stalloc report before.pickle after.pickle -o report.html  and compare the two\n  \
                        stalloc report job.pickle --snapshot planned.pickle       the plan, for PyTorch's memory_viz"
)]
pub struct Args {
    /// Snapshots, traces or mem_logs; the first is compared with each of the others
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// The report to write
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print the report's figures as one JSON object
    #[arg(long)]
    json: bool,
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

/// Reads, plans and replays once; writes whatever was asked for.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    let named = [&args.output, &args.svg, &args.png, &args.snapshot];
    if named.iter().all(|path| path.is_none()) && !args.json {
        return Err(Error::message("nothing to write: name the report with -o FILE.html, or ask for --json"));
    }
    let inputs = args.inputs.iter().map(|path| read(path)).collect::<Result<Vec<Input>, Error>>()?;
    let report = Report::new(&inputs);
    write(args.output.as_deref(), || report.html().map(String::into_bytes))?;
    write(args.svg.as_deref(), || report.svg().map(String::into_bytes))?;
    write(args.png.as_deref(), || report.png())?;
    if args.json {
        output::json(report.figures())?;
    }
    // Last, for an input without a history has everything but a plan.
    write(args.snapshot.as_deref(), || report.snapshot())?;
    Ok(Outcome::Done)
}

/// Writes what `make` makes, if there is a path.
fn write(path: Option<&Path>, make: impl FnOnce() -> Result<Vec<u8>, stalloc_report::Error>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let bytes = make().map_err(|error| Error::message(error.to_string()))?;
    output::whole_file(path, |file| file.write_all(&bytes))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn read(path: &Path) -> Result<Input, Error> {
    let recording = inputs::recording(path, &mut Terminal::new())?;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(prepared(&name, recording))
}

/// Plans and replays every device of a recording, with progress.
pub fn prepared(name: &str, recording: Recording) -> Input {
    let mut terminal = Terminal::on(name);
    prepare(name, recording, &mut |what, done, total| terminal.progress(what, done, total))
}
