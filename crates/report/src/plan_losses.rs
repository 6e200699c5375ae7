//! What keeps a plan from 100 %.

use stalloc_plan::Plan;
use stalloc_simulator::{PlacedBy, Replay};
use stalloc_trace::Trace;

use crate::actual::peak_of;
use crate::figures::Cause;
use crate::words::bytes;

/// The reasons, most bytes first; empty where the plan wastes nothing. O(events).
pub fn plan_losses(trace: &Trace, plan: &Plan, replay: &Replay) -> Vec<Cause> {
    let wasted = replay.peak_reserved.saturating_sub(replay.peak_allocated);
    if wasted == 0 {
        return Vec::new();
    }
    let mut causes = Vec::new();
    // Each cause accounts for no more than what is left, so that together they never claim more than is wasted.
    let mut rest = wasted;
    let mut add = |bytes: u64, text: String| {
        let bytes = bytes.min(rest);
        rest -= bytes;
        if bytes > 0 {
            causes.push(Cause { bytes, text });
        }
    };
    let planned_live = peak_by(trace, replay, |source| source == PlacedBy::Planned);
    // What lived in the arena at once is a lower bound as well.
    let needed = plan.lower_bound.max(planned_live);
    let loose = plan.arena.saturating_sub(needed);
    let why = "by which the arena is larger than the most that its blocks need at once";
    add(loose, format!("{why}: no tighter packing was found in the time given."));
    let pool = replay.peak_reserved.saturating_sub(plan.arena);
    let pool_live = peak_by(trace, replay, |source| source == PlacedBy::Fallback);
    let used = bytes(pool_live);
    let outside = if pool_live == 0 {
        "outside the arena: device memory is taken in whole pages and segments.".to_owned()
    } else {
        let why = "empty in the fallback pool, which serves what the plan does not know in segments of its own";
        format!("{why} ({used} used).")
    };
    add(pool.saturating_sub(pool_live), outside);
    let elsewhere = wasted.saturating_sub(loose).saturating_sub(pool.saturating_sub(pool_live));
    let why = "need memory of the fallback while the arena is not full.";
    add(elsewhere.min(pool_live), format!("because requests without an offset ({used} at once) {why}"));
    let (made_for, used) = (bytes(needed), bytes(planned_live));
    let why = "in the arena that the blocks of this run do not fill: it is made for";
    add(elsewhere.saturating_sub(pool_live), format!("{why} {made_for}, of which this run used {used} at once."));
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}

/// Most live bytes at once of the requests whose placement was found in some way.
fn peak_by(trace: &Trace, replay: &Replay, counts: impl Fn(PlacedBy) -> bool) -> u64 {
    let mut counted = vec![false; trace.requests.len()];
    for placement in &replay.placements {
        if let Some(one) = counted.get_mut(placement.request.index()) {
            *one = counts(placement.source);
        }
    }
    peak_of(trace, true, |id| counted[id.index()])
}
