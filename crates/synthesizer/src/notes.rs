//! What a user should know of the steps and of a plan, in sentences.

use crate::ends::{End, Ends};
use crate::learner::Learner;
use crate::step_detection::{Steps, Witness};

/// On the steps of a trace.
pub(crate) fn on_steps(learner: &Learner, steps: &Steps) -> Vec<String> {
    let by = match steps.witness {
        Witness::Marks => "by marks",
        Witness::Annotations => "by annotations",
        Witness::Repetition => "by repetition",
        Witness::Nobody => {
            return vec![
                "no repeating steps were found, so there is nothing to plan: record three steps or more, with step marks if \
                 steps differ much"
                    .to_owned(),
            ];
        }
    };
    let kinds = learner.kinds.values().filter(|kind| kind.runs > 1);
    let mut runs: Vec<u32> = kinds.map(|kind| kind.runs).collect();
    runs.sort_unstable_by(|a, b| b.cmp(a));
    let found = format!("{} steps were found {by}", steps.requests.len());
    vec![match runs[..] {
        [] => format!("{found}; none came twice with exactly the same requests"),
        [runs] => format!("{found}; {runs} of them repeat exactly"),
        _ => format!("{found}; {} of them repeat exactly, of {} kinds", runs.iter().sum::<u32>(), runs.len()),
    }]
}

/// On steps that do not repeat exactly enough; `exact` of `all` requests belong to steps that do.
pub(crate) fn on_varying((exact, all): (u64, u64)) -> String {
    if all == 0 {
        return "no step but the first was recorded completely, so no request gets an offset: record three steps or more"
            .to_owned();
    }
    let once = all - exact;
    format!("steps vary: {once} of {all} requests belong to steps that came once, so no request gets an offset")
}

/// On how requests of a plan end.
pub(crate) fn on_ends(ends: &Ends) -> Vec<String> {
    let mut notes = Vec::new();
    if ends.copies > 1 {
        notes.push(format!(
            "some tensors of a step are still alive when the next step allocates theirs, so steps take turns with {} sets of \
             addresses",
            ends.copies
        ));
    }
    let open = ends.of.iter().flatten().filter(|end| **end == End::Open).count();
    if open > 0 {
        notes.push(format!(
            "{open} requests of a step get no offset, because later steps do not free what they allocate"
        ));
    }
    notes
}

/// On a plan that takes so many times the most live bytes.
pub(crate) fn on_waste(times: f64) -> String {
    let more = 100.0 * (times - 1.0);
    format!("a plan of these steps takes {more:.0} % more than the most live bytes, so no request gets an offset")
}

/// On a plan that did not pass its check against the recording.
pub(crate) fn on_unsound(whole: bool, problem: &str) -> String {
    let what = if whole { "the steps that came once get no offsets" } else { "no request gets an offset" };
    format!("the plan did not hold for the recording ({problem}), so {what}")
}
