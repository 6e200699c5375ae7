//! What to call a place in the program: its innermost frame that is neither PyTorch's nor the interpreter's.

use std::collections::HashMap;
use std::rc::Rc;

use stalloc_trace::{Frame, Request, StackId, Trace};

/// Parts of paths that say: not the user's own code.
const LIBRARIES: [&str; 8] =
    ["/torch/", "torch/", "<frozen", "??", "contextlib.py", "functools.py", "/c10/", "threading.py"];

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
        is_python(file)
            && !LIBRARIES.iter().any(|part| file.contains(part) && (part.len() > 6 || file.starts_with(part)))
    };
    let python = |frame: &&Frame| is_python(file(frame));
    let chosen = frames.iter().find(own).or_else(|| frames.iter().find(python)).or(frames.first());
    match chosen {
        Some(frame) => {
            format!("{}:{} {}", tail(trace.string(frame.file)), frame.line, trace.string(frame.function))
        }
        None => String::new(),
    }
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
    format!("{low} to {} {}", low * 2, UNITS[unit as usize])
}
