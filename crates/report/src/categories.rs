//! What a request seems to hold. No recorder says so: it is inferred from lifetimes, steps and call stacks, and every
//! place that shows it says that it is.

use std::collections::HashSet;

use stalloc_trace::{Request, StackId, Time, Trace};

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
    /// Kept, but there is nothing that tells parameters, gradients and optimizer states apart.
    Persistent,
    /// Lives for a good part of a step.
    Activations,
    /// Lives for a moment.
    Temporaries,
}

impl Category {
    /// Every category, in the order in which they are stacked.
    pub const ALL: [Category; 6] = [
        Category::Parameters,
        Category::OptimizerStates,
        Category::Persistent,
        Category::Gradients,
        Category::Activations,
        Category::Temporaries,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerStates => "optimizer states",
            Category::Persistent => "persistent, unknown",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
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
        return match (step, request.alloc) {
            // Live before the recording began, and nothing says where it came from.
            (_, None) if request.stack == StackId::NONE => Category::Persistent,
            (None, _) if steps.is_empty() && trace.stacks.is_empty() => Category::Persistent,
            (None, _) => Category::Parameters,
            (Some(_), _) if stacks.backward(request) => Category::Gradients,
            (Some(_), _) => Category::Persistent,
        };
    }
    let (begin, end) = step.map_or((0, trace.end()), |step| (step.begin, step.end));
    if lifetime.end - lifetime.start <= (end - begin) / MOMENT {
        return Category::Temporaries;
    }
    // A gradient lives until the optimizer has used it, at the end of the step or in the next one.
    let late = lifetime.end > begin + (end - begin) / 10 * 9;
    if late && stacks.backward(request) && weights.contains(&request.rounded()) {
        return Category::Gradients;
    }
    Category::Activations
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

/// Which call stacks pass through an optimizer or a backward pass.
struct StackHints {
    optimizer: Vec<bool>,
    backward: Vec<bool>,
}

impl StackHints {
    fn new(trace: &Trace) -> Self {
        let mentions = |words: &[&str]| -> Vec<bool> {
            let says = |text: &String| words.iter().any(|word| text.to_ascii_lowercase().contains(word));
            let strings: Vec<bool> = trace.strings.iter().map(says).collect();
            let named = |id: stalloc_trace::StringId| strings.get(id.0 as usize).copied().unwrap_or(false);
            (0..trace.stacks.len())
                .map(|i| {
                    trace.stacks.get(StackId(i as u32)).iter().any(|frame| named(frame.file) || named(frame.function))
                })
                .collect()
        };
        StackHints {
            optimizer: mentions(&["/optim/", "optimizer", "adam"]),
            backward: mentions(&["backward", "autograd::engine"]),
        }
    }

    fn optimizer(&self, stack: StackId) -> bool {
        self.optimizer.get(stack.0 as usize).copied().unwrap_or(false)
    }

    /// Autograd's own threads have no Python frames: a request without any may be theirs.
    fn backward(&self, request: &Request) -> bool {
        let stack = request.stack;
        stack == StackId::NONE || self.backward.get(stack.0 as usize).copied().unwrap_or(false)
    }
}
