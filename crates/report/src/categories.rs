//! What a request seems to hold. No recorder says so: it is inferred from lifetimes, steps and call stacks, and every
//! place that shows it says that it is.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use stalloc_trace::site::{BACKWARD_PASS, split_forward};
use stalloc_trace::{Frame, Mark, Request, StackId, Time, Trace};

use crate::steps::StepSpan;

/// What a request seems to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Category {
    /// Weights and buffers: made before the first step, kept.
    Parameters,
    /// Made by a backward pass in a parameter's size, kept until the optimizer has used it.
    Gradients,
    /// Made by the optimizer, kept.
    OptimizerStates,
    /// Kept over steps, and nothing tells what it holds.
    Persistent,
    /// Lives for a good part of a step.
    Activations,
    /// Lives for a moment.
    Temporaries,
    /// Lives for a good part of a step, and nothing tells what it holds.
    Unknown,
}

impl Category {
    /// Every category, in the order in which they are stacked.
    pub const ALL: [Category; 7] = [
        Category::Parameters,
        Category::OptimizerStates,
        Category::Persistent,
        Category::Gradients,
        Category::Activations,
        Category::Temporaries,
        Category::Unknown,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerStates => "optimizer states",
            Category::Persistent => "kept over steps, unknown",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
            Category::Unknown => "unknown",
        }
    }

    /// Its place in [`Category::ALL`].
    pub fn index(self) -> usize {
        Category::ALL.iter().position(|&one| one == self).unwrap_or(0)
    }
}

/// A request that lives for less than this share of a step is a temporary.
const MOMENT: Time = 200;

/// How each request of a trace is classed.
pub fn categories(trace: &Trace, steps: &[StepSpan]) -> Vec<Category> {
    let stacks = StackHints::new(trace);
    let first_step = steps.first().map(|step| step.begin);
    let lasting: Vec<bool> = trace.requests.iter().map(|r| is_lasting(trace, r, steps)).collect();
    let mut weights: HashSet<u64> = HashSet::new();
    for (request, lasting) in trace.requests.iter().zip(&lasting) {
        if *lasting
            && !stacks.optimizer(request.stack)
            && first_step.is_none_or(|first| request.alloc.unwrap_or(0) < first)
        {
            weights.insert(request.rounded());
        }
    }
    trace
        .requests
        .iter()
        .zip(lasting)
        .map(|(request, lasting)| classify(trace, request, lasting, steps, &stacks, &weights))
        .collect()
}

fn classify(
    trace: &Trace,
    request: &Request,
    lasting: bool,
    steps: &[StepSpan],
    stacks: &StackHints,
    weights: &HashSet<u64>,
) -> Category {
    let lifetime = trace.lifetime(request);
    let step = steps.iter().find(|step| step.begin <= lifetime.start && lifetime.start < step.end);
    if stacks.optimizer(request.stack) {
        let kept = lasting || request.free_requested.is_none();
        return if kept { Category::OptimizerStates } else { Category::Temporaries };
    }
    if lasting {
        // A name is given only where the call stack proves it: an output that is kept is no gradient.
        return match step {
            None if stacks.builds(request.stack) => Category::Parameters,
            Some(_) if stacks.backward(request.stack) && weights.contains(&request.rounded()) => Category::Gradients,
            _ => Category::Persistent,
        };
    }
    let (begin, end) = step.map_or((0, trace.end()), |step| (step.begin, step.end));
    if lifetime.end - lifetime.start <= (end - begin) / MOMENT {
        return Category::Temporaries;
    }
    if request.stack == StackId::NONE {
        return Category::Unknown;
    }
    if !stacks.backward(request.stack) {
        return Category::Activations;
    }
    // A gradient lives until the optimizer has used it, at the end of the step or in the next one.
    let late = lifetime.end > begin + (end - begin) / 10 * 9;
    if late && weights.contains(&request.rounded()) { Category::Gradients } else { Category::Unknown }
}

/// Where tensors of a program lie, as it noted: of what is kept at the end of the recording, and of the gradients when an optimizer
/// begins to step, each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TensorPlaces {
    /// By the name of a category.
    kept: BTreeMap<String, Vec<u64>>,
    /// By the number of the phase `optimizer` that is marked then.
    gradients: Vec<HashSet<u64>>,
}

/// Bytes of each category at a trace's peak, of equal ones the last, where nothing has to be inferred: the program noted what lies
/// where, and marked the phases `backward` and `optimizer` and what follows each. Activations wait for a backward pass, temporaries do not.
pub fn at_peak(trace: &Trace, places: &TensorPlaces) -> Vec<(Category, u64)> {
    let Some((peak, _)) = trace.live_curve().into_iter().max_by_key(|(_, live)| *live) else { return Vec::new() };
    let mut kept: HashMap<u64, Category> = HashMap::new();
    for category in Category::ALL {
        kept.extend(places.kept.get(category.name()).into_iter().flatten().map(|&place| (place, category)));
    }
    let phases: Vec<(Time, &str, u32)> = trace
        .marks()
        .filter_map(|(time, mark)| match *mark {
            Mark::Phase { kind, micro_batch } => Some((time, trace.string(kind), micro_batch)),
            _ => None,
        })
        .collect();
    let is_step = |phase: &&(Time, &str, u32)| phase.1 == "optimizer";
    let last_step = phases.iter().rfind(is_step).map_or(Time::MAX - 1, |(time, ..)| *time);
    let mut bytes = [0_u64; Category::ALL.len()];
    for request in &trace.requests {
        let (from, to) = (request.alloc.unwrap_or(0), request.free_requested.unwrap_or(Time::MAX));
        if peak < from || to <= peak {
            continue;
        }
        let at = |time| phases.partition_point(|(other, ..)| *other < time);
        let within = &phases[at(from)..at(to)];
        let is_of_forward =
            phases[..at(from)].last().is_none_or(|(_, kind, _)| !matches!(*kind, "backward" | "optimizer"));
        let is_gradient = |&(.., number): &(Time, &str, u32)| {
            places.gradients.get(number as usize).zip(request.address).is_some_and(|(all, one)| all.contains(&one))
        };
        let known = request.address.and_then(|address| kept.get(&address)).filter(|_| to > last_step);
        let category = if within.iter().filter(is_step).any(is_gradient) {
            Category::Gradients
        } else if let Some(known) = known {
            *known
        } else if within.iter().filter(is_step).count() > 1 {
            Category::Persistent
        } else if is_of_forward && within.iter().any(|(_, kind, _)| *kind == "backward") {
            Category::Activations
        } else if phases.is_empty() {
            Category::Unknown
        } else {
            Category::Temporaries
        };
        bytes[category.index()] += request.rounded();
    }
    Category::ALL.into_iter().zip(bytes).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Whether a request outlives more than one step, or, where there are none, the trace.
fn is_lasting(trace: &Trace, request: &Request, steps: &[StepSpan]) -> bool {
    let lifetime = trace.lifetime(request);
    if steps.len() < 2 {
        let outlives = request.free_requested.is_none();
        let early = lifetime.start <= trace.end() / 4;
        return outlives && (early || request.alloc.is_none());
    }
    let whole = steps.iter().filter(|step| lifetime.start < step.begin && step.end < lifetime.end).count();
    let last = request.free_requested.is_none() && steps.last().is_some_and(|step| lifetime.start < step.begin);
    whole >= 1 && (last || whole >= 2)
}

/// Which call stacks build a model, pass through an optimizer, or through a backward pass.
struct StackHints {
    builds: Vec<bool>,
    optimizer: Vec<bool>,
    backward: Vec<bool>,
}

impl StackHints {
    fn new(trace: &Trace) -> Self {
        let frames = |says: &dyn Fn(&str, &str) -> bool| -> Vec<bool> {
            let stack = |i: usize| split_forward(trace.stacks.get(StackId(i as u32)), |id| trace.string(id)).0;
            let frame = |frame: &Frame| says(trace.string(frame.file), trace.string(frame.function));
            (0..trace.stacks.len()).map(|i| stack(i).iter().any(frame)).collect()
        };
        StackHints {
            builds: frames(&|file, function| {
                file.contains("torch/nn/") && matches!(function, "__init__" | "_apply" | "reset_parameters")
            }),
            optimizer: frames(&|file, _| file.contains("/optim/") || file.contains("/optimizers/")),
            backward: frames(&|file, function| {
                file.contains("torch/autograd/")
                    || function.contains("Backward")
                    || function == BACKWARD_PASS
                    || function.contains("autograd::engine")
            }),
        }
    }

    fn says(list: &[bool], stack: StackId) -> bool {
        list.get(stack.0 as usize).copied().unwrap_or(false)
    }

    fn builds(&self, stack: StackId) -> bool {
        Self::says(&self.builds, stack)
    }

    fn optimizer(&self, stack: StackId) -> bool {
        Self::says(&self.optimizer, stack)
    }

    fn backward(&self, stack: StackId) -> bool {
        Self::says(&self.backward, stack)
    }
}

#[cfg(test)]
mod tests;
