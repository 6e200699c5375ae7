//! Live bytes that climb from step to step: how much a step, and where what stays was allocated.

use stalloc_trace::growth::{Climb, climb};
use stalloc_trace::{Request, Time, Trace};

use crate::figures::Growth;
use crate::holders::by_site;
use crate::loops::turns;
use crate::sites::{Sites, passes};
use crate::steps::StepSpan;

/// What climbs, if anything does: over steps, else over the turns of the program's loop. O(requests log steps).
pub fn growth(trace: &Trace, steps: &[StepSpan], peak: u64, sites: &mut Sites<'_>) -> Option<Growth> {
    let begins: Vec<Time> = steps.iter().map(|step| step.begin).collect();
    climbing(trace, &begins, &[], peak, sites).or_else(|| {
        let turns = turns(trace)?;
        let found = climbing(trace, &turns.times, steps, peak, sites)?;
        // A loop that runs forward and backward passes is one over steps.
        let is_backward = |request: &Request| passes(trace, request.stack).backward;
        let trains =
            trace.requests.iter().filter(|request| request.alloc >= turns.times.first().copied()).any(is_backward);
        Some(Growth { turns_of: Some(turns.site).filter(|_| !trains), ..found })
    })
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

/// At each boundary the bytes that have lived for a whole step or longer: what the last step has just left behind is not
/// among them, and may be of any size.
fn kept(trace: &Trace, begins: &[Time]) -> Vec<u64> {
    // Changes from one boundary to the next.
    let mut more = vec![0u64; begins.len() + 1];
    let mut less = more.clone();
    for request in &trace.requests {
        let (begin, end) = lifetime(request);
        let from = begins.partition_point(|&boundary| boundary <= begin) + 1;
        let until = begins.partition_point(|&boundary| boundary < end);
        if from < until {
            more[from] = more[from].saturating_add(request.rounded());
            less[until] = less[until].saturating_add(request.rounded());
        }
    }
    let mut now = 0u64;
    (0..begins.len())
        .map(|at| {
            now = now.saturating_add(more[at]).saturating_sub(less[at]);
            now
        })
        .collect()
}

fn lifetime(request: &Request) -> (Time, Time) {
    (request.alloc.unwrap_or(0), request.free_requested.unwrap_or(Time::MAX))
}
