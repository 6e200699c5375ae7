//! `stalloc simulate`: what each allocator makes of a recording.

use std::path::PathBuf;

use stalloc_jobs::inputs;
use stalloc_jobs::simulating::{Replays, simulate};
use stalloc_simulator::{AllocatorComparison, Kind};

use crate::error::{Ending, Error};
use crate::input;
use crate::output::{self, Table};
use crate::progress::Terminal;

/// Arguments of `stalloc simulate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc simulate job.pickle\n  \
                        stalloc simulate job.pickle --allocator pytorch --allocator stalloc\n  \
                        stalloc simulate later.trace --plan job.plan    a plan on steps that it was not made from\n  \
                        stalloc simulate job.pickle --capacity 24GiB    would it fit a smaller GPU?\n  \
                        stalloc simulate job.pickle --smallest          the smallest GPU under each allocator\n\n\
                        stalloc-open is our arena with no plan at all; stalloc-auto has none at the start and learns as it goes.\n\
                        Without --capacity our arenas remap memory rather than reserve more than the job needs. With it\n\
                        they remap only when the device is full.\n\n\
                        Exit status: 0 if done, 1 if with --capacity no allocator fits, 2 if a file cannot be read.")]
pub struct Args {
    /// A recording: a PyTorch snapshot, a stalloc trace, a folder of traces, or a mem_log of the paper's artifact
    #[arg(value_parser = input::parser())]
    input: PathBuf,
    /// Device to look at; by default the one that ran out of memory, else the fullest
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Allocator to replay, several times for several: pytorch, pytorch-expandable, gmlake, stalloc-open, stalloc,
    /// stalloc-auto; all by default
    #[arg(long = "allocator", value_name = "NAME")]
    allocators: Vec<Kind>,
    /// Plan for stalloc; by default one is made from the recording
    #[arg(long)]
    plan: Option<PathBuf>,
    /// Memory of the simulated device: bytes, or with a unit such as 24GiB; unlimited by default
    #[arg(long, value_name = "BYTES", value_parser = output::parse_bytes)]
    capacity: Option<u64>,
    /// Find the smallest device that each allocator gets through on
    #[arg(long)]
    smallest: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `stalloc simulate`.
pub fn run(args: &Args) -> Result<Ending, Error> {
    let trace = inputs::trace(&args.input, args.device, &mut Terminal::new())?;
    let kinds = if args.allocators.is_empty() { Kind::ALL.to_vec() } else { args.allocators.clone() };
    let plan = args.plan.as_deref().map(inputs::plan).transpose()?;
    let replays = Replays { plan, capacity: args.capacity, smallest: args.smallest };
    let comparison = simulate(&trace, &kinds, replays, &mut Terminal::new())?;
    if args.json {
        output::json(&comparison)?;
    } else {
        print(&comparison)?;
        output::next(&format!("stalloc report {}", args.input.display()), "who holds the memory, and what to do")?;
    }
    let nothing_fits = comparison.results.iter().all(|result| result.oom);
    Ok(if args.capacity.is_some() && nothing_fits { Ending::No } else { Ending::Done })
}

/// Prints what each allocator makes of a trace.
pub fn print(comparison: &AllocatorComparison) -> Result<(), Error> {
    output::line(&format!(
        "device {}: {} requests, peak allocated {}\n",
        comparison.device,
        output::count(comparison.requests as u64),
        output::bytes(comparison.peak_allocated)
    ))?;
    let remapped = comparison.results.iter().any(|result| result.remaps.unwrap_or(0) > 0);
    let smallest = comparison.results.iter().any(|result| result.smallest_capacity.is_some());
    let mut heads =
        vec!["allocator", "peak reserved", "efficiency", "wasted", "ns per op", "driver calls", "driver ms"];
    let clocked = comparison.results.iter().any(|result| result.step_ms.is_some());
    heads.extend(clocked.then_some("step, ms"));
    heads.extend(remapped.then_some("remaps"));
    heads.extend(smallest.then_some("smallest GPU"));
    let columns = heads.len();
    let mut table = Table::new(&heads);
    if let Some(reserved) = comparison.actual_peak_reserved {
        let efficiency = comparison.peak_allocated as f64 / reserved.max(1) as f64;
        let wasted = reserved.saturating_sub(comparison.peak_allocated);
        let mut row =
            vec!["recorded".into(), output::bytes(reserved), output::percent(efficiency), output::bytes(wasted)];
        row.resize(columns, String::new());
        table.row(row);
    }
    for result in &comparison.results {
        let (efficiency, wasted) = match result.oom {
            true => ("out of memory".into(), String::new()),
            false => (output::percent(result.efficiency), output::bytes(result.fragmentation_bytes)),
        };
        let mut row = vec![
            result.allocator.into(),
            output::bytes_between(result.peak_reserved, result.peak_reserved_late),
            efficiency,
            wasted,
            format!("{:.0}", result.ns_per_op),
            output::count(result.driver_calls),
            format!("{:.1}", result.driver_ms),
        ];
        row.extend(clocked.then(|| result.step_ms.map_or(String::new(), |step| format!("{step:.1}"))));
        row.extend(remapped.then(|| result.remaps.map_or(String::new(), output::count)));
        row.extend(smallest.then(|| result.smallest_capacity.map_or(String::new(), output::bytes)));
        table.row(row);
    }
    table.print()?;
    output::why_a_range(comparison.results.iter().map(|result| (result.peak_reserved, result.peak_reserved_late)))
}
