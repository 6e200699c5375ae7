//! From a recording to what a report is made of: plans and replays, once for every output.

use std::collections::BTreeMap;

use stalloc_plan::Plan;
use stalloc_simulator::{Kind, Options, Replay, replay};
use stalloc_trace::{Event, Recording, Trace};

use crate::actual::actual;
use crate::curve::value_at;
use crate::failure::{count_failed, failures};
use crate::{Fit, ReportInput, Subject, steps};

/// Cards that people ask about: name and the bytes that PyTorch finds on one.
///
/// PyTorch's "total capacity" of an A100 40 GB, an A100 or H100 80 GB and an H200, less half a GiB that the CUDA
/// context takes.
pub const CARDS: [(&str, u64); 3] =
    [("40", 39 * GIB - GIB / 8), ("80", 79 * GIB - GIB * 3 / 8), ("141", 139 * GIB + GIB / 4)];
const GIB: u64 = 1 << 30;

/// Name of the device that a request failed on, among the cards.
pub const SAME: &str = "same";

/// Told what is being done, how much of it is done, and how much there is.
pub type StageProgress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Plans and replays every device of a recording.
pub fn prepare(name: &str, recording: Recording, progress: StageProgress<'_>) -> ReportInput {
    ReportInput {
        name: name.to_owned(),
        format: recording.format.name().to_owned(),
        warnings: recording.warnings,
        devices: recording.traces.into_iter().map(|trace| Subject::new(trace, progress)).collect(),
    }
}

/// Whether a trace holds any history, and not only the state of one moment; `failed` is the request that was counted in.
pub(crate) fn has_history(trace: &Trace, failed: Option<stalloc_trace::RequestId>) -> bool {
    let is_other = |event: &Event| matches!(event, Event::Alloc(id) | Event::FreeRequested(id) if Some(*id) != failed);
    trace.events.iter().any(is_other)
}

impl Subject {
    /// Plans a trace and replays it through every allocator. What cannot be done is said in [`Subject::notes`].
    pub fn new(mut trace: Trace, progress: StageProgress<'_>) -> Self {
        let failed = count_failed(&mut trace);
        let capacity = capacity_of(&trace, failed);
        if !has_history(&trace, failed) {
            let (plan, replays, steps, fits, notes) = Default::default();
            return Subject { trace, failed, capacity, plan, replays, steps, fits, notes };
        }
        let options = stalloc_synthesizer::SynthesisOptions::default();
        let planned = stalloc_synthesizer::plan(&trace, &options, &mut |done, total| progress("planning", done, total));
        let (plan, mut notes) = match planned {
            Ok((plan, summary)) => (Some(plan), summary.notes),
            Err(error) => (None, vec![format!("There is no plan: {error}.")]),
        };
        let mut replays = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Stalloc || plan.is_some()) {
            match replay_one(&trace, plan.as_ref(), kind, None, progress) {
                Ok(replay) => replays.push((kind, replay)),
                Err(note) => notes.push(note),
            }
        }
        let fits = fits(&trace, plan.as_ref(), &replays, capacity, progress);
        let steps = steps::find(&trace, plan.as_ref());
        let replays = replays.into_iter().map(|(_, replay)| replay).collect();
        Subject { trace, failed, capacity, plan, replays, steps, fits, notes }
    }
}

/// What the process had or could have had when its last request failed.
fn capacity_of(trace: &Trace, failed: Option<stalloc_trace::RequestId>) -> Option<u64> {
    failed?;
    let happened = actual(trace, failed)?;
    let last = failures(trace).next()?;
    Some(value_at(&happened.reserved, last.time).saturating_add(last.device_free))
}

fn replay_one(
    trace: &Trace,
    plan: Option<&Plan>,
    kind: Kind,
    capacity: Option<u64>,
    progress: StageProgress<'_>,
) -> Result<Replay, String> {
    let options = Options { capacity, plan, ..Options::default() };
    let what = format!("replaying through {}", kind.name());
    replay(trace, kind, &options, &mut |done, total| progress(&what, done, total))
        .map_err(|error| format!("{} could not replay this trace: {error}.", kind.name()))
}

/// Where a card is smaller than what an allocator takes freely and larger than what lives at once, only a try can say
/// whether giving cached memory back is enough.
fn fits(
    trace: &Trace,
    plan: Option<&Plan>,
    replays: &[(Kind, Replay)],
    same: Option<u64>,
    progress: StageProgress<'_>,
) -> BTreeMap<(&'static str, &'static str), Fit> {
    let mut fits = BTreeMap::new();
    for (kind, free) in replays {
        for (card, bytes) in CARDS.into_iter().chain(same.map(|bytes| (SAME, bytes))) {
            if free.peak_reserved <= bytes || free.peak_allocated > bytes {
                if card == SAME {
                    let fit = if free.peak_reserved <= bytes { Fit::Yes } else { Fit::No };
                    fits.insert((kind.name(), card), fit);
                }
                continue;
            }
            if let Ok(tight) = replay_one(trace, plan, *kind, Some(bytes), progress) {
                fits.insert((kind.name(), card), if tight.oom.is_some() { Fit::No } else { Fit::Tight });
            }
        }
    }
    fits
}
