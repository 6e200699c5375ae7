//! What to do: for each cause the one change that helps, with a line to copy.

use stalloc_trace::Trace;

use crate::diagnosis::Diagnosis;
use crate::figures::{Advice, AllocatorFigures, Fit, Growth, OutOfMemory, SiteBytes, Verdict, VerdictCause};
use crate::sites::is_named;
use crate::words::bytes;

/// An advice that saves less than this share is none.
const WORTH: f64 = 0.03;

/// The most of a GPU's memory that a process takes outside PyTorch's allocator: more, and it ran on another GPU.
const OUTSIDE: u64 = 2 << 30;

/// What advice is made from.
pub struct Case<'a> {
    /// The trace, with what failed counted in.
    pub trace: &'a Trace,
    /// What the rest is measured against: the recorded run, else PyTorch's allocator.
    pub before: Option<&'a AllocatorFigures>,
    pub allocators: &'a [AllocatorFigures],
    pub failed: Option<&'a OutOfMemory>,
    pub growth: Option<&'a Growth>,
    pub peak_by_site: &'a [SiteBytes],
    /// Bytes of the peak that were there before the first step, where that is known.
    pub resident: Option<u64>,
    /// Most live bytes, with what failed.
    pub peak_allocated: u64,
    /// The job's command, as it was known when memory ran out.
    pub known_command: Option<&'a str>,
    /// Whether there is neither a history nor anything known of the failure.
    pub state_only: bool,
}

fn line(text: impl Into<String>, code: impl Into<String>) -> Vec<Advice> {
    vec![Advice { text: text.into(), command: Some(code.into()) }]
}

impl Case<'_> {
    /// What to do, the best first.
    pub fn advice(&self, found: &Diagnosis) -> Vec<Advice> {
        if self.state_only {
            let text = "This file is the state of one moment. To see what came before it, record a history: `stalloc trace`, or \
                        torch.cuda.memory._record_memory_history() before training and _dump_snapshot() after a few steps.";
            return line(text, "stalloc trace -o traces -- COMMAND");
        }
        let mut advice = self.against_cause(found);
        if let Some(
            VerdictCause::Logits | VerdictCause::OptimizerStates | VerdictCause::GradientBuckets | VerdictCause::Models,
        ) = found.cause
        {
            let text = "See what this and every other lever gives on your script, without a GPU.";
            advice.push(Advice { text: text.into(), command: Some(self.levers()) });
        }
        let is_tried = |one: &Advice| one.command.as_deref().is_some_and(|line| line.starts_with("stalloc levers"));
        if advice.iter().any(is_tried) {
            let text = "Or have the cheapest that make it fit applied, if any do, before the job starts.";
            advice
                .push(Advice { text: text.into(), command: Some(format!("stalloc run --fit -- {}", self.command())) });
        }
        advice
    }

    fn against_cause(&self, found: &Diagnosis) -> Vec<Advice> {
        let holder = found.holder.as_ref().map_or("what stays", |one| &*one.holder);
        match found.cause {
            Some(VerdictCause::Kept) => self.against_what_is_kept(found),
            Some(VerdictCause::Hook) => line(
                format!("Remove the hook once it has seen enough: {holder} grows with every call."),
                "handle = module.register_forward_hook(hook)  # and afterwards: handle.remove()",
            ),
            Some(VerdictCause::Graph)
                if found.holder.as_ref().is_some_and(|one| one.kind == "graph_of_many" && one.is_pending) =>
            {
                line(
                    format!(
                        "Call backward for each micro-batch, and detach what goes from one to the next: {holder} keeps the activations of many."
                    ),
                    "(loss / micro_batches).backward()  # in the loop, in place of a sum; or hidden = hidden.detach()",
                )
            }
            Some(VerdictCause::Graph) => line(
                format!(
                    "Keep numbers, not losses, and cut the graph between steps: {holder} keeps the activations of each. Call backward without retain_graph."
                ),
                "total += loss.item()  # in a list: losses.append(loss.item()); of a state: hidden = hidden.detach()",
            ),
            Some(VerdictCause::Cycles) => line(
                format!(
                    "Break the cycle when an object is done (`self.x = None`, or a weakref): until the collector runs, {holder} stays."
                ),
                "gc.collect()  # every few steps: frees them until the cycle is gone",
            ),
            Some(VerdictCause::NoGrad) => line(
                "Run what is evaluated, or not trained, without autograd: then no activations are kept.",
                "with torch.no_grad():",
            ),
            Some(VerdictCause::Enlarged) => line(
                "Allocate it once, for the longest sequence, and write into it: torch.cat makes all of it anew, with both in memory.",
                "cache = torch.empty(batch, longest, width, device=\"cuda\")  # then: cache[:, at] = new",
            ),
            Some(VerdictCause::Exception) if !holder.starts_with("the ") => line(
                format!(
                    "Keep the text of an exception, not the exception: {holder} keeps the variables of the frames that it came through."
                ),
                "errors.append(str(error))  # in a notebook: sys.last_value = sys.last_traceback = sys.last_exc = None",
            ),
            Some(VerdictCause::Limit) => line(
                "Allow the program more of the GPU, where nothing else needs it.",
                "torch.cuda.set_per_process_memory_fraction(1.0)",
            ),
            Some(VerdictCause::Outlier) => line(
                "Bound what a batch may hold: cut or bucket the longest samples, and count tokens, not samples.",
                "batch = batch[:, :LONGEST]  # or batches of fewer samples where these are long",
            ),
            Some(VerdictCause::OneRequest) => line(
                "Work in pieces, so that this tensor is never made whole; if its size surprises you, look at the shapes that are broadcast.",
                "results = [work(part) for part in x.split(1024)]",
            ),
            Some(VerdictCause::Exception) => line(
                "Try again after the `except` block, not in it: until it ends, the traceback holds what the failed try made.",
                "except torch.cuda.OutOfMemoryError: failed = True  # and after the block: if failed: ...",
            ),
            Some(VerdictCause::GraphPools) => line(
                "Let all graphs share one pool, which is possible where they are replayed one at a time in the order of capture.",
                "with torch.cuda.graph(graph, pool=first_graph.pool()):",
            ),
            Some(VerdictCause::OtherProcesses) => line(
                "End the other process, or use another GPU. No change of this program makes that memory free.",
                format!("CUDA_VISIBLE_DEVICES=1 {}", self.command()),
            ),
            Some(VerdictCause::Libraries) => line(
                "Find the library that takes memory from CUDA itself (communicators, workspaces, kernels of its own), and have it take less.",
                "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
            ),
            Some(VerdictCause::PinnedMemory) => line(
                "Pin a buffer once and copy into it: pinned memory cannot be swapped out, and the host has no more.",
                "buffer = torch.empty_like(batch, pin_memory=True)  # then for each batch: buffer.copy_(batch)",
            ),
            Some(VerdictCause::OptimizerStates) => line(
                "No allocator helps: take an optimizer with smaller states, or shard them over GPUs (FSDP, ZeroRedundancyOptimizer).",
                "optimizer = torch.optim.Adafactor(model.parameters())  # or bitsandbytes.optim.AdamW8bit",
            ),
            Some(VerdictCause::GradientBuckets) => line(
                "Have gradients live in the buckets: there is one copy of them then.",
                "model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
            ),
            Some(VerdictCause::Logits) => line(
                "Never hold all logits: compute head and loss chunk by chunk, or by a fused linear cross-entropy. Checkpointing layers does not help.",
                "loss = sum(checkpoint(chunk_loss, h, t, use_reentrant=False) for h, t in zip(hidden.chunk(16), targets.chunk(16)))",
            ),
            Some(VerdictCause::Models) => line(
                format!("Keep what is not trained in bfloat16, or on the CPU until it is needed. {}", self.largest(2)),
                "teacher = teacher.to(torch.bfloat16)  # or .to(\"cpu\") between its uses",
            ),
            Some(VerdictCause::Pieces) => self.against_fragmentation(),
            Some(VerdictCause::CutOff) => Vec::new(),
            Some(VerdictCause::Weights | VerdictCause::Activations) => self.against_size(),
            None => match found.verdict {
                Verdict::TooLarge => self.against_size(),
                _ => Vec::new(),
            },
        }
    }

    fn largest(&self, n: usize) -> String {
        let named = self.peak_by_site.iter().filter(|one| is_named(&one.site)).take(n);
        let names: Vec<String> = named.map(|one| format!("{} ({})", one.site, bytes(one.bytes))).collect();
        if names.is_empty() { String::new() } else { format!("Largest: {}.", names.join(", ")) }
    }

    fn against_what_is_kept(&self, found: &Diagnosis) -> Vec<Advice> {
        let top = self.growth.and_then(|growth| growth.sites.first()).filter(|top| is_named(&top.site));
        let Some(one) = &found.holder else { return self.against_growth() };
        let at = top.map_or(String::new(), |top| format!(", which {} allocates,", top.site));
        let (text, command) = match &*one.kind {
            _ if one.used.is_some() => (
                format!(
                    "Keep a copy of the part that is needed: what {} has are views, which keep all of the tensors{at} that they are of.",
                    one.holder
                ),
                "features.append(hidden[:, 0].clone())",
            ),
            _ if one.is_loaded => (
                format!("Load {} to the CPU, and delete it once its values are where they are needed.", one.holder),
                "checkpoint = torch.load(path, map_location=\"cpu\")  # and afterwards: del checkpoint",
            ),
            "queue" => (
                format!("Bound {}: the thread that fills it is ahead of what takes from it.", one.holder),
                "queue.Queue(maxsize=2)",
            ),
            "parameters" => (
                format!("Keep on the GPU what is trained or used now: the {} become more{at}.", one.holder),
                "old.to(\"cpu\")  # and back when it is used",
            ),
            "optimizer_states" => (
                format!("Bound what the optimizer remembers: the {} become more with each step.", one.holder),
                "optimizer = torch.optim.LBFGS(model.parameters(), history_size=10)  # of your optimizer, its own option",
            ),
            "coroutine" | "async_generator" => (
                format!("Let fewer run at a time: {} wait with what they have made.", one.holder),
                "async with semaphore:  # = asyncio.Semaphore(8), around the work",
            ),
            kind if kind == "models" || one.is_models => (
                format!(
                    "Keep on the GPU the model and the optimizer that are used now: {} has all of them.",
                    one.holder
                ),
                "del model, optimizer  # of a copy to keep: copy.deepcopy(model).cpu()",
            ),
            "attribute" if one.is_bounded && found.verdict == Verdict::TooLarge => (
                format!(
                    "Do not keep it, or keep it on the host: {} lives on after the layer that made it.",
                    one.holder
                ),
                "self.kept = tensor.detach().cpu()",
            ),
            _ if found.verdict == Verdict::TooLarge => (
                format!("Make {} smaller, or keep it on the host and bring over what a step needs.", one.holder),
                "part = part.to(\"cuda\", non_blocking=True)",
            ),
            "dataset" => (
                format!(
                    "Keep the samples{at} on the CPU and bring over one batch at a time: {} keeps all of them.",
                    one.holder
                ),
                "batch = batch.to(\"cuda\", non_blocking=True)",
            ),
            _ if !one.content.is_empty() => (
                format!(
                    "Drop each `{}` once it is done with: the tensors{at} stay in {} for as long.",
                    one.content, one.holder
                ),
                "done = kept.pop(0)  # or let each keep numbers: tensor.item(), tensor.cpu()",
            ),
            _ if one.holder.starts_with("lru_cache") => (
                format!("Bound {}: it keeps every tensor{at} that was ever put in.", one.holder),
                "@functools.lru_cache(maxsize=16)",
            ),
            kind if kind == "cache" || one.holder.starts_with("dict") => (
                format!("Bound {}: it keeps every tensor{at} that was ever put in.", one.holder),
                "if len(cache) > LARGEST: cache.pop(next(iter(cache)))",
            ),
            _ => (
                format!(
                    "Keep a copy on the host, or a number, in {}: it keeps every tensor{at} that was ever put in.",
                    one.holder
                ),
                "outputs.append(output.detach().cpu())",
            ),
        };
        line(text, command)
    }

    fn find(&self, name: &str) -> Option<&AllocatorFigures> {
        self.allocators.iter().find(|one| one.allocator == name)
    }

    /// The job's command as it was recorded.
    fn command(&self) -> &str {
        let recorded = self.trace.metadata.get("command").map(String::as_str);
        recorded.or(self.known_command).filter(|command| !command.is_empty()).unwrap_or("COMMAND")
    }

    /// The command that tries what saves memory on the script itself, on a stand-in for the GPU that it ran on.
    fn levers(&self) -> String {
        let capacity = self.failed.and_then(|failed| failed.capacity);
        let gpu = capacity.and_then(|capacity| {
            let all = stalloc_dryrun_setup::GPUS.iter();
            let like = all.filter(|gpu| (gpu.total.saturating_sub(OUTSIDE)..=gpu.total).contains(&capacity));
            like.min_by_key(|gpu| gpu.total - capacity)
        });
        format!("stalloc levers --dry-run {} -- {}", gpu.map_or("GPU", |gpu| gpu.name), self.command())
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
            Some(failed) => {
                let had = failed.capacity.unwrap_or(reserved);
                let held = bytes(one.peak_reserved.min(had));
                format!("on this recording it gets past the request that failed, with {held} of {}", bytes(had))
            }
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
        let text = format!(
            "Change what keeps the tensors of {}. Look for a sum of losses (add `loss.item()`), outputs kept in a list \
             (`.detach().cpu()`), a loop without `torch.no_grad()`, or a cache without a limit.",
            top.site
        );
        vec![Advice { text, command: None }]
    }

    fn against_size(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        let Some(top) = self.peak_by_site.first() else { return advice };
        let needed = self.peak_allocated.max(1) as f64;
        let text = match self.resident {
            Some(resident) if (resident as f64) < needed / 2.0 => format!(
                "Need less in a step: {} of the peak is made while it runs. Recompute what the forward pass keeps \
                 (torch.utils.checkpoint) or take a smaller micro-batch. {}",
                bytes(self.peak_allocated.saturating_sub(resident)),
                self.largest(2)
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
                 what is not trained. {}",
                self.largest(3)
            ),
        };
        advice.push(Advice { text, command: Some(self.levers()) });
        advice
    }
}
