//! What a recording needs of a card under each allocator.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stalloc_dryrun_setup::Gpu;
use stalloc_report::Category;
use stalloc_simulator::{Kind, Options, Replay, Return, continued, replay, returning, smallest_capacity};
use stalloc_trace::Trace;
use stalloc_trace::growth::rise;

use crate::fit::caught::{self, Refused};
use crate::fit::outside::{Groups, Outside};

/// The allocators that are asked, in the order in which they are shown.
pub const ALLOCATORS: [Kind; 3] = [Kind::Pytorch, Kind::PytorchExpandable, Kind::Stalloc];

/// What the planner may do for each trial, in its units of work: half a second. A better plan saves no more than a page or two.
const PLANNER_WORK: u64 = 30_000_000;

/// Steps that are replayed after those that were recorded of a program that goes on: what an allocator holds may still grow in the fourth.
pub const MORE_STEPS: u32 = 3;

/// Whether a recording fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FitsGpu {
    /// Not even if the least is taken outside PyTorch.
    No,
    /// If the least is taken outside PyTorch, but not if the most is.
    Edge,
    /// Even if the most is taken outside PyTorch.
    Yes,
}

/// What one allocator makes of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// Whether it gets through with what the card leaves it.
    pub fits: FitsGpu,
    /// The most that it held: on the card where it fits, else on a card without limit. Bytes.
    pub peak_reserved: u64,
    /// The same where the GPU is so far behind the host that what other streams use comes back when the step ends; none where none does.
    #[serde(default)]
    pub peak_reserved_late: Option<u64>,
    /// The least that it gets through with, bytes; none where that cannot be found.
    pub smallest: Option<u64>,
    /// How long a step takes by the dry run's clock, microseconds.
    #[serde(default)]
    pub step_us: Option<u64>,
    /// The same of our allocator on a card of the size that was asked about, where that leaves less than it would hold: a remap takes time.
    #[serde(default)]
    pub step_us_asked: Option<u64>,
}

/// What a trial found of one rank on one of its devices: what was recorded, and what each allocator needs for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDevice {
    /// The rank; 0 for a program that has one process.
    pub rank: u32,
    /// The device within the process.
    pub device: u32,
    /// Steps that were recorded.
    pub steps: u64,
    /// Whether the program was ended after these, so that what comes then was not seen.
    #[serde(default)]
    pub is_cut: bool,
    /// What each of the last steps added to what stays, if the program goes on and that climbed; bytes.
    #[serde(default)]
    pub rise: Option<u64>,
    /// Requests that were recorded.
    pub requests: u64,
    /// Requests that the card refused and the program lived on without.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// Hash of what was recorded, addresses and times aside.
    pub content: u64,
    /// Most live bytes at once.
    pub peak_allocated: u64,
    /// The ranks of its pipeline, if it is a stage of one.
    #[serde(default)]
    pub stages: Vec<u32>,
    /// Who holds the peak, where the program noted it.
    #[serde(default)]
    pub holders: Vec<(Category, u64)>,
    /// Where sizes hang on guesses: most live bytes at once if no element is chosen in place of all.
    #[serde(default)]
    pub peak_if_none: Option<u64>,
    /// What sleeping takes of the host, if steps were seen.
    #[serde(default)]
    pub asleep: Option<Asleep>,
    /// What is taken outside PyTorch.
    pub outside: Outside,
    /// What each allocator makes of it, in the order of [`ALLOCATORS`].
    pub needs: Vec<Need>,
    /// The same two on the other GPUs that are asked about.
    #[serde(default)]
    pub elsewhere: Vec<OnCard>,
}

/// What of a [`RankDevice`] hangs on the card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnCard {
    /// The card's name.
    pub gpu: String,
    /// What is taken outside PyTorch.
    pub outside: Outside,
    /// What each allocator makes of the recording, in the order of [`ALLOCATORS`].
    pub needs: Vec<Need>,
}

impl RankDevice {
    /// The same recording on another GPU; none where that was not asked about.
    pub fn on(&self, gpu: &Gpu) -> Option<Self> {
        let OnCard { outside, needs, .. } = self.elsewhere.iter().find(|card| card.gpu == gpu.name)?.clone();
        Some(RankDevice { outside, needs, elsewhere: Vec::new(), ..self.clone() })
    }
}

/// Page-locked memory of the host that `stalloc.sleep()` takes for all that lives between two steps, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asleep {
    /// For the least that lives at any moment of a step, as after gradients were let go.
    pub between_steps: u64,
    /// Where the optimizer has just stepped.
    pub at_step_end: u64,
}

impl Asleep {
    fn of(trace: &Trace) -> Option<Asleep> {
        let curve = trace.live_curve();
        // The first step begins before there are optimizer states.
        let begins = trace.step_begins().into_iter().skip(1);
        let begins: Vec<usize> = begins.map(|time| curve.partition_point(|point| point.0 <= time) - 1).collect();
        let at_step_end = begins.iter().map(|&point| curve[point].1).max()?;
        let least = |step: &[usize]| curve[step[0]..=step[1]].iter().map(|point| point.1).min();
        let between_steps = begins.windows(2).filter_map(least).max().unwrap_or(at_step_end);
        // The host's memory is taken by 2 MiB.
        let taken = |live: u64| live.div_ceil(2 << 20).saturating_mul(2 << 20);
        Some(Asleep { between_steps: taken(between_steps), at_step_end: taken(at_step_end) })
    }

    /// The larger of both, each for itself.
    pub fn max(self, other: Self) -> Self {
        Asleep {
            between_steps: self.between_steps.max(other.between_steps),
            at_step_end: self.at_step_end.max(other.at_step_end),
        }
    }
}

/// What is known of a recording but its requests, each as in [`RankDevice`].
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    pub rank: u32,
    pub steps: u64,
    pub content: u64,
    pub is_cut: bool,
    /// The size of a card, bytes, on which it is asked how long steps take.
    pub priced_on: Option<u64>,
}

/// Replays a recording on what `gpu` and others leave, and some steps more if the program goes on and repeats itself.
///
/// # Errors
/// Why a recording cannot be replayed, in a sentence.
pub fn evaluate(
    trace: &Trace,
    recorded: Recorded,
    (gpu, others): (&Gpu, &[Gpu]),
    world_size: u32,
    groups: Option<&Groups>,
) -> Result<RankDevice, String> {
    let Recorded { rank, steps, content, is_cut, priced_on } = recorded;
    let planner = stalloc_planner::SolveOptions {
        time_limit: Duration::from_secs(60),
        work_limit: Some(PLANNER_WORK),
        threads: 1,
        ..Default::default()
    };
    let options = stalloc_synthesizer::SynthesisOptions { planner };
    let (plan, _) = stalloc_synthesizer::plan(trace, &options, &mut |_, _| {}).map_err(|error| error.to_string())?;
    let with = |capacity| Options { plan: Some(&plan), capacity, ..Options::default() };
    let run = |trace: &Trace, kind, capacity| {
        replay(trace, kind, &with(capacity), &mut |_, _| {}).map_err(|error| error.to_string())
    };
    // What is asked for as the program ends is in the recording alone: where that is the most, it is what is replayed.
    let longer = is_cut.then(|| continued(trace, MORE_STEPS)).flatten();
    let longer = longer.filter(|longer| longer.peak_allocated() >= trace.peak_allocated());
    let replayed = longer.as_ref().unwrap_or(trace);
    let late = returning(replayed, Return::AtStepEnd);
    let step_us = |replay: &Replay| replay.step_ms.map(|step| (step * 1e3) as u64);
    let unlimited = |kind: Kind| -> Result<(Kind, Need), String> {
        let unlimited = run(replayed, kind, None)?;
        let smallest =
            smallest_capacity(replayed, kind, &with(None), &mut |_, _| {}).map_err(|error| error.to_string())?;
        let need = Need {
            fits: FitsGpu::No,
            peak_reserved: unlimited.peak_reserved,
            peak_reserved_late: None,
            step_us: step_us(&unlimited),
            smallest,
            step_us_asked: None,
        };
        Ok((kind, need))
    };
    let anywhere = ALLOCATORS.into_iter().map(unlimited).collect::<Result<Vec<_>, _>>()?;
    let on = |gpu: &Gpu| -> Result<OnCard, String> {
        let outside = Outside::of(gpu, world_size, groups);
        let mut needs = Vec::new();
        for (kind, mut need) in anywhere.iter().cloned() {
            let mut room = None;
            for (fits, taken) in [(FitsGpu::Yes, outside.high), (FitsGpu::Edge, outside.low)] {
                let left = Some(gpu.total.saturating_sub(taken));
                let on_card = run(replayed, kind, left)?;
                if on_card.oom.is_none() {
                    (need.fits, need.peak_reserved, need.step_us) = (fits, on_card.peak_reserved, step_us(&on_card));
                    room = left;
                    break;
                }
            }
            if let (Some(card), Some(least), Kind::Stalloc) = (priced_on, need.smallest, kind)
                && let capacity = card.saturating_sub(outside.high).max(least)
                && capacity < need.peak_reserved
            {
                need.step_us_asked = step_us(&run(replayed, kind, Some(capacity))?);
            }
            if let Some(late) = late.as_ref().filter(|_| kind.is_pytorch()) {
                need.peak_reserved_late = Some(run(late, kind, room)?.peak_reserved);
            }
            needs.push(need);
        }
        Ok(OnCard { gpu: gpu.name.to_owned(), outside, needs })
    };
    let OnCard { outside, needs, .. } = on(gpu)?;
    Ok(RankDevice {
        rank,
        device: trace.device,
        steps,
        is_cut,
        rise: is_cut.then(|| rise(trace)).flatten(),
        requests: trace.requests.len() as u64,
        refused: caught::refused(trace),
        content,
        peak_allocated: trace.peak_allocated(),
        stages: groups.map(|groups| groups.stages.clone()).unwrap_or_default(),
        holders: Vec::new(),
        peak_if_none: None,
        asleep: Asleep::of(trace),
        outside,
        needs,
        elsewhere: others.iter().filter(|other| other.name != gpu.name).map(on).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests;
