//! What to call a place in the program: the user's innermost frame; frames of PyTorch, of frameworks and of the interpreter
//! are folded away.

use crate::{Frame, StringId};

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

/// The one frame, without a file, of what a thread without Python asked for: autograd's threads run the backward pass.
pub const BACKWARD_PASS: &str = "backward pass";

/// How far a frame of this file is from the user's own code: 0 the user's, 1 an installed package's, 2 PyTorch's or the interpreter's,
/// 3 no Python.
pub fn distance(file: &str) -> u8 {
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

/// The name of the place that a call stack, innermost frame first, was recorded at; `None` for the empty one. `text` knows the
/// frames' strings.
pub fn site<'a>(frames: &[Frame], text: impl Fn(StringId) -> &'a str) -> Option<String> {
    let mut python: Vec<(u8, &Frame)> = frames.iter().map(|frame| (distance(text(frame.file)), frame)).collect();
    python.retain(|(distance, _)| *distance < 3);
    // The innermost of those nearest to the user.
    if let Some((_, frame)) = python.iter().min_by_key(|(distance, _)| *distance) {
        return Some(format!("{}:{} {}", tail(text(frame.file)), frame.line, text(frame.function)));
    }
    // C++ only, as autograd's threads are: the operator whose backward it is, else the first that says something.
    let function = |frame: &Frame| text(frame.function);
    let backward = |frame: &&Frame| function(frame).contains("Backward");
    let says = |frame: &&Frame| !EVERYWHERE.iter().any(|part| function(frame).contains(part));
    let chosen = frames.iter().find(backward).or_else(|| frames.iter().find(says)).or(frames.first());
    chosen.map(|frame| {
        let name = function(frame);
        let name = name.split_once('(').map_or(name, |(before, _)| before);
        if name.is_empty() { format!("{}:{}", tail(text(frame.file)), frame.line) } else { name.to_owned() }
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
