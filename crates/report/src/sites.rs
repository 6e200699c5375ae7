//! What to call a place in the program: its innermost frame that is neither PyTorch's nor the interpreter's.

use std::collections::HashMap;
use std::rc::Rc;

use stalloc_trace::{Frame, Request, StackId, Trace};

/// What paths contain (or, without a slash in front, start with) that are not of the user's own code.
const LIBRARIES: [&str; 6] = ["/torch/", "torch/", "<frozen", "/contextlib.py", "/functools.py", "/threading.py"];

/// C++ functions that are in every stack.
const MACHINERY: [&str; 7] = [
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
}

impl<'a> Sites<'a> {
    /// The call sites of a trace.
    pub fn new(trace: &'a Trace) -> Self {
        Sites { trace, names: HashMap::new() }
    }

    /// The name of a request's call site; of its size class where no call stack was recorded.
    pub fn of(&mut self, request: &Request) -> Rc<str> {
        let trace = self.trace;
        if trace.stacks.get(request.stack).is_empty() {
            return format!("blocks of {}, no call stack", size_class(request.rounded())).into();
        }
        Rc::clone(
            self.names.entry(request.stack).or_insert_with(|| name(trace, trace.stacks.get(request.stack)).into()),
        )
    }
}

fn name(trace: &Trace, frames: &[Frame]) -> String {
    let file = |frame: &&Frame| trace.string(frame.file);
    let own = |frame: &&Frame| {
        let file = file(frame);
        let library = |part: &&str| if part.starts_with('/') { file.contains(*part) } else { file.starts_with(*part) };
        is_python(file) && !LIBRARIES.iter().any(library)
    };
    let python = |frame: &&Frame| is_python(file(frame));
    if let Some(frame) = frames.iter().find(own).or_else(|| frames.iter().find(python)) {
        return format!("{}:{} {}", tail(trace.string(frame.file)), frame.line, trace.string(frame.function));
    }
    // C++ only, as autograd's threads are: the operator whose backward it is, else the first that says something.
    let function = |frame: &Frame| trace.string(frame.function);
    let backward = |frame: &&Frame| function(frame).contains("Backward");
    let says = |frame: &&Frame| !MACHINERY.iter().any(|part| function(frame).contains(part));
    let chosen = frames.iter().find(backward).or_else(|| frames.iter().find(says)).or(frames.first());
    chosen.map_or(String::new(), |frame| {
        let name = function(frame);
        let name = name.split_once('(').map_or(name, |(before, _)| before);
        if name.is_empty() { format!("{}:{}", tail(trace.string(frame.file)), frame.line) } else { name.to_owned() }
    })
}

fn is_python(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with("<ipython") || file.contains("ipykernel")
}

/// The last two parts of a path.
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
