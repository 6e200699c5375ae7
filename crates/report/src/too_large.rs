//! What a job is too large by: memory of others, its optimizer's states, what it keeps, a loss, weights, activations.

use crate::diagnosis::{EMPTY, Evidence, FRAGMENTED, GROWN, MOST, is_kept};
use crate::facts::{Facts, HolderBytes};
use crate::figures::{OutOfMemory, Verdict, VerdictCause};
use crate::sites::passes;
use crate::words::bytes;

/// A request is out of line if it is as many times as large as any of its line until shortly before; of many times more it is another kind.
const LEAP: u64 = 4;

impl Evidence<'_> {
    /// Memory that PyTorch's allocator does not have: of the host, of others, of libraries.
    pub(crate) fn outside(
        &self,
        known: &Facts,
        facts: &mut Vec<String>,
    ) -> Option<(Verdict, Option<VerdictCause>, Option<&HolderBytes>)> {
        if known.pinning {
            facts.push(format!(
                "The request was for pinned memory of the host, of which {} are held; the GPU had {} free.",
                bytes(known.pinned),
                bytes(known.free)
            ));
            return Some((Verdict::TooLarge, Some(VerdictCause::PinnedMemory), None));
        }
        let failed = self.failed?;
        let foreign = known.foreign();
        let needed = failed.allocated.saturating_add(failed.size);
        let room = known.free.saturating_add(known.reserved).saturating_add(foreign);
        let limit = known.allowed;
        let asked = known.reserved.saturating_add(failed.size);
        if limit > 0 && limit < known.total && asked > limit && failed.size <= known.free {
            facts.push(format!(
                "The program allows itself {} of the GPU's {}: {} more were free.",
                bytes(limit),
                bytes(known.total),
                bytes(known.free)
            ));
            return Some((Verdict::TooLarge, Some(VerdictCause::Limit), None));
        }
        // Without it the request would have been served.
        if known.total == 0 || (foreign as f64) < known.total as f64 * 0.15 || needed > room {
            return None;
        }
        let others: Vec<_> = known.others().collect();
        let theirs = others.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        if theirs >= foreign / 2 {
            for one in others {
                let name = if one.name.is_empty() { String::new() } else { format!(" ({})", one.name) };
                facts.push(format!("OtherProcess {}{name} has {} of this GPU.", one.pid, bytes(one.bytes)));
            }
            return Some((Verdict::TooLarge, Some(VerdictCause::OtherProcesses), None));
        }
        facts.push(format!(
            "{} of the GPU's {} are taken outside of PyTorch's allocator, by libraries of this process or by others that NVML does not show.",
            bytes(foreign),
            bytes(known.total)
        ));
        Some((Verdict::TooLarge, Some(VerdictCause::Libraries), None))
    }

    pub(crate) fn size(
        &self,
        failed: &OutOfMemory,
        needed: u64,
        facts: &mut Vec<String>,
    ) -> (Verdict, Option<VerdictCause>, Option<&HolderBytes>) {
        let share = |part: u64| part as f64 / needed.max(1) as f64;
        let (fails_in_loss, steps, _, builds) = passes(self.trace, self.failed_stack);
        let (to_come, optimizer) = self.known.map_or((0, ""), Facts::states_to_come);
        if steps || share(self.through.optimizer) >= GROWN && self.resident.is_none_or(|resident| resident == 0) {
            facts.push(if to_come > 0 {
                format!(
                    "It failed in {optimizer}'s first step: {} of its states were still to be made.",
                    bytes(to_come)
                )
            } else {
                "It failed in the optimizer's step.".to_owned()
            });
            if steps {
                return (Verdict::TooLarge, Some(VerdictCause::OptimizerStates), self.held_as("optimizer_states"));
            }
        }
        let later = to_come.saturating_add(self.known.map_or(0, |known| known.missing_gradients));
        if let Some(one) = self.kept(failed, needed, later) {
            facts.push(format!("{} of it are held by {}, which no step needs whole.", bytes(one.bytes), one.holder));
            return (Verdict::TooLarge, Some(VerdictCause::Kept), Some(one));
        }
        if to_come > 0
            && let Some(capacity) = failed.capacity
            && failed.allocated.saturating_add(later) > capacity
            && (needed <= capacity || to_come as f64 >= failed.allocated.saturating_add(later) as f64 * MOST)
        {
            facts.push(format!(
                "It failed before {optimizer}'s first step: {} of states and {} of gradients were still to be made, next to {} that live.",
                bytes(to_come),
                bytes(later - to_come),
                bytes(failed.allocated)
            ));
            return (Verdict::TooLarge, Some(VerdictCause::OptimizerStates), self.held_as("parameters"));
        }
        if let Some(usual) = self.usual.filter(|usual| (LEAP..LEAP << 8).contains(&(failed.size / usual.max(&1)))) {
            let at = failed.site.as_deref().unwrap_or("its line");
            facts.push(format!(
                "Until shortly before, {at} asked for {} at most: this request is {} times as large.",
                bytes(usual),
                failed.size / usual.max(1)
            ));
            return (Verdict::TooLarge, Some(VerdictCause::Outlier), None);
        }
        if self.fragmented(failed, needed) {
            return (Verdict::Fragmentation, Some(VerdictCause::Pieces), None);
        }
        if failed.capacity.is_some_and(|capacity| failed.size > capacity / 2) && !builds {
            let at = failed.site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
            facts.push(format!("One request{at} asks for {}.", bytes(failed.size)));
            return (Verdict::TooLarge, Some(VerdictCause::OneRequest), None);
        }
        let graph = self.holders.iter().find(|one| matches!(&*one.kind, "graph" | "graph_of_many"));
        if self.known.is_some_and(|known| known.grad_enabled)
            && let Some(one) = graph.filter(|one| share(one.bytes) >= MOST && self.trains_nothing(Some(one)))
        {
            facts.push(self.no_training());
            return (Verdict::TooLarge, Some(VerdictCause::NoGrad), Some(one));
        }
        if share(self.through.buckets) >= GROWN {
            facts.push(format!(
                "{} are buckets of DistributedDataParallel, a second copy of the gradients.",
                bytes(self.through.buckets)
            ));
            return (Verdict::TooLarge, Some(VerdictCause::GradientBuckets), None);
        }
        let loss = self.through.loss;
        if fails_in_loss && share(loss) >= GROWN || share(loss) >= MOST {
            facts.push(format!("{} are logits of a loss over classes, or made of them.", bytes(loss)));
            return (Verdict::TooLarge, Some(VerdictCause::Logits), None);
        }
        let models: Vec<&HolderBytes> = self.holders.iter().filter(|one| one.kind == "parameters").collect();
        let weights = models.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        if let [first, second, ..] = models[..]
            && share(weights) >= 0.5
            && share(second.bytes) >= 0.02
        {
            facts.push(format!(
                "{} models are on the GPU: {} and {} hold most.",
                models.len(),
                first.holder,
                second.holder
            ));
            return (Verdict::TooLarge, Some(VerdictCause::Models), Some(first));
        }
        let resident = self.resident.unwrap_or(0).max(weights).max(self.through.built);
        if share(resident) >= 0.5 {
            return (Verdict::TooLarge, Some(VerdictCause::Weights), self.held_as("parameters"));
        }
        (Verdict::TooLarge, Some(VerdictCause::Activations), None)
    }

    /// Whether what was needed would have fitted into what the process had, of which a part lay empty. In a step that is the first,
    /// more is to come: what lay empty must be a good part then, and gradients that are still to be made must fit.
    fn fragmented(&self, failed: &OutOfMemory, needed: u64) -> bool {
        let (Some(empty), Some(capacity)) = (failed.empty, failed.capacity) else { return false };
        let is_first = self.steps == 0;
        let graph = self.known.map_or(0, Facts::held_by_graphs);
        let gradients = self.known.map_or(0, |known| known.missing_gradients).saturating_sub(graph);
        let least = if is_first { FRAGMENTED } else { EMPTY };
        let to_come = if is_first { needed.saturating_add(gradients) } else { needed };
        to_come <= capacity && empty as f64 >= capacity as f64 * least
    }

    /// What the program keeps by a name of its own, and without which it would have had room.
    fn kept(&self, failed: &OutOfMemory, needed: u64, later: u64) -> Option<&HolderBytes> {
        let capacity = failed.capacity?;
        self.holders.iter().find(|one| {
            let rest = needed.saturating_add(later).saturating_sub(one.bytes);
            let share = one.bytes as f64 / needed.max(1) as f64;
            is_kept(&one.kind) && (share >= MOST || share >= GROWN && one.is_loaded && rest <= capacity)
        })
    }
}
