//! The call sites of a trace, each named once, by the rule of `stalloc_trace::site`.

use std::collections::HashMap;
use std::rc::Rc;

use stalloc_trace::site::{BACKWARD_PASS, is_python, site};
use stalloc_trace::{Frame, Request, StackId, Trace};

/// The site of what has no call stack.
pub const UNKNOWN: &str = "unknown";

/// Whether a site is a place in the program that can be named.
pub fn is_named(site: &str) -> bool {
    site != UNKNOWN && site != BACKWARD_PASS
}

/// Names the call site of each request, and works each call stack out once.
pub struct Sites<'a> {
    trace: &'a Trace,
    names: HashMap<StackId, Rc<str>>,
    unknown: Rc<str>,
}

impl<'a> Sites<'a> {
    /// The call sites of a trace.
    pub fn new(trace: &'a Trace) -> Self {
        Sites { trace, names: HashMap::new(), unknown: UNKNOWN.into() }
    }

    /// The name of a request's call site; of its size class where no call stack was recorded.
    pub fn of(&mut self, request: &Request) -> Rc<str> {
        if self.trace.stacks.get(request.stack).is_empty() {
            return format!("blocks of {}, no call stack", size_class(request.rounded())).into();
        }
        self.known(request.stack)
    }

    /// The name of a call stack's site; [`UNKNOWN`] for the empty one.
    pub fn known(&mut self, stack: StackId) -> Rc<str> {
        let trace = self.trace;
        let frames = trace.stacks.get(stack);
        if frames.is_empty() {
            return Rc::clone(&self.unknown);
        }
        Rc::clone(
            self.names
                .entry(stack)
                .or_insert_with(|| site(frames, |id| trace.string(id)).map_or_else(|| UNKNOWN.into(), Rc::from)),
        )
    }
}

/// The power of two range that a size lies in: `1 to 2 MiB`.
pub fn size_class(size: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    if size <= 512 {
        return "up to 512 B".into();
    }
    // The smallest power of two that is at least the size, so that a size that is one is the upper end.
    let power = u64::BITS - (size - 1).leading_zeros();
    let unit = ((power.saturating_sub(1)) / 10).min(4);
    let low = 1u64 << (power - 1 - unit * 10);
    match (UNITS.get(unit as usize), UNITS.get(unit as usize + 1)) {
        (Some(here), Some(next)) if low == 512 => format!("512 {here} to 1 {next}"),
        (here, _) => format!("{low} to {} {}", low * 2, here.unwrap_or(&"TiB")),
    }
}

/// What a call stack goes through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passes {
    /// A loss over classes.
    pub loss: bool,
    /// PyTorch's reading of files.
    pub loaded: bool,
    /// An optimizer's step.
    pub optimizer: bool,
    /// DistributedDataParallel's construction.
    pub buckets: bool,
    /// A model that is built or moved to the device.
    pub built: bool,
    /// A module that is called.
    pub forward: bool,
    /// The gathering of what DataParallel's replicas return.
    pub gathered: bool,
    /// Autograd's backward pass.
    pub backward: bool,
}

/// Whether a frame calls a module, or is what it calls: some recordings leave out PyTorch's own frames.
pub fn is_call(file: &str, function: &str) -> bool {
    let by_pytorch = file.ends_with("nn/modules/module.py") && matches!(function, "_call_impl" | "_wrapped_call_impl");
    by_pytorch || function == "forward" && is_python(file)
}

/// What a call stack goes through.
pub fn passes(trace: &Trace, stack: StackId) -> Passes {
    let frames = trace.stacks.get(stack);
    let any = |says: &dyn Fn(&str, &str) -> bool| {
        frames.iter().any(|frame: &Frame| says(trace.string(frame.file), trace.string(frame.function)))
    };
    // What DistributedDataParallel asks for itself: a module that it calls has frames of its own further in.
    let innermost = frames.iter().find(|frame| is_python(trace.string(frame.file)));
    let forward = any(&is_call);
    Passes {
        // A softmax of a module is one over attention's scores as often as over classes.
        loss: any(&|file, function| {
            (file.ends_with("nn/functional.py")
                && (matches!(function, "cross_entropy" | "log_softmax" | "nll_loss")
                    || function == "softmax" && !forward))
                || file.ends_with("nn/modules/loss.py")
                || function.to_ascii_lowercase().contains("crossentropy")
        }),
        loaded: any(&|file, _| file.ends_with("torch/serialization.py")),
        optimizer: any(&|file, _| file.contains("/optim/") || file.contains("/optimizers/")),
        buckets: innermost.is_some_and(|frame| trace.string(frame.file).ends_with("nn/parallel/distributed.py")),
        built: any(&|file, function| {
            file.contains("torch/nn/") && matches!(function, "__init__" | "_apply" | "reset_parameters" | "to" | "cuda")
        }),
        forward,
        gathered: any(&|file, _| file.ends_with("nn/parallel/scatter_gather.py")),
        backward: any(&|file, function| function == BACKWARD_PASS || file.ends_with("torch/autograd/graph.py")),
    }
}
