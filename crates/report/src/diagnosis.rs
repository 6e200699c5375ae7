//! What is wrong with a job's memory: the verdict, its cause, and the facts that they rest on.
//!
//! Each cause rests on something that was seen: sizes that grow, a line of the call stack, empty memory in private pools, states that
//! are still to be made, an exception's frames, the memory of others. None rests on the shape of a program.

use stalloc_trace::{BlockState, StackId, Trace};

use crate::facts::{Facts, HolderBytes, MANY};
use crate::figures::{AllocatorFigures, Growth, OutOfMemory, SiteBytes, Verdict, VerdictCause};
use crate::words::{bytes, percent};

/// Less than this share of what is held, empty at the peak, is no fragmentation to speak of.
pub(crate) const FRAGMENTED: f64 = 0.1;
/// Nor is less than this, bytes: PyTorch takes memory in pieces of up to 20 MiB.
const FRAGMENTED_BYTES: u64 = 64 << 20;
/// Of the memory that a job had when it failed, this share must have been empty for fragmentation to be the cause.
pub(crate) const EMPTY: f64 = 0.02;
/// What climbs is the cause of a failure if it makes up this share of what was needed; so is what an exception holds.
pub(crate) const GROWN: f64 = 0.1;
/// A line, a pool or another process is the cause if it takes this share.
pub(crate) const MOST: f64 = 0.25;

/// Whether a program keeps what is held by a name of its own.
pub(crate) fn is_kept(kind: &str) -> bool {
    const OTHERS: &str = " parameters gradients buffer optimizer_states exception garbage hook graph graph_of_many variable local native ";
    !OTHERS.contains(&format!(" {kind} "))
}

/// The verdict with what it rests on.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    pub verdict: Verdict,
    /// Why; none where nothing is wrong or nothing tells.
    pub cause: Option<VerdictCause>,
    pub facts: Vec<String>,
    pub holder: Option<HolderBytes>,
}

/// What a diagnosis is made from.
pub struct Evidence<'a> {
    /// The trace, with what failed counted in.
    pub trace: &'a Trace,
    pub known: Option<&'a Facts>,
    pub holders: &'a [HolderBytes],
    /// What the rest is measured against: the recorded run, else PyTorch's allocator.
    pub before: Option<&'a AllocatorFigures>,
    pub failed: Option<&'a OutOfMemory>,
    /// The call stack of the request that failed.
    pub failed_stack: StackId,
    /// The most that the line asked for until shortly before, where it has often.
    pub usual: Option<u64>,
    /// Steps that were over when it failed.
    pub steps: usize,
    pub growth: Option<&'a Growth>,
    pub enlarged: Option<&'a Growth>,
    pub peak_by_site: &'a [SiteBytes],
    /// Bytes of the peak by what the call stacks go through.
    pub through: Through,
    /// Bytes of the peak that were there before the first step, where that is known.
    pub resident: Option<u64>,
    /// Most live bytes, with what failed.
    pub peak_allocated: u64,
}

/// Live bytes at the peak whose call stacks go through some place, and whether that of the failed request does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Through {
    /// A loss over classes.
    pub loss: u64,
    /// An optimizer's step.
    pub optimizer: u64,
    /// DistributedDataParallel's construction.
    pub buckets: u64,
    /// Sites of models that are built or moved to the device.
    pub built: u64,
}

impl Evidence<'_> {
    /// The diagnosis.
    pub fn diagnosis(&self) -> Diagnosis {
        let mut facts = Vec::new();
        let (verdict, cause, holder) = self.decide(&mut facts);
        let holder = holder.or_else(|| self.holder_of(verdict)).cloned();
        if let Some(one) = &holder {
            let tensors = if one.blocks > 1 { format!(" in {} tensors", one.blocks) } else { String::new() };
            facts.push(format!("{} holds {}{tensors}.", capital(&one.holder), bytes(one.bytes)));
        }
        if let Some(followed) = self.known.map(|known| known.followed).filter(|followed| *followed > 0) {
            facts.push(format!("It was the first to fail: {followed} more requests failed after it."));
        }
        Diagnosis { verdict, cause, facts, holder }
    }

    fn decide(&self, facts: &mut Vec<String>) -> (Verdict, Option<VerdictCause>, Option<&HolderBytes>) {
        let Some(failed) = self.failed else { return self.without_failure(facts) };
        let needed = failed.allocated.saturating_add(failed.size);
        let share = |part: u64| part as f64 / needed.max(1) as f64;
        if let Some(known) = self.known
            && let Some(found) = self.outside(known, facts)
        {
            return found;
        }
        let exception = self.holders.iter().find(|one| one.kind == "exception");
        if let Some(one) = exception.filter(|one| share(one.bytes) >= GROWN) {
            let which = if one.holder.starts_with("the ") {
                "The request failed while an exception was being handled, whose frames still hold the failed try."
            } else {
                "An earlier exception is kept, and with it the frames that it came through."
            };
            facts.push(which.into());
            let many =
                !one.holder.starts_with("the ") && self.growth.is_some_and(|growth| share(growth.bytes) >= GROWN);
            let verdict = if many { Verdict::Growth } else { Verdict::TooLarge };
            return (verdict, Some(VerdictCause::Exception), Some(one));
        }
        if let Some(growth) = self.enlarged {
            facts.push(format!(
                "{} is made anew {} times, larger each time, while the one before it lives: {} in all at the end.",
                growth.sites.first().map_or("It", |one| &one.site),
                growth.steps,
                bytes(growth.sites.first().map_or(0, |one| one.bytes)),
            ));
            return (Verdict::Growth, Some(VerdictCause::Enlarged), self.holder_at(growth));
        }
        let (empty, pools) = self.private_pools();
        // What grew may lie between the empty pieces: without it they would be whole.
        // One tensor in each layer piles up within a forward pass, and no further.
        let layers = self.holders.iter().find(|one| one.is_bounded && one.kind == "attribute");
        let grown = self.growth.filter(|growth| {
            share(growth.bytes) >= GROWN && layers.is_none_or(|one| one.bytes.saturating_mul(2) < growth.bytes)
        });
        if pools > 1
            && empty >= failed.size.max(1)
            && share(empty) >= GROWN
            && grown.is_none_or(|growth| growth.bytes < empty * 2)
        {
            facts.push(format!(
                "{} lie empty in {pools} private pools of CUDA graphs, where nothing else can use them.",
                bytes(empty)
            ));
            return (Verdict::Fragmentation, Some(VerdictCause::GraphPools), None);
        }
        if let Some(growth) = grown {
            facts.push(format!(
                "Live memory climbs over the last {} steps, by {} each; {} in all.",
                growth.steps,
                bytes(growth.bytes_per_step),
                bytes(growth.bytes)
            ));
            let holder = self.holder_at(growth);
            return (Verdict::Growth, Some(self.why_it_grows(holder, facts)), holder);
        }
        if let Some(one) = self.filled(needed) {
            facts.push("It has filled up piece by piece, as long as was recorded.".into());
            return (Verdict::Growth, Some(self.why_it_grows(Some(one), facts)), Some(one));
        }
        self.size(failed, needed, facts)
    }

    fn without_failure(&self, facts: &mut Vec<String>) -> (Verdict, Option<VerdictCause>, Option<&HolderBytes>) {
        let before = self
            .before
            .filter(|one| one.wasted >= FRAGMENTED_BYTES && one.wasted as f64 >= one.peak_reserved as f64 * FRAGMENTED);
        match (self.growth, before) {
            (Some(growth), _) => {
                let holder = self.holder_at(growth);
                (Verdict::Growth, Some(self.why_it_grows(holder, facts)), holder)
            }
            (None, Some(_)) => (Verdict::Fragmentation, Some(VerdictCause::Pieces), None),
            (None, None) if self.trace.is_cut => {
                facts.push("The recording has no end: the process was killed, or is still running.".into());
                (Verdict::Unknown, Some(VerdictCause::CutOff), None)
            }
            (None, None) => (Verdict::Healthy, None, None),
        }
    }

    fn why_it_grows(&self, holder: Option<&HolderBytes>, facts: &mut Vec<String>) -> VerdictCause {
        match holder.map(|one| &*one.kind) {
            Some("hook") => VerdictCause::Hook,
            Some("garbage") => {
                facts.push(
                    "Nothing but themselves refers to these objects: Python's garbage collector has not run.".into(),
                );
                VerdictCause::Cycles
            }
            Some("graph" | "graph_of_many") => {
                if self.trains_nothing(holder) {
                    facts.push(self.no_training());
                    VerdictCause::NoGrad
                } else {
                    VerdictCause::Graph
                }
            }
            _ => {
                if let Some((one, used)) = holder.and_then(|one| Some((one, one.used?))) {
                    facts.push(format!(
                        "The tensors use {} of the {} that they keep: they are views of larger ones.",
                        bytes(used),
                        bytes(one.bytes)
                    ));
                }
                VerdictCause::Kept
            }
        }
    }

    /// The holder that what climbs is of: one that is filled, by the lines where what stays was allocated.
    fn holder_at(&self, growth: &Growth) -> Option<&HolderBytes> {
        let fills = |one: &&HolderBytes| {
            !matches!(&*one.kind, "parameters" | "gradients" | "optimizer_states" | "native" | "local")
        };
        let at_site =
            |one: &&HolderBytes| growth.sites.iter().take(4).any(|site| one.site.as_deref() == Some(&*site.site));
        let mut filled = self.holders.iter().filter(fills);
        let large = |one: &&HolderBytes| one.bytes >= growth.bytes / 4;
        let of_model = |one: &&HolderBytes| matches!(&*one.kind, "parameters" | "optimizer_states");
        filled
            .clone()
            .find(|one| at_site(one) && large(one))
            .or_else(|| filled.find(large))
            .or_else(|| self.holders.iter().find(|one| of_model(one) && at_site(one) && large(one)))
    }

    /// What holds many tensors and a good part, and came one by one; or in a program whose live memory has climbed all along.
    fn filled(&self, needed: u64) -> Option<&HolderBytes> {
        let series = &self.known?.series;
        let quarter = series.len() / 4;
        let mean = |i: usize| {
            series[i * quarter..(i + 1) * quarter].iter().map(|one| one.1 as f64).sum::<f64>() / quarter as f64
        };
        let means = [0, 1, 2, 3].map(mean);
        let climbs = quarter >= 4
            && means.windows(2).all(|pair| pair[0] < pair[1])
            && means[3] - means[0] >= needed as f64 * GROWN;
        let holds = |one: &&HolderBytes| {
            (is_kept(&one.kind) || matches!(&*one.kind, "hook" | "graph_of_many"))
                && one.blocks >= MANY
                && one.bytes as f64 >= needed as f64 * GROWN
        };
        self.holders.iter().filter(|one| climbs || one.is_filled).find(holds)
    }

    pub(crate) fn held_as(&self, kind: &str) -> Option<&HolderBytes> {
        self.holders.iter().find(|one| one.kind == kind)
    }

    /// The largest holder, where the verdict is of no certain one.
    fn holder_of(&self, verdict: Verdict) -> Option<&HolderBytes> {
        let named = self.holders.first().filter(|one| verdict == Verdict::TooLarge || one.kind != "native");
        named.filter(|_| matches!(verdict, Verdict::TooLarge | Verdict::Growth))
    }

    /// Whether no backward pass will need the graph that is held.
    pub(crate) fn trains_nothing(&self, holder: Option<&HolderBytes>) -> bool {
        let evaluates = self.known.is_some_and(|known| known.evaluating || known.optimizers.is_empty());
        evaluates || holder.is_some_and(|one| one.is_untrained)
    }

    pub(crate) fn no_training(&self) -> String {
        let what = match self.known {
            Some(known) if known.evaluating => "The model is in evaluation mode",
            Some(known) if !known.optimizers.is_empty() => "No optimizer has the parameters that this graph is of",
            _ => "No optimizer exists",
        };
        format!("{what}, and autograd records all the same.")
    }

    /// Bytes that lie empty in private pools, and how many pools there are.
    fn private_pools(&self) -> (u64, usize) {
        let Some(state) = self.trace.last.as_ref() else { return (0, 0) };
        let private = || state.segments.iter().filter(|segment| segment.private_pool != (0, 0));
        let free = private().flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Inactive);
        let pools: std::collections::BTreeSet<_> = private().map(|segment| segment.private_pool).collect();
        (free.map(|block| block.size).fold(0, u64::saturating_add), pools.len())
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A share in words that never say more than it is.
pub fn most_of(part: u64, all: u64) -> String {
    let share = part as f64 / all.max(1) as f64;
    let words = if share > 0.5 { "Most of it" } else { "The largest part" };
    format!("{words}, {} ({})", bytes(part), percent(share))
}
