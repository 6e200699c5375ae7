//! What each allocator makes of a trace.

use stalloc_plan::Plan;
use stalloc_simulator::{AllocatorComparison, Kind, Options, Return, compare, replay, returning, smallest_capacity};
use stalloc_trace::Trace;

use crate::{Error, Watch, planning};

/// What to replay a trace with.
#[derive(Default)]
pub struct Replays {
    /// What stalloc follows; if it is to be replayed and there is none, one is made.
    pub plan: Option<Plan>,
    /// Memory of the device, bytes; none: more than any trace needs.
    pub capacity: Option<u64>,
    /// Whether to look for the smallest device that each allocator gets through on.
    pub smallest: bool,
}

/// Replays a trace through each kind of allocator.
pub fn simulate(
    trace: &Trace,
    kinds: &[Kind],
    mut replays: Replays,
    watch: &mut dyn Watch,
) -> Result<AllocatorComparison, Error> {
    if replays.plan.is_none() && kinds.contains(&Kind::Stalloc) {
        replays.plan = Some(planning::trace(trace, planning::usual_effort(), watch)?.0);
    }
    let options = Options { plan: replays.plan.as_ref(), capacity: replays.capacity, ..Options::default() };
    let mut progress = |done, total| watch.progress("replaying", done, total);
    let mut comparison = compare(trace, kinds, &options, &mut |_, done, total| progress(done, total))?;
    for (result, &kind) in comparison.results.iter_mut().zip(kinds).filter(|_| replays.smallest) {
        result.smallest_capacity = smallest_capacity(trace, kind, &options, &mut progress)?;
    }
    // How far the host runs ahead decides what PyTorch's allocators hold.
    let late = if options.capacity.is_none() { returning(trace, Return::AtStepEnd) } else { None };
    for (result, &kind) in comparison.results.iter_mut().zip(kinds) {
        let Some(late) = late.as_ref().filter(|_| kind.is_pytorch()) else { continue };
        result.peak_reserved_late = Some(replay(late, kind, &options, &mut progress)?.peak_reserved);
    }
    Ok(comparison)
}
