//! What a request seems to hold. No recorder says so: it is inferred from lifetimes, steps and call stacks, and every
//! place that shows it says that it is.

use std::collections::HashSet;

use stalloc_trace::site::{BACKWARD_PASS, split_forward};
use stalloc_trace::{Frame, Request, StackId, Time, Trace};

use crate::steps::StepSpan;

/// What a request seems to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
