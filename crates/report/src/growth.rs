//! Live bytes that climb from step to step: how much a step, and where what stays was allocated.

use std::collections::{HashMap, HashSet};

use stalloc_trace::growth::{Climb, climb, kept, lifetime};
use stalloc_trace::site::is_python;
use stalloc_trace::{Event, Mark, Request, StackId, Time, Trace};

use crate::facts::{Facts, HolderBytes, MANY, Role};
use crate::failure::{Failed, failures};
use crate::figures::Growth;
use crate::holders::by_site;
use crate::loops::turns;
use crate::sites::{Sites, is_named, passes};
use crate::steps::StepSpan;

/// What climbs is the cause of a failure if it makes up this share of what was needed; so is what an exception holds.
pub const GROWN: f64 = 0.1;
/// In a job that failed so many loops are tried, of which the last to run need not be the outermost.
const LOOPS: usize = 4;
/// A block of less than one part of so many of the peak is none that piles up.
const NOTICED: u64 = 1000;

/// What climbs, if anything does: over steps, else over the turns of the program's loop; of a program without steps over these first.
/// O(requests log steps).
pub fn growth(trace: &Trace, steps: &[StepSpan], known: Option<&Facts>, sites: &mut Sites<'_>) -> Option<Growth> {
    let (begins, peak): (Vec<Time>, u64) = (steps.iter().map(|step| step.begin).collect(), trace.peak_allocated());
    let is_first = known.is_some_and(Facts::is_before_first_step);
    let stepless = is_first || is_stepless(trace);
    let mut over_steps =
        climbing(trace, &begins, &[], peak, sites).filter(|_| stepless || hold_both_passes(trace, steps));
    if !stepless && over_steps.is_some() {
        return over_steps;
    }
    let failed = failures(trace).next().is_some();
    let over_turns = turns(trace).into_iter().take(if failed { LOOPS } else { 1 }).find_map(|turns| {
        let found = climbing(trace, &turns.times, steps, peak, sites)?;
        // A loop that runs forward and backward passes is one over steps.
        let first = turns.times.first().copied();
        let trains = goes_backward(trace, trace.requests.iter().filter(|request| request.alloc >= first));
        Some(Growth { turns_of: Some(turns.site).filter(|_| is_first || !trains), ..found })
    });
    if let Some(growth) = &mut over_steps {
        growth.turns_of = growth.sites.first().map(|one| one.site.to_string()).filter(|site| is_named(site));
    }
    over_turns.or(over_steps).or_else(|| piled(trace, &begins, sites))
}

/// What a step that failed has piled up: many blocks of one size, where no whole step before it had half as many of any, or a quarter
/// of the bytes. A loop within it, such as a validation's, whose line asked for more when it failed: no stacks need tell its turns. O(events).
fn piled(trace: &Trace, begins: &[Time], sites: &mut Sites<'_>) -> Option<Growth> {
    let Failed { time: failed, stack, .. } = failures(trace).next()?;
    let line = sites.known(stack);
    let least = trace.peak_allocated() / NOTICED;
    let (mut now, mut most, mut before): (HashMap<u64, u64>, [u64; 2], [u64; 2]) = Default::default();
    let larger = |a: [u64; 2], b: [u64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
    let (mut begin, mut next) = (0, begins.iter().copied().peekable());
    for (time, event) in (0..).zip(&trace.events[..failed as usize]) {
        if next.next_if(|next| *next <= time).is_some() {
            before = if begin > 0 { larger(before, most) } else { before };
            (most, begin) = ([0, 0], time);
            now.clear();
        }
        match event {
            Event::Alloc(id) if trace.request(*id).rounded() >= least => {
                let size = trace.request(*id).rounded();
                let count = now.entry(size).or_default();
                *count += 1;
                most = larger(most, [*count, size.saturating_mul(*count)]);
            }
            Event::FreeRequested(id) if trace.request(*id).alloc >= Some(begin) => {
                now.entry(trace.request(*id).rounded()).and_modify(|count| *count = count.saturating_sub(1));
            }
            _ => {}
        }
    }
    let (size, count) = now.into_iter().max_by_key(|(size, count)| (size.saturating_mul(*count), *size))?;
    let stays = |one: &&Request| one.rounded() == size && one.alloc >= Some(begin) && one.alloc < Some(failed);
    let live = trace.requests.iter().filter(stays).filter(|one| one.free_requested.is_none_or(|freed| freed > failed));
    let sites = by_site(sites, live);
    let site = sites.iter().find(|one| is_named(&one.site) && one.site == line)?.site.to_string();
    let (bytes, steps) = (size.saturating_mul(count), count as usize);
    let is_more = count >= before[0].saturating_mul(2) && bytes >= before[1].saturating_mul(4);
    let found = Growth { bytes_per_step: size, steps, bytes, number: count, turns_of: Some(site), sites };
    (before[0] > 0 && steps >= MANY && is_more).then_some(found)
}

/// Whether steps are marked, or most hold a forward and a backward pass, as far as call stacks tell: the layers of one pass repeat too.
/// O(requests + stacks times depth).
pub(crate) fn hold_both_passes(trace: &Trace, steps: &[StepSpan]) -> bool {
    let mut known: HashMap<StackId, bool> = HashMap::new();
    let is_python = |stack| trace.stacks.get(stack).iter().any(|frame| is_python(trace.string(frame.file)));
    let mut is_forward =
        |stack| *known.entry(stack).or_insert_with(|| is_python(stack) && !passes(trace, stack).backward);
    let holds = |step: &&StepSpan| {
        let first = trace.requests.partition_point(|one| one.alloc.is_none_or(|alloc| alloc < step.begin));
        let within = trace.requests[first..].iter().take_while(|one| one.alloc < Some(step.end));
        let (forward, backward): (Vec<&Request>, Vec<&Request>) = within.partition(|one| is_forward(one.stack));
        !backward.is_empty() && (!forward.is_empty() || backward.iter().all(|one| one.stack == StackId::NONE))
    };
    is_marked(trace) || steps.iter().filter(holds).count() * 2 >= steps.len()
}

fn is_marked(trace: &Trace) -> bool {
    trace.events.iter().any(|event| matches!(event, Event::Mark(Mark::StepBegin)))
}

/// Whether what repeats is no step: no optimizer has stepped while that was noted, and nothing was asked for by a backward pass.
pub fn is_stepless(trace: &Trace) -> bool {
    let is_all_known = || trace.requests.iter().all(|one| one.stack != StackId::NONE);
    !is_marked(trace)
        && (trace.metadata.contains_key("launch")
            || !trace.stacks.is_empty() && is_all_known() && !goes_backward(trace, &trace.requests))
}

/// Whether any of some requests was made by a backward pass. O(requests + stacks times depth).
fn goes_backward<'a>(trace: &Trace, requests: impl IntoIterator<Item = &'a Request>) -> bool {
    let stacks: HashSet<StackId> = requests.into_iter().map(|one| one.stack).collect();
    stacks.into_iter().any(|stack| passes(trace, stack).backward)
}

fn climbing(trace: &Trace, begins: &[Time], steps: &[StepSpan], peak: u64, sites: &mut Sites<'_>) -> Option<Growth> {
    let found = climb(&kept(trace, begins), peak)?;
    let Climb { first, last, bytes } = found;
    // Micro-batches pile up in one of several steps, as a pipeline fills, and are gone before the next.
    let is_within = |step: &StepSpan| step.begin <= begins[first] && begins[last] <= step.end;
    if steps.len() > 1 && steps.iter().any(is_within) {
        return None;
    }
    // What is kept at the last boundary and was not at the first one of those that climb.
    let stays = |request: &&Request| {
        let (begin, end) = lifetime(request);
        begin >= begins[first - 1] && begin < begins[last - 1] && end > begins[last]
    };
    let (bytes_per_step, steps) = (found.bytes_per_step(), found.steps());
    let number = last as u64;
    let sites = by_site(sites, trace.requests.iter().filter(stays));
    Some(Growth { bytes_per_step, steps, bytes, number, turns_of: None, sites })
}

/// What holds many tensors and a good part, and came one by one; or in a program whose live memory has climbed all along.
pub fn filled<'a>(holders: &'a [HolderBytes], facts: &Facts, needed: u64, steps: u64) -> Option<&'a HolderBytes> {
    let quarter = facts.series.len() / 4;
    let mean = |i: usize| {
        facts.series[i * quarter..(i + 1) * quarter].iter().map(|one| one.1 as f64).sum::<f64>() / quarter as f64
    };
    let means = [0, 1, 2, 3].map(mean);
    let climbs =
        quarter >= 4 && means.windows(2).all(|pair| pair[0] < pair[1]) && means[3] - means[0] >= needed as f64 * GROWN;
    let holds = |one: &&HolderBytes| {
        (one.kind.is_of(Role::KEPT)
            || one.kind.is_of(&[Role::Hook, Role::GraphOfMany, Role::GradientCycle, Role::FunctionCycle]))
            && one.blocks >= MANY
            && one.bytes as f64 >= needed as f64 * GROWN
    };
    // What is read from a file comes piece by piece too, and so do models that are built before the first step.
    let is_of_steps = |one: &&HolderBytes| !one.is_loaded && (!one.is_models || steps > 0);
    holders.iter().filter(|one| (climbs || one.is_filled) && is_of_steps(one)).find(holds)
}
