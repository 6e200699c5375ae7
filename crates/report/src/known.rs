//! What is known of a job's memory, each fact by its name: bytes, counts, words. A fact that nobody saw is `None`.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stalloc_trace::{BlockState, Event, Mark, Request, StackId, Time, Trace};

use crate::facts::{Facts, HolderBytes, MANY, OtherProcess, Role, last_backward};
use crate::failure::failures;
use crate::figures::{AllocatorFigures, DeviceFigures, Growth, SiteBytes};
use crate::growth::{GROWN, filled, is_stepless};
use crate::sentence::Named;
use crate::sites::{Passes, Sites, is_named, passes};
use crate::steps::StepSpan;
use crate::words::{bytes, most_of, percent};

/// Of the memory that a job had when it failed, this share must have been empty for fragmentation to be the cause.
const EMPTY: f64 = 0.02;
/// Less than this share of what is held, empty at the peak, is no fragmentation to speak of.
const FRAGMENTED: f64 = 0.1;
/// Nor is less than this, bytes.
const FRAGMENTED_BYTES: u64 = 64 << 20;
/// PyTorch takes memory in pieces of up to this, bytes: with less to spare no allocator would have helped.
const PIECE: u64 = 20 << 20;
/// A loop that is none over steps grows; where this share lies empty that is said in its place: models that are loaded leave 37 %.
const LOADED_EMPTY: f64 = 0.25;
/// The most of a GPU's memory that a process takes outside PyTorch's allocator, bytes: more, and it ran on another GPU.
const OUTSIDE: u64 = 2 << 30;
/// What a text with two decimals of GiB may say too much, bytes.
const ROUNDED: u64 = 8 << 20;

/// What facts are seen in.
pub(crate) struct Seen<'a> {
    pub trace: &'a Trace,
    pub figures: &'a DeviceFigures,
    pub steps: &'a [StepSpan],
    /// What lives when a request failed, else when live bytes are at their peak; by the lines that allocated it.
    pub at_peak: Vec<&'a Request>,
    pub by_site: Vec<SiteBytes>,
}

/// All facts, each unknown where nobody saw it.
macro_rules! known {
    ($($kind:ty: $($name:ident),+;)+) => {
        /// All facts. [`crate::sentence`] fills them in by these names, and `--json` has them as `known`.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Known { $($(pub $name: Option<$kind>,)+)+ }
    };
}

known! {
    // The request that failed: bytes asked for, live then, both, what the process had or could have had (`room` where that was enough),
    // what lacked, what lay empty (with the device's free memory: `unused`); how many failed after it; bytes of tensors where a library
    // failed; its line, the most that this asked for until shortly before, how many times more it is, and what the line has of the peak.
    u64: size, allocated, needed, capacity, room, missing, empty, unused, followed, library, usual, times_usual, site_bytes;
    String: site;
    // The device and the process: `foreign` is neither tensors' nor a usual context's, `others` other processes', `of_command` of these
    // what has the same command.
    u64: total, free, reserved, allowed, foreign, others, of_command, pinned;
    String: processes;
    bool: pinning;
    // Training: bytes of states and gradients that are still to be made, of weights whose optimizers have all states while another has
    // not, of parameters that no model has; what says that a graph serves nothing; what step it died in, how many came after it.
    u64: to_come, trained, orphaned, gradients, later, steps, went_on;
    String: optimizer, evaluates, first;
    bool: grad_enabled, is_uncached, is_inference;
    // Who holds: all graphs (`remade`: of what they keep what is made of parameters alone), all of the model and its training, all
    // attributes of modules, the two largest of several models. The one that a cause is about has its facts too: see `with`.
    u64: graphs, remade, model, attributes, models_bytes, second_model;
    String: models;
    bool: climbs, is_piecemeal, is_recorded, is_replayed;
    // What climbs, where it counts: bytes in all, of a step or of a turn of a loop, over how many, allocated where; what was filled.
    u64: grown, grown_per_step, grown_per_turn, grown_steps, piled, filled, enlarged, enlarged_by, enlarged_times;
    String: grown_site, turns_of, enlarged_site;
    Vec<String>: grown_sites;
    // Private pools of CUDA graphs: how many, and bytes that lie empty in them.
    u64: pools, pools_empty;
    // Of the peak: bytes by what their call stacks go through (`made_for_weights`: an optimizer, or a backward pass, in the size of a
    // weight; `copied`: none of these, at the line that failed, in such a size), what was there before the first step and what was not.
    u64: loss, buckets, built, made_for_weights, copied, loaded, forward, gathered, resident, made, peak;
    bool: fails_in_loss, fails_in_optimizer, fails_in_build, fails_in_forward, fails_in_backward;
    String: loaded_site, top_site, most, largest;
    // What the job, or the allocator that stands for it, held; of that whole free segments, pieces, and shares in words.
    u64: held, held_now, cache, pieces;
    String: job, used_share, empty_share;
    bool: is_fragmented, is_cut;
    // The exception that ended the program, and where. For commands: the job's, and the card as `--dry-run` takes it.
    String: ended_by, command, gpu;
}

impl Known {
    /// By name, for sentences.
    pub fn named(&self) -> Named {
        match serde_json::to_value(self) {
            Ok(Value::Object(named)) => named,
            _ => Named::new(),
        }
    }

    /// The same, with what is known of one holder: its name, `holder_kind`, `is_bounded`.
    pub fn with(&self, holder: Option<&HolderBytes>) -> Named {
        let mut known = self.named();
        if let Some(one) = holder
            && let Ok(Value::Object(facts)) = serde_json::to_value(one)
        {
            let said =
                facts.into_iter().filter(|(name, fact)| !(fact == "" || name == "blocks" && fact.as_u64() <= Some(1)));
            let is_name = |name: &str| name == "holder" || name.starts_with("is_");
            known.extend(said.map(|(name, fact)| (if is_name(&name) { name } else { format!("holder_{name}") }, fact)));
            known.insert("is_kept".into(), one.kind.is_of(Role::KEPT).into());
        }
        known
    }

    /// Everything that is known of a device.
    pub fn of(
        of: &Seen<'_>,
        facts: Option<&Facts>,
        before: Option<&AllocatorFigures>,
        enlarged: Option<&Growth>,
    ) -> Known {
        let mut known =
            Known { peak: Some(of.figures.peak_allocated), is_cut: Some(of.trace.is_cut), ..Known::default() };
        known.is_recorded = Some(of.trace.metadata.contains_key("launch"));
        if let Some(facts) = facts {
            known.see_process(facts);
        }
        known.see_failure(of);
        known.see_holders(&of.figures.holders);
        known.see_peak(of);
        known.see_job(of, before);
        known.see_pools(of.trace);
        known.see_steps(of, facts);
        known.see_growth(of, facts, enlarged);
        known.climbs = Some(known.grown.or(known.filled).is_some());
        known.is_piecemeal = known.would_fit();
        known.is_replayed = Some(!of.figures.state_only);
        known.see_command(of.trace, facts);
        known
    }

    fn see_failure(&mut self, of: &Seen<'_>) {
        let Some(failed) = &of.figures.out_of_memory else { return };
        let needed = failed.allocated.saturating_add(failed.size);
        self.size = Some(failed.size);
        self.allocated = Some(failed.allocated);
        self.needed = Some(needed);
        self.capacity = failed.capacity;
        self.room = failed.capacity.filter(|capacity| needed <= *capacity);
        self.missing = failed.capacity.map(|capacity| needed.saturating_sub(capacity));
        self.empty = failed.empty;
        self.unused = failed.capacity.map(|capacity| capacity.saturating_sub(failed.allocated));
        self.site.clone_from(&failed.site);
        self.library = (failed.size == 0).then_some(failed.allocated);
        if let Some(failed) = failures(of.trace).next().filter(|failed| failed.stack != StackId::NONE) {
            let Passes { loss, optimizer, built, forward, backward, .. } = passes(of.trace, failed.stack);
            (self.fails_in_loss, self.fails_in_optimizer, self.fails_in_build) =
                (Some(loss), Some(optimizer), Some(built));
            (self.fails_in_forward, self.fails_in_backward) = (Some(forward && !backward), Some(backward));
            // A backward pass and an optimizer's step run without autograd.
            self.is_inference = self.is_inference.map(|known| known && !backward && !optimizer);
        }
        // The most that the line asked for in the first nine tenths of its requests, if there are ten; those of a training say nothing
        // of an evaluation.
        let sites = &mut Sites::new(of.trace);
        let from = last_backward(of.trace, sites).filter(|_| self.is_inference == Some(true));
        self.usual = failed.site.as_deref().and_then(|site| {
            let is_before = |one: &&Request| one.alloc > from && one.alloc < Some(failed.time);
            let before = of.trace.requests.iter().filter(is_before);
            let sizes: Vec<u64> = before.filter(|one| *sites.known(one.stack) == *site).map(|one| one.size).collect();
            sizes[..sizes.len() * 9 / 10].iter().max().copied().filter(|_| sizes.len() >= 10)
        });
        let at_site = of.by_site.iter().find(|one| Some(&*one.site) == failed.site.as_deref());
        self.site_bytes = at_site.map(|one| one.bytes);
        self.times_usual = self.usual.map(|usual| failed.size / usual.max(1));
    }

    fn see_process(&mut self, facts: &Facts) {
        (self.total, self.free, self.reserved) = (facts.total, facts.free, facts.reserved);
        (self.allowed, self.pinning, self.pinned) = (facts.allowed, facts.pinning, facts.pinned);
        (self.grad_enabled, self.is_uncached) = (facts.grad_enabled, facts.is_uncached);
        self.followed = Some(facts.followed).filter(|followed| *followed > 0);
        self.foreign = self.total.zip(self.free).zip(self.reserved).map(|((total, free), reserved)| {
            let context = (total / 5).min(768 << 20);
            total.saturating_sub(free).saturating_sub(reserved).saturating_sub(context)
        });
        if let Some(processes) = &facts.processes {
            let others: Vec<_> = processes.iter().filter(|one| one.pid != facts.pid && one.bytes > 0).collect();
            self.others = Some(others.iter().map(|one| one.bytes).fold(0, u64::saturating_add));
            let same = others.iter().filter(|one| !one.name.is_empty() && facts.command.starts_with(&one.name));
            self.of_command = Some(same.map(|one| one.bytes).fold(0, u64::saturating_add)).filter(|bytes| *bytes > 0);
            self.processes = Some(said_of(&others)).filter(|said| !said.is_empty());
        }
        self.gradients = facts.missing_gradients;
        self.remade = facts.remade.filter(|bytes| *bytes > 0);
        self.loss = facts.logits.filter(|bytes| *bytes > 0);
        if let Some(optimizers) = &facts.optimizers {
            let most = optimizers.iter().max_by_key(|one| one.missing);
            self.optimizer = most.map(|one| one.name.clone());
            self.to_come = Some(optimizers.iter().map(|one| one.missing).fold(0, u64::saturating_add));
            self.orphaned = Some(optimizers.iter().map(|one| one.orphaned).fold(0, u64::saturating_add));
            let trained = optimizers.iter().filter(|one| one.missing == 0).map(|one| one.parameters);
            self.trained =
                Some(trained.fold(0, u64::saturating_add)).filter(|bytes| *bytes > 0 && self.to_come > Some(0));
        }
        self.later = self.to_come.zip(self.gradients).map(|(states, gradients)| states.saturating_add(gradients));
        self.evaluates = match (facts.evaluating, &facts.optimizers) {
            (Some(true), _) => Some("The model is in evaluation mode".into()),
            (_, Some(optimizers)) if optimizers.is_empty() => Some("No optimizer exists".into()),
            _ => None,
        };
        self.is_inference = Some(facts.evaluating == Some(true) || facts.grad_enabled == Some(false));
    }

    fn see_holders(&mut self, holders: &[HolderBytes]) {
        if holders.is_empty() {
            return;
        }
        let sum = |kinds: &[Role]| {
            let all = holders.iter().filter(|one| one.kind.is_of(kinds));
            Some(all.map(|one| one.bytes).fold(0, u64::saturating_add))
        };
        self.graphs = sum(Role::GRAPHS);
        self.model = sum(Role::MODEL);
        let bounded = holders.iter().filter(|one| one.is_bounded && one.kind == Role::Attribute);
        self.attributes = Some(bounded.map(|one| one.bytes).fold(0, u64::saturating_add));
        let models: Vec<&HolderBytes> = holders.iter().filter(|one| one.kind == Role::Parameters).collect();
        self.models_bytes = sum(&[Role::Parameters]);
        if let [HolderBytes { holder: first, .. }, HolderBytes { holder: second, bytes, .. }, ..] = models[..] {
            self.second_model = Some(*bytes);
            self.models = Some(format!("{} models are on the GPU: {first} and {second} hold most.", models.len()));
        }
    }

    /// Bytes of the peak by what their call stacks go through; where the request that failed does.
    fn see_peak(&mut self, of: &Seen<'_>) {
        let top = of.by_site.first().filter(|top| is_named(&top.site));
        self.top_site = top.map(|top| top.site.to_string());
        self.most = top.map(|top| most_of(top.bytes, self.needed.unwrap_or(of.figures.peak_allocated)));
        let named = of.by_site.iter().filter(|one| is_named(&one.site)).take(3);
        let largest: Vec<String> = named.map(|one| format!("{} ({})", one.site, bytes(one.bytes))).collect();
        self.largest = Some(largest.join(", ")).filter(|largest| !largest.is_empty());
        if !of.figures.has_stacks {
            return;
        }
        let stacks: HashSet<StackId> = of.at_peak.iter().map(|request| request.stack).collect();
        let known: HashMap<StackId, Passes> = stacks.into_iter().map(|one| (one, passes(of.trace, one))).collect();
        let built = of.at_peak.iter().filter(|request| known[&request.stack].built);
        let weights: BTreeSet<u64> = built.map(|request| request.size).collect();
        let mut sums = [0u64; 8];
        let (mut unknown, mut copied) = (0u64, 0u64);
        let sites = &mut Sites::new(of.trace);
        for request in of.at_peak.iter() {
            let through = known[&request.stack];
            let is_forward = through.forward && !through.built;
            let is_for_weights = through.optimizer || through.backward && weights.contains(&request.size);
            let Passes { loss, buckets, built, gathered, loaded, optimizer, forward, backward } = through;
            let is_other = forward || backward || built || loaded || optimizer || !weights.contains(&request.size);
            if !is_other && self.site.as_deref() == Some(&*sites.known(request.stack)) {
                copied = copied.saturating_add(request.rounded());
            }
            let all = [loss, buckets, built, is_forward, gathered, is_for_weights, loaded, optimizer];
            for (sum, _) in sums.iter_mut().zip(all).filter(|(_, passes)| *passes) {
                *sum = sum.saturating_add(request.rounded());
            }
            unknown = unknown.saturating_add(if request.stack == StackId::NONE { request.rounded() } else { 0 });
        }
        // What no stack is known of may be of any of them.
        let sum = |at: usize| Some(sums[at]).filter(|sum| *sum > 0 || unknown == 0);
        self.loss = self.loss.max(sum(0));
        (self.buckets, self.built, self.forward, self.gathered) = (sum(1), sum(2), sum(3), sum(4));
        self.made_for_weights = sum(5).filter(|sum| *sum > 0);
        // An optimizer that has made no states may use those of a file, twice as large as the model.
        let adopted = if sums[7] < sums[2] { sums[2].saturating_mul(2) } else { 0 };
        self.loaded = Some(sums[6].saturating_sub(adopted)).filter(|sum| *sum > 0);
        self.copied = self.size.filter(|size| copied > 0 && weights.contains(size)).map(|_| copied);
        let mut of_file = of.by_site.iter().filter(|one| one.bytes == sums[6]);
        self.loaded_site = of_file.next().map(|one| one.site.to_string());
    }

    /// What the job held, or the allocator that stands for it.
    fn see_job(&mut self, of: &Seen<'_>, before: Option<&AllocatorFigures>) {
        let Some(before) = before else { return };
        let is_state = of.figures.state_only;
        self.job = Some(if before.allocator == "actual" { "the job".into() } else { before.label.into() });
        (self.held, self.held_now) =
            if is_state { (None, Some(before.peak_reserved)) } else { (Some(before.peak_reserved), None) };
        // A segment without a block is cache: the allocator gives it back where memory is short.
        let state = of.trace.last.as_ref().or(of.trace.initial.as_ref()).filter(|_| is_state);
        self.cache = state.map(|state| {
            let is_used = |block: &stalloc_trace::RecordedBlock| block.state != BlockState::Inactive;
            let whole = state.segments.iter().filter(|segment| !segment.blocks.iter().any(is_used));
            whole.map(|segment| segment.size).fold(0, u64::saturating_add)
        });
        // What is held at most and what is used at most need not be of one moment.
        let cache = self.cache.or((!is_state).then_some(before.holes.free_segments_bytes));
        let most = before.wasted.min(self.empty.unwrap_or(u64::MAX));
        self.cache = cache.map(|bytes| bytes.min(most)).filter(|bytes| *bytes > 0);
        let pieces = before.wasted.saturating_sub(self.cache.unwrap_or(0));
        let held = before.peak_reserved.max(1) as f64;
        self.pieces = Some(pieces);
        self.used_share = Some(percent(before.efficiency));
        self.empty_share = Some(percent(pieces as f64 / held));
        self.is_fragmented = Some(pieces >= FRAGMENTED_BYTES && pieces as f64 >= held * FRAGMENTED);
    }

    /// Bytes that lie empty in private pools, and how many pools there are.
    fn see_pools(&mut self, trace: &Trace) {
        let Some(state) = trace.last.as_ref() else { return };
        let private = || state.segments.iter().filter(|segment| segment.private_pool != (0, 0));
        let free = private().flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Inactive);
        self.pools_empty = Some(free.map(|block| block.size).fold(0, u64::saturating_add));
        self.pools = Some(private().map(|segment| segment.private_pool).collect::<BTreeSet<_>>().len() as u64);
    }

    /// What was there before the first step, and whether it died in that one.
    fn see_steps(&mut self, of: &Seen<'_>, facts: Option<&Facts>) {
        let is_begin = |event: &Event| matches!(event, Event::Mark(Mark::StepBegin));
        let marked = of.trace.events.iter().position(is_begin).map(|time| time as Time);
        // What repeats is no step where no optimizer exists.
        let is_step = self.to_come.is_none() || self.optimizer.is_some();
        let begin = of.steps.first().map(|step| step.begin).filter(|_| is_step);
        if let Some(first) = marked.or(begin) {
            let there = of.at_peak.iter().filter(|request| request.alloc.is_none_or(|alloc| alloc < first));
            let resident = there.fold(0, |sum: u64, request| sum.saturating_add(request.rounded()));
            // What is taken for the first step while a model is built is none.
            self.resident = Some(resident).filter(|resident| self.built.is_none_or(|built| built <= *resident));
            let needed = self.needed.unwrap_or(of.figures.peak_allocated);
            self.made = self.resident.map(|resident| needed.saturating_sub(resident));
        }
        let counted = facts.and_then(|facts| facts.steps).map(|begun| begun.saturating_sub(1));
        let none_yet = facts.filter(|facts| facts.is_before_first_step()).map(|_| 0);
        // A step that a request failed in is not done, as far as marks tell.
        let failed = failures(of.trace).next();
        let is_done = |step: &&StepSpan| marked.and(failed).is_none_or(|failed| step.end <= failed.time);
        self.steps = if of.figures.steps > 0 && !is_stepless(of.trace) {
            Some(of.steps.iter().filter(is_done).count() as u64)
        } else {
            counted.or(marked.map(|_| 0)).or(none_yet)
        };
        // The failed request is one of the trace, of three events; what was noted of it is of a program that ended.
        let survived = of.figures.out_of_memory.as_ref().filter(|_| facts.is_none());
        let later = |time: Time| of.steps.iter().filter(|step| step.begin > time + 3).count();
        self.went_on = survived.map(|failed| later(failed.time) as u64);
        let site = of.figures.out_of_memory.as_ref().and_then(|failed| failed.site.as_deref()).unwrap_or("");
        let is = |fact: Option<bool>| fact == Some(true);
        let phase = match (is(self.fails_in_backward) || site.ends_with("(backward)"), is(self.fails_in_forward)) {
            (true, _) => "in its first backward pass",
            (_, true) => "in its first forward pass",
            _ => "before its first step was done",
        };
        let is_first = self.steps == Some(0) && !is(self.fails_in_build) && !is(self.fails_in_optimizer);
        self.first = is_first.then(|| phase.into());
    }

    /// What climbs, where it counts; in a job that failed as a good part of what was needed. What lies empty is asked first where
    /// no step is known.
    fn see_growth(&mut self, of: &Seen<'_>, facts: Option<&Facts>, enlarged: Option<&Growth>) {
        let holders = &of.figures.holders;
        if let Some(growth) = enlarged {
            self.enlarged = growth.sites.first().map(|one| one.bytes);
            self.enlarged_by = Some(growth.bytes_per_step);
            self.enlarged_times = Some(growth.steps as u64);
            self.enlarged_site = growth.sites.first().map(|one| one.site.to_string());
            self.piled = self.needed.map(|_| growth.bytes);
        }
        // One tensor in each layer piles up within a forward pass, and no further.
        let layers = holders.iter().find(|one| one.is_bounded && one.kind == Role::Attribute);
        let ended_empty = || Some(self.pieces? as f64 >= self.held? as f64 * LOADED_EMPTY && self.needed.is_none());
        let is_empty = self.would_fit() == Some(true) || ended_empty() == Some(true);
        let is_part = |bytes: u64| self.needed.is_none_or(|needed| bytes as f64 >= needed as f64 * GROWN);
        let is_most = |bytes: u64| self.needed.is_some_and(|needed| bytes > needed / 2);
        // Of what was filled for long the recording has seen the end.
        let is_end_of = |growth: &Growth| {
            let sites = || growth.sites.iter().take(2).map(|one| &*one.site);
            let keeps = |kind: Role| kind.is_of(Role::KEPT) || kind == Role::GraphOfMany;
            let fills = |one: &&HolderBytes| keeps(one.kind) && one.blocks >= MANY && is_part(one.bytes);
            holders.iter().filter(fills).any(|one| sites().any(|site| one.site.as_deref() == Some(site)))
        };
        // States that an optimizer makes in its first step pile up, and no further.
        let are_states = self.fails_in_optimizer == Some(true) && self.to_come > Some(0)
            || self.copied.is_some() && self.steps == Some(0);
        let new = |one: &&HolderBytes| one.kind == Role::OptimizerStates && one.is_pending;
        let at_new = |site: &str| holders.iter().filter(new).any(|one| one.site.as_deref() == Some(site));
        let are_new = |growth: &Growth| are_states || growth.sites.first().is_some_and(|one| at_new(&one.site));
        let counts = |growth: &&Growth| {
            !(growth.turns_of.is_some() && are_new(growth))
                && enlarged.is_none()
                && (is_part(growth.bytes) || is_end_of(growth))
                && (self.needed.is_none() || layers.is_none_or(|one| one.bytes.saturating_mul(2) < growth.bytes))
                && (growth.turns_of.is_none() || !is_empty || is_end_of(growth) || is_most(growth.bytes))
        };
        if let Some(growth) = of.figures.growth.as_ref().filter(counts) {
            let each = Some(growth.bytes_per_step);
            self.grown = Some(growth.bytes);
            (self.grown_per_step, self.grown_per_turn) =
                if growth.turns_of.is_none() { (each, None) } else { (None, each) };
            self.grown_steps = Some(growth.steps as u64);
            self.grown_site = growth.sites.first().map(|one| one.site.to_string()).filter(|site| is_named(site));
            self.grown_sites = Some(growth.sites.iter().take(4).map(|one| one.site.to_string()).collect());
            self.turns_of.clone_from(&growth.turns_of);
            self.piled = self.piled.or(self.needed.map(|_| growth.bytes)).filter(|bytes| is_part(*bytes));
        } else if let Some(facts) = facts.filter(|_| self.steps > Some(0) || self.optimizer.is_none()) {
            let needed = self.needed.unwrap_or(u64::MAX);
            let filled = filled(holders, facts, needed, self.steps.unwrap_or(0));
            self.filled = filled.filter(|one| !(are_states && one.is_models)).map(|one| one.bytes);
        }
    }

    /// Whether what was needed would have fitted into what the process had, of which a part lay empty: in the first step a good part, with
    /// room for gradients, also that of the request. More is to come there; in its forward pass nobody knows how much.
    fn would_fit(&self) -> Option<bool> {
        let gradients = self.gradients.unwrap_or(0).saturating_sub(self.graphs.unwrap_or(0));
        let is_first = self.steps.map_or(self.is_recorded == Some(true), |steps| steps == 0);
        // Where most of a request would have been the device's free memory, it is large, and what lay empty of no weight. Of what a
        // library asks for no size is known.
        let (capacity, empty, size) = (self.capacity?, self.empty?, self.size.filter(|size| *size > 0)?);
        let gradients = gradients.saturating_add(if self.is_inference == Some(true) { 0 } else { size });
        let is_forward = self.fails_in_forward == Some(true) && self.is_inference != Some(true);
        let (least, more) = if is_first { (FRAGMENTED, gradients) } else { (EMPTY, 0) };
        let is_weighty = empty as f64 >= capacity as f64 * least && empty >= size / 4;
        Some(
            self.needed?.saturating_add(more).saturating_add(PIECE) <= capacity
                && is_weighty
                && !(is_first && is_forward),
        )
    }

    fn see_command(&mut self, trace: &Trace, facts: Option<&Facts>) {
        let given = |of: Option<&String>| of.filter(|text| !text.is_empty()).cloned();
        let command = given(trace.metadata.get("command")).or(given(facts.map(|facts| &facts.command)));
        self.command = Some(command.unwrap_or_else(|| "COMMAND".into()));
        self.ended_by = given(trace.metadata.get("ended_by"));
        let like = |capacity: u64| {
            let all = stalloc_dryrun_setup::GPUS.iter();
            let like = all.filter(|gpu| (gpu.total.saturating_sub(OUTSIDE)..=gpu.total + ROUNDED).contains(&capacity));
            like.min_by_key(|gpu| gpu.total.abs_diff(capacity)).map(|gpu| gpu.name.to_owned())
        };
        let dry_run = given(trace.metadata.get("dry_run")).or(given(facts.map(|facts| &facts.dry_run)));
        let gpu = dry_run.or(self.total.and_then(like)).or(self.capacity.and_then(like));
        let other = || Some(format!("like=h100-80gb,memory={}MiB", self.total.filter(|total| *total >> 32 > 0)? >> 20));
        self.gpu = Some(gpu.or_else(other).unwrap_or_else(|| "GPU".into()));
    }
}

/// The first four commands of other processes: ``process 7 (python serve.py) has 2 GiB``, those of one command together.
fn said_of(others: &[&OtherProcess]) -> String {
    let mut commands: Vec<(&str, Vec<u64>, u64)> = Vec::new();
    for one in others {
        match commands.iter_mut().find(|(name, ..)| !name.is_empty() && *name == one.name) {
            Some((_, pids, held)) => {
                pids.push(one.pid);
                *held = held.saturating_add(one.bytes);
            }
            None => commands.push((&one.name, vec![one.pid], one.bytes)),
        }
    }
    let says = |(name, pids, held): &(&str, Vec<u64>, u64)| {
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        match pids[..] {
            [pid] => format!("process {pid}{name} has {}", bytes(*held)),
            _ => format!("{} processes{name} have {}", pids.len(), bytes(*held)),
        }
    };
    commands.iter().take(4).map(says).collect::<Vec<_>>().join(", ")
}
