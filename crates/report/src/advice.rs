//! What to do: for each cause the change that helps, with a line to copy.

use stalloc_trace::Trace;

use crate::diagnosis::Diagnosis;
use crate::figures::{Advice, AllocatorFigures, Fit, OutOfMemory, Verdict};
use crate::sentence::{Named, filled};
use crate::table::{hold, rows};
use crate::words::bytes;

/// An advice that saves less than this share is none.
const WORTH: f64 = 0.03;

/// What helps against each cause, as data: see its head.
pub(crate) const REMEDIES: &str = include_str!("remedies.txt");

/// The first remedy of a cause that holds and can be said.
pub(crate) fn remedy(of: &str, known: &Named) -> Option<Advice> {
    rows(REMEDIES).find_map(|(head, lines)| {
        let (cause, conditions) = head.split_once(' ').unwrap_or((head, ""));
        let line = |word: &str| lines.iter().find(|line| line.0 == word).and_then(|line| filled(line.1, known));
        let text = (cause == of && hold(conditions, known)).then(|| line("text"))??;
        Some(Advice { text, command: line("code") })
    })
}

/// What advice against fragmentation is made from.
pub struct Case<'a> {
    pub trace: &'a Trace,
    /// What the rest is measured against: the recorded run, else PyTorch's allocator.
    pub before: Option<&'a AllocatorFigures>,
    pub allocators: &'a [AllocatorFigures],
    pub failed: Option<&'a OutOfMemory>,
    /// Whether there is neither a history nor anything known of the failure.
    pub state_only: bool,
}

impl Case<'_> {
    /// What to do, the best first.
    pub fn advice(&self, found: &Diagnosis) -> Vec<Advice> {
        let named = &found.known;
        if self.state_only {
            return remedy("moment", named).into_iter().collect();
        }
        if found.cause == Some("pieces") {
            return self.against_fragmentation(named);
        }
        if !matches!(found.verdict, Verdict::TooLarge | Verdict::Growth | Verdict::Fragmentation) {
            return Vec::new();
        }
        const BY_SIZE: [&str; 7] =
            ["logits", "optimizer_states", "gradient_buckets", "models", "activations", "weights", "unknown"];
        let cause = found.cause.unwrap_or("unknown");
        let mut advice: Vec<Advice> = remedy(cause, named).into_iter().collect();
        if found.verdict == Verdict::TooLarge && BY_SIZE.contains(&cause) {
            let more = remedy("afterwards", named);
            advice.extend(more.filter(|more| advice.iter().all(|one| one.command != more.command)));
        }
        let is_tried = |one: &Advice| one.command.as_deref().is_some_and(|line| line.starts_with("stalloc levers"));
        if advice.iter().any(is_tried) {
            advice.extend(remedy("applied", named));
        }
        advice
    }

    /// What an allocator would give, where it would help: past the failure, or less memory.
    fn helps(&self, name: &str) -> Option<&AllocatorFigures> {
        self.allocators.iter().find(|one| one.allocator == name).filter(|one| {
            match (self.failed, one.same_device, self.before) {
                (Some(_), Some(fit), _) => matches!(fit, Fit::Yes | Fit::Tight),
                (None, _, Some(before)) => {
                    before.peak_reserved.saturating_sub(one.peak_reserved) as f64 >= before.peak_reserved as f64 * WORTH
                }
                _ => false,
            }
        })
    }

    fn gives(&self, one: &AllocatorFigures) -> String {
        let reserved = self.before.map_or(0, |before| before.peak_reserved);
        match self.failed {
            Some(failed) => {
                let had = failed.capacity.unwrap_or(reserved);
                let held = bytes(one.peak_reserved.min(had));
                format!("on this recording it gets past the request that failed, with {held} of {}", bytes(had))
            }
            None => format!("on this recording it holds {} in place of {}", bytes(one.peak_reserved), bytes(reserved)),
        }
    }

    fn against_fragmentation(&self, known: &Named) -> Vec<Advice> {
        let command = known.get("command").and_then(|command| command.as_str()).unwrap_or("COMMAND");
        let on = self.trace.settings.as_ref().is_some_and(|settings| settings.expandable_segments);
        let ours = self.helps("stalloc-auto").or_else(|| self.helps("stalloc-open"));
        let theirs = self.helps("pytorch-expandable").filter(|_| !on);
        let mut advice = Vec::new();
        if let Some(theirs) = theirs {
            let conf = self.trace.metadata.get("PYTORCH_CUDA_ALLOC_CONF").map_or("", String::as_str);
            let others: String = conf
                .split(',')
                .filter(|part| !part.trim().is_empty() && !part.contains("expandable_segments"))
                .map(|part| format!(",{}", part.trim()))
                .collect();
            advice.push(Advice {
                text: format!("Switch on PyTorch's expandable segments: {}.", self.gives(theirs)),
                command: Some(format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True{others} {command}")),
            });
        }
        if let Some(ours) = ours {
            let text = format!("Run it on stalloc's allocator, with nothing else changed: {}.", self.gives(ours));
            let ours_first = theirs.is_none_or(|theirs| {
                let saved = theirs.peak_reserved.saturating_sub(ours.peak_reserved);
                saved as f64 > theirs.peak_reserved as f64 * WORTH
            });
            let command = Some(format!("stalloc run -- {command}"));
            advice.insert(if ours_first { 0 } else { advice.len() }, Advice { text, command });
        }
        if advice.is_empty() {
            advice.extend(remedy("pieces", known));
        }
        advice.extend(remedy("afterwards", known).filter(|_| hold("first", known)));
        advice
    }
}
