//! Where a loop of the program begins its body anew, told by call stacks: for loops that no step mark knows, such as a
//! validation.
//!
//! Between two allocations under one call of a function, a line of that function that lies before the last one means that
//! a loop went back. The outermost function where that happens often is taken for the one with the loop over batches.
//! Loops inside of modules are over layers, those inside of an optimizer's step over parameters, and models are built in
//! loops too: none of these counts.

use std::collections::HashMap;

use stalloc_trace::site::{is_python, site, split_forward};
use stalloc_trace::{Frame, StackId, StringId, Time, Trace};

use crate::sites::is_call;

/// Fewer turns are no loop to speak of.
const TURNS: usize = 4;

/// Every optimizer's step is called by PyTorch's wrapper, also that of an optimizer that the user wrote.
const OPTIMIZERS: &str = "torch/optim/";
/// Functions that a model is built or moved by.
const BUILDS: [&str; 3] = ["__init__", "_apply", "_init_group"];

/// A function that was called along a path, by number.
type CalledFunction = u32;

/// Functions and the lines that they were at, outermost first.
type Path = Vec<(CalledFunction, u32)>;

/// Who called a function and from which line, its file and its name.
type Called = (Option<(CalledFunction, u32)>, StringId, StringId);

/// The loop over batches: where it is, and the event times at which it turns, the beginning of the recording not among them.
pub struct LoopTurns {
    /// `FILE:LINE FUNCTION`, of its first line that allocates.
    pub site: String,
    pub times: Vec<Time>,
}

/// Loops, the outermost first; none where most requests have no call stack, for some of its turns would be missing. O(requests times depth).
pub fn turns(trace: &Trace) -> Vec<LoopTurns> {
    let with_stack = trace.requests.iter().filter(|request| request.stack != StackId::NONE).count();
    if with_stack * 2 < trace.requests.len() {
        return Vec::new();
    }
    let mut paths = Paths::default();
    let mut of_stack: Vec<Option<Option<Path>>> = vec![None; trace.stacks.len()];
    // For each function the last line seen, and the turns.
    let mut last: HashMap<CalledFunction, u32> = HashMap::new();
    let mut found: HashMap<CalledFunction, (u32, Vec<Time>)> = HashMap::new();
    for request in &trace.requests {
        let (Some(time), stack) = (request.alloc, request.stack) else { continue };
        if stack == StackId::NONE {
            continue;
        }
        let Some(slot) = of_stack.get_mut(stack.0 as usize) else { continue };
        let path = slot.get_or_insert_with(|| paths.of(trace, trace.stacks.get(stack)));
        for &(node, line) in path.iter().flatten() {
            if let Some(before) = last.insert(node, line)
                && line < before
            {
                let (first, turns) = found.entry(node).or_insert((line, Vec::new()));
                *first = line.min(*first);
                turns.push(time);
            }
        }
    }
    let mut often: Vec<_> = found.into_iter().filter(|(_, (_, turns))| turns.len() >= TURNS).collect();
    often.sort_by_key(|(node, _)| (paths.depths[*node as usize], *node));
    let called: HashMap<CalledFunction, Called> = paths.nodes.iter().map(|(called, node)| (*node, *called)).collect();
    let turns = often.into_iter().map(|(node, (line, times))| {
        let (_, file, function) = called[&node];
        let site = site(&[Frame { file, function, line }], |id| trace.string(id)).unwrap_or_default();
        LoopTurns { site, times }
    });
    turns.collect()
}

/// Paths of calls, each function along them numbered in the order of their first use.
#[derive(Default)]
struct Paths {
    nodes: HashMap<Called, CalledFunction>,
    depths: Vec<u32>,
}

impl Paths {
    /// The functions and lines from the outermost frame to the first module or optimizer; `None` for what builds a model.
    fn of(&mut self, trace: &Trace, frames: &[Frame]) -> Option<Path> {
        let (frames, _) = split_forward(frames, |id| trace.string(id));
        if frames.iter().any(|frame| BUILDS.contains(&trace.string(frame.function))) {
            return None;
        }
        let mut path = Vec::new();
        let mut above = None;
        for frame in frames.iter().rev().filter(|frame| is_python(trace.string(frame.file))) {
            let (file, function) = (trace.string(frame.file), trace.string(frame.function));
            if is_call(file, function) || file.contains(OPTIMIZERS) {
                break;
            }
            let new = self.nodes.len() as CalledFunction;
            let node = *self.nodes.entry((above, frame.file, frame.function)).or_insert(new);
            if node == new {
                self.depths.push(path.len() as u32);
            }
            path.push((node, frame.line));
            above = Some((node, frame.line));
        }
        Some(path)
    }
}
