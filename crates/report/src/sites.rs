//! What to call a place in the program: the user's innermost frame; frames of PyTorch, of frameworks and of the interpreter
//! are folded away.

use std::collections::HashMap;
use std::rc::Rc;

use stalloc_trace::{Frame, Request, StackId, Trace};

/// The site of what has no call stack.
pub const UNKNOWN: &str = "unknown";

/// What paths contain (or, without a slash in front, start with) that are of PyTorch or the interpreter.
const MACHINERY: [&str; 24] = [
    "/site-packages/torch/",
    "/dist-packages/torch/",
    "torch/",
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/cuda/",
    "/torch/_",
    "/torch/functional.py",
    "/torch/distributed/",
    "/torch/amp/",
    "/torch/fx/",
    "/torch/func",
    "/stalloc/_",
    "/importlib/",
    "importlib",
    "<frozen",
    "<string>",
    "/contextlib.py",
    "/functools.py",
    "/threading.py",
    "/runpy.py",
    "/multiprocessing/",
];

/// What paths contain that are of installed packages and of the standard library: frameworks, not the user's code.
const INSTALLED: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3."];

/// C++ functions that are in every stack.
const EVERYWHERE: [&str; 7] = [
    "unwind",
    "CapturedTraceback",
    "gather_with_cpp",
    "CachingAllocator",
    "at::detail::empty",
    "empty_cuda",
    "empty_strided",
];

/// Names of call sites, made once for each call stack.
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
        Rc::clone(self.names.entry(stack).or_insert_with(|| name(trace, frames).into()))
    }
}

/// How far a frame is from the user's own code: 0 the user's, 1 an installed package's, 2 PyTorch's or the interpreter's,
/// 3 no Python.
pub fn distance(trace: &Trace, frame: &Frame) -> u8 {
    let file = trace.string(frame.file);
    if !is_python(file) {
        return 3;
    }
    let file = file.replace('\\', "/");
    let has = |part: &&str| if part.starts_with('/') { file.contains(*part) } else { file.starts_with(*part) };
    if MACHINERY.iter().any(&has) {
        2
    } else if INSTALLED.iter().any(has) {
        1
    } else {
        0
    }
}

fn name(trace: &Trace, frames: &[Frame]) -> String {
    let mut python: Vec<(u8, &Frame)> = frames.iter().map(|frame| (distance(trace, frame), frame)).collect();
    python.retain(|(distance, _)| *distance < 3);
    // The innermost of those nearest to the user.
    if let Some((_, frame)) = python.iter().min_by_key(|(distance, _)| *distance) {
        return format!("{}:{} {}", tail(trace.string(frame.file)), frame.line, trace.string(frame.function));
    }
    // C++ only, as autograd's threads are: the operator whose backward it is, else the first that says something.
    let function = |frame: &Frame| trace.string(frame.function);
    let backward = |frame: &&Frame| function(frame).contains("Backward");
    let says = |frame: &&Frame| !EVERYWHERE.iter().any(|part| function(frame).contains(part));
    let chosen = frames.iter().find(backward).or_else(|| frames.iter().find(says)).or(frames.first());
    chosen.map_or(UNKNOWN.to_owned(), |frame| {
        let name = function(frame);
        let name = name.split_once('(').map_or(name, |(before, _)| before);
        if name.is_empty() { format!("{}:{}", tail(trace.string(frame.file)), frame.line) } else { name.to_owned() }
    })
}

/// Whether a file is Python source, or a cell of a notebook.
pub fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with("<ipython") || file.contains("ipykernel") || file.starts_with("<frozen")
}

/// The last two parts of a path; of a notebook's cell its number.
fn tail(path: &str) -> &str {
    let mut slashes = path.rmatch_indices(['/', '\\']).map(|(at, _)| at);
    match (slashes.next(), slashes.next()) {
        (Some(_), Some(second)) => &path[second + 1..],
        _ => path,
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
