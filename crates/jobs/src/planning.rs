//! Plans of traces and of instances.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use stalloc_plan::Plan;
use stalloc_planner::{Buffer, LifetimeGap, SolveOptions};
use stalloc_simulator::Kind;
pub use stalloc_synthesizer::PlanSummary;
use stalloc_trace::{InstanceRow, InstanceTable, Trace};

use crate::recorded::alike::{self, Alike};
use crate::{Error, Watch, inputs, recorded};

/// Two seconds on every core: what a plan is made with where nobody says otherwise.
pub fn usual_effort() -> SolveOptions {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    SolveOptions { time_limit: Duration::from_secs(2), threads, ..SolveOptions::default() }
}

/// Plans a trace and replays it under the plan: what a plan needs is what the allocator makes of it.
pub fn trace(trace: &Trace, effort: SolveOptions, watch: &mut dyn Watch) -> Result<(Plan, PlanSummary), Error> {
    let options = stalloc_synthesizer::SynthesisOptions { planner: effort };
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
        summary.replayed(replay.peak_reserved, stalloc_simulator::MAPPED_AT_ONCE);
    }
    Ok((plan, summary))
}

/// A plan that was made of a trace in a folder.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// Its file.
    pub plan: PathBuf,
    /// What it came to.
    pub summary: PlanSummary,
    /// The plan of an earlier trace that is alike, whose file this one is too.
    pub same_as: Option<PathBuf>,
}

/// Plans every trace of a folder that was asked for, and writes each plan next to its trace, or into another folder. Traces that
/// are alike, as those of a job's ranks are, are planned once and share one file.
pub fn folder(
    folder: &Path,
    out: &Path,
    (rank, device): (Option<u32>, Option<u32>),
    effort: SolveOptions,
    watch: &mut dyn Watch,
) -> Result<Vec<Planned>, Error> {
    let mut planned: Vec<Planned> = Vec::new();
    let mut known: Alike<Planned> = Alike::default();
    for path in recorded::traces(folder)? {
        if rank.is_some_and(|rank| recorded::rank(&path) != Some(rank)) {
            continue;
        }
        let to = out.join(path.with_extension("plan").file_name().unwrap_or_default());
        let mut first = known.of_file(&path);
        if first.is_none() {
            let mut recording = inputs::recording(&path, watch)?;
            recording.traces.retain(|trace| device.is_none_or(|device| trace.device == device));
            if recording.traces.is_empty() {
                continue;
            }
            let of = inputs::device(&path, recording, device, watch)?;
            let content = alike::content(&of);
            first = known.of_content(&path, content);
            if first.is_none() {
                let (plan, summary) = trace(&of, effort, watch)?;
                stalloc_plan::write(&to, &plan)?;
                let one = Planned { plan: to, summary, same_as: None };
                known.add(&path, content, one.clone());
                planned.push(one);
                continue;
            }
        }
        if let Some(first) = first {
            alike::share(&first.plan, &to).map_err(|source| Error::Folder { path: to.clone(), source })?;
            planned.push(Planned { plan: to, summary: first.summary, same_as: Some(first.plan) });
        }
    }
    if planned.is_empty() { Err(Error::NoTraces(folder.to_owned())) } else { Ok(planned) }
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
    /// Whether it fits into the capacity that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<bool>,
    /// The buffers' offsets, in the instance's order.
    #[serde(skip)]
    pub offsets: Vec<u64>,
}

/// Plans an instance, which came from `path`: what has an offset in the file keeps it, and a plan within `effort.enough`, the
/// capacity if there is one, is good enough.
pub fn instance(path: &Path, instance: &InstanceTable, effort: &SolveOptions) -> Result<Solved, Error> {
    let started = Instant::now();
    let buffer = |row: &InstanceRow| Buffer {
        lower: row.lower,
        upper: row.upper,
        size: row.size,
        alignment: row.alignment,
        fixed: row.offset,
    };
    let gap = |(buffer, gap): (usize, &stalloc_trace::Gap)| LifetimeGap {
        buffer,
        lower: gap.lower,
        upper: gap.upper,
        window: gap.window,
    };
    let gaps = instance.rows.iter().enumerate().flat_map(|(k, row)| row.gaps.iter().map(move |gap| (k, gap)));
    let problem = stalloc_planner::Instance {
        buffers: instance.rows.iter().map(buffer).collect(),
        gaps: gaps.map(gap).collect(),
        ..Default::default()
    };
    let solution =
        stalloc_planner::solve(&problem, effort).map_err(|source| Error::Instance { path: path.to_owned(), source })?;
    Ok(Solved {
        kind: "dsa",
        buffers: instance.rows.len(),
        lower_bound: solution.lower_bound,
        peak: solution.peak,
        ratio: if solution.lower_bound == 0 { 1.0 } else { solution.peak as f64 / solution.lower_bound as f64 },
        optimal: solution.optimal,
        seconds: started.elapsed().as_secs_f64(),
        fits: (effort.enough > 0).then_some(solution.peak <= effort.enough),
        offsets: solution.offsets,
    })
}
