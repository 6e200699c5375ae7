//! `stalloc report`: one HTML file, and the same figures and pictures in other forms.

use std::path::{Path, PathBuf};

use stalloc_report::{Input, Report, prepare};

use crate::error::{Error, Outcome};
use crate::output;
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Snapshots or traces; the first is compared with each of the others.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// The report to write.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print the report's figures as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Reads, plans and replays once; writes whatever was asked for.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    if args.output.is_none() && !args.json {
        return Err(Error::message("nothing to write: name the report with -o FILE.html, or ask for --json"));
    }
    let inputs = args.inputs.iter().map(|path| read(path)).collect::<Result<Vec<Input>, Error>>()?;
    let report = Report::new(&inputs);
    if let Some(path) = &args.output {
        let html = report.html().map_err(|error| Error::message(error.to_string()))?;
        std::fs::write(path, html).map_err(|error| Error::write(path, error))?;
        eprintln!("wrote {}", path.display());
    }
    if args.json {
        output::json(report.figures())?;
    }
    Ok(Outcome::Done)
}

fn read(path: &Path) -> Result<Input, Error> {
    let mut bar = Progress::new(format!("reading {}", path.display()));
    let input = stalloc_trace::open(path, &mut |done, total| bar.update(done, total))
        .map_err(|error| Error::message(error.to_string()))?;
    let stalloc_trace::Input::Recording(recording) = input else {
        return Err(Error::message(format!(
            "{}: an instance has no allocators to report on; plan it with `stalloc plan`",
            path.display()
        )));
    };
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(prepare(&name, recording, &mut |_| {}))
}
