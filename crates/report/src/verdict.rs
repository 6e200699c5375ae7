//! What is wrong with a job's memory, in a word, in a sentence with the figures that prove it, and what to do about it.

use stalloc_trace::Trace;

use crate::figures::{Advice, AllocatorFigures, Fit, Growth, OutOfMemory, SiteBytes, Verdict};
use crate::sites::is_named;
use crate::words::{bytes, percent};

/// Less than this share of what is held, empty at the peak, is no fragmentation to speak of.
const FRAGMENTED: f64 = 0.1;
/// Nor is less than this, bytes: PyTorch takes memory in pieces of up to 20 MiB.
const FRAGMENTED_BYTES: u64 = 64 << 20;
/// Of the memory that a job had when it failed, this share must have been empty for fragmentation to be the cause.
const EMPTY: f64 = 0.02;
/// What climbs is the cause of a failure if it makes up this share of what was needed.
const GROWN: f64 = 0.1;
/// An advice that saves less than this share is none.
const WORTH: f64 = 0.03;

/// What a verdict is made from.
pub struct Case<'a> {
    /// The trace, with what failed counted in.
    pub trace: &'a Trace,
    /// What the rest is measured against: the recorded run, else PyTorch's allocator.
    pub before: Option<&'a AllocatorFigures>,
    /// What each allocator makes of the trace.
    pub allocators: &'a [AllocatorFigures],
    /// The request that failed.
    pub failed: Option<&'a OutOfMemory>,
    /// What climbs.
    pub growth: Option<&'a Growth>,
    /// Who holds the peak.
    pub peak_by_site: &'a [SiteBytes],
    /// Bytes of the peak that were there before the first step, and that were made in a module's call; where both are known.
    pub resident: Option<u64>,
    /// Most live bytes, with what failed.
    pub peak_allocated: u64,
    /// Whether there is no history.
    pub state_only: bool,
}

impl Case<'_> {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        let Some(failed) = self.failed else {
            let before = self.before.filter(|one| {
                one.wasted >= FRAGMENTED_BYTES && one.wasted as f64 >= one.peak_reserved as f64 * FRAGMENTED
            });
            return match (self.growth, before) {
                (Some(_), _) => Verdict::Growth,
                (None, Some(_)) => Verdict::Fragmentation,
                (None, None) => Verdict::Healthy,
            };
        };
        let needed = failed.allocated.saturating_add(failed.size);
        if self.growth.is_some_and(|growth| growth.bytes as f64 >= needed as f64 * GROWN) {
            return Verdict::Growth;
        }
        let fragmented = match (failed.empty, failed.capacity) {
            (Some(empty), Some(capacity)) => needed <= capacity && empty as f64 >= capacity as f64 * EMPTY,
            _ => false,
        };
        if fragmented { Verdict::Fragmentation } else { Verdict::TooLarge }
    }

    /// The verdict in a sentence.
    pub fn headline(&self, verdict: Verdict) -> String {
        let top = self.peak_by_site.first().filter(|top| is_named(&top.site));
        match (verdict, self.failed) {
            (Verdict::Growth, failed) => {
                let Some(growth) = self.growth else { return String::new() };
                let by =
                    growth.sites.first().map_or(String::new(), |top| format!(": {} allocates what stays", top.site));
                let end = match failed {
                    Some(_) => format!("; {} had piled up when the job ran out of memory", bytes(growth.bytes)),
                    None => String::new(),
                };
                format!("Memory grows by {} a step{by}{end}.", bytes(growth.bytes_per_step))
            }
            (Verdict::Fragmentation, Some(failed)) => format!(
                "Fragmentation: {} failed with {} reserved but empty, in pieces that are too small. The job needed {} of the {} \
                 that it had.",
                bytes(failed.size),
                bytes(failed.empty.unwrap_or(0)),
                bytes(failed.allocated.saturating_add(failed.size)),
                bytes(failed.capacity.unwrap_or(0)),
            ),
            (Verdict::TooLarge, Some(failed)) => {
                let needed = failed.allocated.saturating_add(failed.size);
                let had = failed.capacity.map_or(String::new(), |had| format!(" and had {}", bytes(had)));
                let most = top.map_or(String::new(), |top| {
                    let share = top.bytes as f64 / self.peak_allocated.max(1) as f64;
                    format!(" Most of it, {} ({}), is held by {}.", bytes(top.bytes), percent(share), top.site)
                });
                format!("Too large: the job needed {} at once{had}.{most}", bytes(needed))
            }
            _ => self.held(verdict),
        }
    }

    // Nothing failed.
    fn held(&self, verdict: Verdict) -> String {
        let Some(before) = self.before else {
            return format!("The program needs {} at its peak.", bytes(self.peak_allocated));
        };
        let who = if before.allocator == "actual" { "The job".to_owned() } else { before.label.to_owned() };
        let (verb, moment) = if self.state_only { ("holds", "") } else { ("held", " at its peak") };
        if verdict == Verdict::Healthy {
            return format!(
                "Healthy: {} {verb} {} and used {} of it{moment}.",
                if before.allocator == "actual" { "the job" } else { &who },
                bytes(before.peak_reserved),
                percent(before.efficiency)
            );
        }
        format!(
            "Fragmentation: {} {verb} {} to use {}{moment}; {} ({}) lay empty.",
            if before.allocator == "actual" { "the job" } else { &who },
            bytes(before.peak_reserved),
            bytes(self.peak_allocated),
            bytes(before.wasted),
            percent(1.0 - before.efficiency),
        )
    }

    /// What to do, the best first.
    pub fn advice(&self, verdict: Verdict) -> Vec<Advice> {
        if self.state_only {
            let text = "This file is the state of one moment. To see what came before it, record a history: `stalloc trace`, or \
                        torch.cuda.memory._record_memory_history() before training and _dump_snapshot() after a few steps.";
            return vec![Advice { text: text.into(), command: Some("stalloc trace -o traces -- COMMAND".into()) }];
        }
        match verdict {
            Verdict::Fragmentation => self.against_fragmentation(),
            Verdict::Growth => self.against_growth(),
            Verdict::TooLarge => self.against_size(),
            Verdict::Healthy => Vec::new(),
        }
    }

    fn find(&self, name: &str) -> Option<&AllocatorFigures> {
        self.allocators.iter().find(|one| one.allocator == name)
    }

    /// The job's command as it was recorded.
    fn command(&self) -> &str {
        self.trace.metadata.get("command").map_or("COMMAND", String::as_str)
    }

    /// What an allocator would give, where it would help: past the failure, or less memory.
    fn helps<'a>(&self, one: Option<&'a AllocatorFigures>) -> Option<&'a AllocatorFigures> {
        let one = one?;
        let helps = match (self.failed, one.same_device, self.before) {
            (Some(_), Some(fit), _) => matches!(fit, Fit::Yes | Fit::Tight),
            (None, _, Some(before)) => {
                (before.peak_reserved.saturating_sub(one.peak_reserved)) as f64 >= before.peak_reserved as f64 * WORTH
            }
            _ => false,
        };
        helps.then_some(one)
    }

    fn gives(&self, one: &AllocatorFigures) -> String {
        let reserved = self.before.map_or(0, |before| before.peak_reserved);
        match self.failed {
            Some(failed) => format!(
                "on this recording it gets past the request that failed, with {} of {}",
                bytes(one.peak_reserved),
                bytes(failed.capacity.unwrap_or(reserved))
            ),
            None => format!("on this recording it holds {} in place of {}", bytes(one.peak_reserved), bytes(reserved)),
        }
    }

    fn against_fragmentation(&self) -> Vec<Advice> {
        let on = self.trace.settings.as_ref().is_some_and(|settings| settings.expandable_segments);
        let ours = self.helps(self.find("stalloc-auto").or_else(|| self.find("stalloc-open")));
        let theirs = self.helps(self.find("pytorch-expandable")).filter(|_| !on);
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
                command: Some(format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True{others} {}", self.command())),
            });
        }
        if let Some(ours) = ours {
            let text = format!("Run it on stalloc's allocator, with nothing else changed: {}.", self.gives(ours));
            let ours_first = theirs.is_none_or(|theirs| {
                let saved = theirs.peak_reserved.saturating_sub(ours.peak_reserved);
                saved as f64 > theirs.peak_reserved as f64 * WORTH
            });
            let command = Some(format!("stalloc run -- {}", self.command()));
            advice.insert(if ours_first { 0 } else { advice.len() }, Advice { text, command });
        }
        if advice.is_empty() {
            let text = "No allocator gets past it on this recording: ask for less (recomputation, a smaller micro-batch, sharding).";
            advice.push(Advice { text: text.into(), command: None });
        }
        advice
    }

    fn against_growth(&self) -> Vec<Advice> {
        let Some(growth) = self.growth else { return Vec::new() };
        let Some(top) = growth.sites.first().filter(|top| is_named(&top.site)) else {
            let text = "The recording has no call stack of what stays: record it with `stalloc trace`, which keeps one for each block.";
            return vec![Advice {
                text: text.into(),
                command: Some(format!("stalloc trace -o traces -- {}", self.command())),
            }];
        };
        let share = top.bytes as f64 / growth.bytes.max(1) as f64;
        let text = format!(
            "Change what keeps the tensors of {}: {} of what stays is allocated there. Look for a sum of losses (add `loss.item()`), \
             outputs kept in a list (`.detach().cpu()`), a loop without `torch.no_grad()`, or a cache without a limit.",
            top.site,
            percent(share.min(1.0)),
        );
        vec![Advice { text, command: None }]
    }

    fn against_size(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        let Some(top) = self.peak_by_site.first() else { return advice };
        let at_most = |n: usize| -> String {
            let names: Vec<String> = self
                .peak_by_site
                .iter()
                .filter(|one| is_named(&one.site))
                .take(n)
                .map(|one| format!("{} ({})", one.site, bytes(one.bytes)))
                .collect();
            names.join(", ")
        };
        let needed = self.peak_allocated.max(1) as f64;
        let text = match self.resident {
            Some(resident) if (resident as f64) < needed / 2.0 => format!(
                "Need less in a step: {} of the peak is made while it runs. Recompute what the forward pass keeps \
                 (torch.utils.checkpoint) or take a smaller micro-batch. Largest: {}.",
                bytes(self.peak_allocated.saturating_sub(resident)),
                at_most(2)
            ),
            _ if (top.bytes as f64) >= needed / 3.0 && is_named(&top.site) => format!(
                "Make {} smaller: it holds {} of the {} needed. Shard it over GPUs (FSDP), keep it on the CPU until it is needed, or \
                 use a smaller type (bfloat16).",
                top.site,
                bytes(top.bytes),
                bytes(self.peak_allocated)
            ),
            _ => format!(
                "Hold less: most is there before the steps begin. Shard it over GPUs (FSDP), use a smaller type (bfloat16), or drop \
                 what is not trained. Largest: {}.",
                at_most(3)
            ),
        };
        advice.push(Advice { text, command: None });
        advice
    }
}
