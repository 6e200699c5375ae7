//! `stalloc verify`: the independent check.

use std::path::PathBuf;

use stalloc_plan::{Rectangle, Verdict, check_rectangles};
use stalloc_trace::{Input, Instance};

use crate::error::{Error, Outcome};
use crate::input;
use crate::output;

/// Arguments of `stalloc verify`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc verify job.plan                 is the plan consistent in itself?\n  \
                        stalloc verify job.plan job.pickle      ... and right for every request of this recording?\n  \
                        stalloc verify solved.csv               do the offsets of an instance overlap?\n\n\
                        Exit status: 0 if all is well, 1 if not, 2 if a file cannot be read.")]
pub struct Args {
    /// A plan, or a CSV instance with an offset column
    plan: PathBuf,
    /// The recording that the plan was made from, or another of the same program
    input: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `stalloc verify`.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    let verdict = if input::is_plan(&args.plan) { args.plan()? } else { args.instance()? };
    if args.json {
        output::json(&verdict)?;
    } else {
        args.print(&verdict)?;
    }
    Ok(if verdict.ok { Outcome::Done } else { Outcome::No })
}

impl Args {
    fn plan(&self) -> Result<Verdict, Error> {
        let plan = input::plan(&self.plan)?;
        let verdict = plan.check();
        let Some(path) = &self.input else { return Ok(verdict) };
        let trace = input::device(path, input::recording(path)?, Some(plan.device))?;
        Ok(verdict.and(plan.check_against(&trace)))
    }

    fn instance(&self) -> Result<Verdict, Error> {
        let path = self.plan.display();
        if self.input.is_some() {
            return Err(Error::message(format!("{path} is no plan; only a plan is checked against an INPUT")));
        }
        let Input::Instance(instance) = input::open(&self.plan)? else {
            return Err(Error::message(format!("{path} is a recording: verify takes a plan, or a CSV with offsets")));
        };
        rectangles(&instance).map(|rectangles| check_rectangles(&rectangles, None)).ok_or_else(|| {
            let missing = instance.rows.iter().filter(|row| row.offset.is_none()).count();
            let what = match missing == instance.rows.len() {
                true => "has no offsets".to_owned(),
                false => format!("has no offset in {missing} of its {} rows", instance.rows.len()),
            };
            Error::message(format!("{path} {what}; `stalloc plan {path} -o OUT.csv` adds them"))
        })
    }

    fn print(&self, verdict: &Verdict) -> Result<(), Error> {
        let checked = match &self.input {
            Some(input) => format!("{} against {}", self.plan.display(), input.display()),
            None => self.plan.display().to_string(),
        };
        for problem in &verdict.problems {
            output::line(&format!("  {problem}"))?;
        }
        if verdict.ok {
            return output::line(&format!("ok: {checked}, peak {}", output::bytes(verdict.peak)));
        }
        output::line(&format!(
            "WRONG: {checked}: {} overlaps, {} misaligned, {} out of bounds, {} unmatched",
            output::count(verdict.overlaps),
            output::count(verdict.misaligned),
            output::count(verdict.out_of_bounds),
            output::count(verdict.unmatched),
        ))
    }
}

/// The buffers of an instance at their offsets; `None` if one has none.
fn rectangles(instance: &Instance) -> Option<Vec<Rectangle>> {
    let rectangle = |row: &stalloc_trace::InstanceRow| {
        let (lower, upper, size, alignment) = (row.lower, row.upper, row.size, row.alignment);
        row.offset.map(|offset| Rectangle { lower, upper, size, alignment, offset })
    };
    instance.rows.iter().map(rectangle).collect()
}
