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
///
/// Where it is known which line of the forward pass a backward pass's block is for, that line and its callers follow this frame.
pub const BACKWARD_PASS: &str = "backward pass";

/// File, line and function of a frame as Python's `traceback` writes it.
pub fn forward_frame(text: &str) -> Option<(&str, u32, &str)> {
    let (file, rest) = text.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let (line, rest) = rest.split_once(", in ")?;
    Some((file, line.parse().ok()?, rest.lines().next()?))
}

/// The frames of a request itself, and those of the forward pass that its backward pass is for.
pub fn split_forward<'a, 'f>(frames: &'f [Frame], text: impl Fn(StringId) -> &'a str) -> (&'f [Frame], &'f [Frame]) {
    let is_mark = |frame: &Frame| text(frame.function) == BACKWARD_PASS && text(frame.file).is_empty();
    match frames.iter().position(is_mark) {
        Some(mark) => frames.split_at(mark + 1),
        None => (frames, &[]),
    }
}

/// How far a frame of this file is from the user's own code: 0 the user's, 1 an installed package's, 2 PyTorch's or the interpreter's,
/// 3 no Python.
pub fn distance(file: &str) -> u8 {
    let file = file.replace('\\', "/");
    // Operators that PyTorch writes in Python are called by its dispatcher, also in autograd's threads.
    if !is_python(&file) || file.contains("/torch/_native/") || file.ends_with("/torch/_ops.py") {
        return 3;
    }
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
/// frames' strings. What no Python asked for is named by the line of the forward pass that it is for, where that is known.
pub fn site<'a>(frames: &[Frame], text: impl Fn(StringId) -> &'a str) -> Option<String> {
    let (frames, forward) = split_forward(frames, &text);
    if !forward.is_empty() && !frames.iter().any(|frame| distance(text(frame.file)) < 2) {
        return innermost(forward, &text).map(|line| format!("{line} (backward)"));
    }
    innermost(frames, &text)
}

fn innermost<'a>(frames: &[Frame], text: &impl Fn(StringId) -> &'a str) -> Option<String> {
    let mut python: Vec<(u8, &Frame)> = frames.iter().map(|frame| (distance(text(frame.file)), frame)).collect();
    python.retain(|(distance, _)| *distance < 3);
    // The innermost of those nearest to the user.
    if let Some((_, frame)) = python.iter().min_by_key(|(distance, _)| *distance) {
        return Some(format!("{}:{} {}", tail(text(frame.file)), frame.line, text(frame.function)));
    }
    if !frames.is_empty() && frames.iter().all(|frame| is_python(text(frame.file))) {
        return Some(BACKWARD_PASS.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_traceback_is_read_and_anything_else_is_none() {
        let line = "  File \"/job/a, in b.py\", line 10, in <module>\n    loss = net(x)\n";
        assert_eq!(forward_frame(line), Some(("/job/a, in b.py", 10, "<module>")));
        for odd in
            ["", "File", "  File \"a.py\"", "  File \"a.py\", line x, in f", "  File \"a.py\", line 99999999999, in f"]
        {
            assert_eq!(forward_frame(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_python_asked_for_keeps_its_own_line_and_the_rest_has_that_of_the_forward_pass() {
        let texts = ["", BACKWARD_PASS, "/job/train.py", "main", "/job/hook.py", "hook", "libtorch.so", "empty_cuda"];
        let frame = |file, function, line| Frame { file: StringId(file), function: StringId(function), line };
        let name = |frames: &[Frame]| site(frames, |id| texts[id.0 as usize]);
        let (mark, forward, hook) = (frame(0, 1, 0), frame(2, 3, 7), frame(4, 5, 3));
        assert_eq!(name(&[frame(6, 7, 0), mark, forward]).as_deref(), Some("job/train.py:7 main (backward)"));
        assert_eq!(name(&[hook, mark, forward]).as_deref(), Some("job/hook.py:3 hook"));
        assert_eq!(name(&[mark]).as_deref(), Some(BACKWARD_PASS));
        let all = [hook, mark, forward];
        assert_eq!(split_forward(&all, |id| texts[id.0 as usize]), (&all[..2], &all[2..]));
    }

    #[test]
    fn operators_that_pytorch_writes_in_python_are_no_line_of_the_program() {
        let texts = [
            "/v/site-packages/torch/_ops.py",
            "__call__",
            "/v/site-packages/torch/_native/registry.py",
            "route",
            "/job/a.py",
        ];
        let frame = |file, function| Frame { file: StringId(file), function: StringId(function), line: 1 };
        let name = |frames: &[Frame]| site(frames, |id| texts[id.0 as usize]);
        assert_eq!(name(&[frame(2, 3), frame(0, 1)]).as_deref(), Some(BACKWARD_PASS));
        assert_eq!(name(&[frame(0, 1), frame(4, 3)]).as_deref(), Some("job/a.py:1 route"));
    }

    #[test]
    fn source_files_cells_of_notebooks_and_frozen_modules_are_python_and_nothing_else_is() {
        for python in ["/job/a.py", "<ipython-input-3-4f>", "/tmp/ipykernel_71/2", "<frozen importlib._bootstrap>"] {
            assert!(is_python(python), "{python}");
        }
        for other in ["", "libtorch.so", "/src/a.pyx", "??"] {
            assert!(!is_python(other), "{other}");
        }
    }
}
