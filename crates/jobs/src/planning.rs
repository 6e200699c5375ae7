//! Plans of traces and of instances.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use stalloc_plan::Plan;
use stalloc_planner::{Buffer, Options};
use stalloc_simulator::Kind;
use stalloc_synthesizer::Summary;
use stalloc_trace::{Instance, InstanceRow, Trace};

use crate::{Error, Watch, inputs, recorded};

/// Two seconds on every core: what a plan is made with where nobody says otherwise.
pub fn usual_effort() -> Options {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Options { time_limit: Duration::from_secs(2), threads, ..Options::default() }
}

/// Plans a trace and replays it under the plan: what a plan needs is what the allocator makes of it.
///
/// # Errors
/// If the trace holds no request.
pub fn trace(trace: &Trace, effort: Options, watch: &mut dyn Watch) -> Result<(Plan, Summary), Error> {
    let options = stalloc_synthesizer::Options { planner: effort };
    let (plan, mut summary) =
        stalloc_synthesizer::plan(trace, &options, &mut |done, total| watch.progress("planning", done, total))?;
    let options = stalloc_simulator::Options { plan: Some(&plan), ..Default::default() };
    let replay = stalloc_simulator::replay(trace, Kind::Stalloc, &options, &mut |done, total| {
        watch.progress("replaying", done, total);
    });
    // A recording that contradicts itself can be planned, but not replayed: then the plan's own figure stands.
    if let Ok(replay) = replay
        && replay.oom.is_none()
    {
        summary.replayed(replay.peak_reserved);
    }
    Ok((plan, summary))
}

/// Plans every trace of a folder that was asked for, and writes each plan next to its trace, or into another folder. `planned` is
/// told of each.
///
/// # Errors
/// If a trace cannot be read or planned, or its plan not be written; those before it are there.
pub fn folder(
    folder: &Path,
    out: &Path,
    (rank, device): (Option<u32>, Option<u32>),
    effort: Options,
    watch: &mut dyn Watch,
    planned: &mut dyn FnMut(&Path, &Summary),
) -> Result<(), Error> {
    let mut found = 0;
    for path in recorded::traces(folder)? {
        if rank.is_some_and(|rank| recorded::rank(&path) != Some(rank)) {
            continue;
        }
        let mut recording = inputs::recording(&path, watch)?;
        recording.traces.retain(|trace| device.is_none_or(|device| trace.device == device));
        if recording.traces.is_empty() {
            continue;
        }
        let of = inputs::device(&path, recording, device, watch)?;
        let (plan, summary) = trace(&of, effort, watch)?;
        let to = out.join(path.with_extension("plan").file_name().unwrap_or_default());
        stalloc_plan::write(&to, &plan)?;
        planned(&to, &summary);
        found += 1;
    }
    if found == 0 { Err(Error::NoTraces(folder.to_owned())) } else { Ok(()) }
}

/// What came of an instance; serialises to what `stalloc plan --json` prints of one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Solved {
    /// `dsa`.
    pub kind: &'static str,
    /// How many buffers.
    pub buffers: usize,
    /// No solution needs less.
    pub lower_bound: u64,
    /// What this one needs.
    pub peak: u64,
    /// `peak / lower_bound`; 1 where nothing is asked for.
    pub ratio: f64,
    /// Whether no solution is better.
    pub optimal: bool,
    /// How long it took.
    pub seconds: f64,
    /// The buffers' offsets, in the instance's order.
    #[serde(skip)]
    pub offsets: Vec<u64>,
}

/// Plans an instance, which came from `path`.
///
/// # Errors
/// If the planner refuses it.
pub fn instance(path: &Path, instance: &Instance, effort: &Options) -> Result<Solved, Error> {
    let started = Instant::now();
    let buffer = |row: &InstanceRow| Buffer {
        lower: row.lower,
        upper: row.upper,
        size: row.size,
        alignment: row.alignment,
        fixed: None,
    };
    let buffers = instance.rows.iter().map(buffer).collect();
    let solution = stalloc_planner::solve(&stalloc_planner::Instance { buffers, period: None }, effort)
        .map_err(|source| Error::Instance { path: path.to_owned(), source })?;
    Ok(Solved {
        kind: "dsa",
        buffers: instance.rows.len(),
        lower_bound: solution.lower_bound,
        peak: solution.peak,
        ratio: if solution.lower_bound == 0 { 1.0 } else { solution.peak as f64 / solution.lower_bound as f64 },
        optimal: solution.optimal,
        seconds: started.elapsed().as_secs_f64(),
        offsets: solution.offsets,
    })
}
