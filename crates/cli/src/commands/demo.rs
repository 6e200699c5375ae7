//! `stalloc demo`: the main job on a built-in trace.

use std::path::PathBuf;

use stalloc_jobs::planning;
use stalloc_jobs::simulating::{self, Replays};
use stalloc_planner::SolveOptions;
use stalloc_report::Report;
use stalloc_simulator::Kind;
use stalloc_trace::{Input, MEMORY_LIMIT};

use crate::commands::{plan, report, simulate};
use crate::error::{Ending, Error};
use crate::output;
use crate::progress::Terminal;

/// GPT-2 345M as Megatron trains it with a distributed optimizer and full recomputation: five steps of real PyTorch,
/// recorded with `stalloc trace --dry-run` (`examples/` says how).
const TRACE: &[u8] = include_bytes!("../../assets/demo.trace");

const ABOUT: &str = "GPT-2 345M in Megatron, distributed optimizer, full recomputation: five steps of real PyTorch";

/// What the planner may do, in its units of work: half a second, and the best plan is found in two thirds of it. A limit of time, or as many
/// threads as there are cores, would give other figures on other machines.
const PLANNER_WORK: u64 = 30_000_000;

/// Arguments of `stalloc demo`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  stalloc demo --out /tmp/demo     and open /tmp/demo/report.html")]
pub struct Args {
    /// Directory for the plan and the report
    #[arg(long, value_name = "DIR", default_value = "stalloc-demo")]
    out: PathBuf,
}

/// Runs `stalloc demo`.
pub fn run(args: &Args) -> Result<Ending, Error> {
    std::fs::create_dir_all(&args.out).map_err(|source| Error::write(&args.out, source))?;
    let Ok(Input::Recording(recording)) = stalloc_trace::read_bytes(TRACE, MEMORY_LIMIT) else {
        return Err(Error::message("the built-in trace cannot be read: this program is damaged, install it again"));
    };
    let Some(trace) = recording.traces.first() else {
        return Err(Error::message("the built-in trace is empty: this program is damaged, install it again"));
    };
    output::line(&format!("{ABOUT}\n\nThe plan"))?;
    let effort = SolveOptions { work_limit: Some(PLANNER_WORK), threads: 1, ..SolveOptions::default() };
    let (planned, summary) = planning::trace(trace, effort, &mut Terminal::new())?;
    plan::print(&summary)?;
    let path = args.out.join("demo.plan");
    stalloc_plan::write(&path, &planned).map_err(|error| Error::message(error.to_string()))?;

    let verdict = planned.check().and(planned.check_against(trace));
    let checked = if verdict.ok { "ok: no two tensors ever share an address" } else { "WRONG" };
    output::line(&format!("\nThe independent check\n  {checked}\n\nEvery allocator on the same requests"))?;
    let replays = Replays { plan: Some(planned), ..Replays::default() };
    simulate::print(&simulating::simulate(trace, &Kind::ALL, replays, &mut Terminal::new())?)?;

    let page = args.out.join("report.html");
    let html = Report::new(&[report::prepared("demo", recording)]).html();
    let html = html.map_err(|error| Error::message(error.to_string()))?;
    output::whole_file(&page, |file| file.write_all(html.as_bytes()))?;
    output::line(&format!("\nThe report: {}\nThe plan: {}", page.display(), path.display()))?;
    output::next(
        "stalloc trace --dry-run h100-80gb -o traces -- python train.py",
        "records a job of yours, with no GPU",
    )?;
    Ok(if verdict.ok { Ending::Done } else { Ending::No })
}
