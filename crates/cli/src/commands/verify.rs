//! `stalloc verify`: the independent check.

use std::path::PathBuf;

use stalloc_jobs::inputs;
use stalloc_jobs::verifying::verify;
use stalloc_plan::Findings;

use crate::error::{Ending, Error};
use crate::input;
use crate::output;
use crate::progress::Terminal;

/// Arguments of `stalloc verify`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc verify job.plan                 is the plan consistent in itself?\n  \
                        stalloc verify job.plan job.pickle      ... and right for every request of this recording?\n  \
                        stalloc verify solved.csv               do the offsets of an instance overlap?\n\n\
                        Exit status: 0 if all is well, 1 if not, 2 if a file cannot be read.")]
pub struct Args {
    /// A plan, or a CSV instance with an offset column
    #[arg(value_parser = input::parser())]
    plan: PathBuf,
    /// The recording that the plan was made from, or another of the same program
    #[arg(value_parser = input::parser())]
    input: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `stalloc verify`.
pub fn run(args: &Args) -> Result<Ending, Error> {
    let findings = verify(&args.plan, args.input.as_deref(), &mut Terminal::new())?;
    if args.json {
        output::json(&findings)?;
    } else {
        args.print(&findings)?;
    }
    Ok(if findings.ok { Ending::Done } else { Ending::No })
}

impl Args {
    /// What a right plan is good for; a CSV instance is at its end.
    fn print_next(&self) -> Result<(), Error> {
        match &self.input {
            _ if !inputs::is_plan(&self.plan) => Ok(()),
            Some(input) => {
                let simulate = format!("stalloc simulate {} --plan {}", input.display(), self.plan.display());
                output::next(&simulate, "what every allocator makes of the recording")
            }
            None => {
                let verify = format!("stalloc verify {} TRACE", self.plan.display());
                output::next(&verify, "checks it against the recording that it was made from")
            }
        }
    }

    fn print(&self, findings: &Findings) -> Result<(), Error> {
        let checked = match &self.input {
            Some(input) => format!("{} against {}", self.plan.display(), input.display()),
            None => self.plan.display().to_string(),
        };
        for problem in &findings.problems {
            output::line(&format!("  {problem}"))?;
        }
        if findings.ok {
            output::line(&format!("ok: {checked}, peak {}", output::bytes(findings.peak)))?;
            return self.print_next();
        }
        output::line(&format!(
            "WRONG: {checked}: {} overlaps, {} misaligned, {} out of bounds, {} unmatched",
            output::count(findings.overlaps),
            output::count(findings.misaligned),
            output::count(findings.out_of_bounds),
            output::count(findings.unmatched),
        ))
    }
}
