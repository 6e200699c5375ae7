//! Call stacks of a snapshot: each distinct one is turned into frames once.

use rustc_hash::FxHashMap;

use crate::builder::TraceBuilder;
use crate::error::{Budget, Result};
use crate::ids::StackId;
use crate::model::Frame;
use crate::pickle::{Fields, Pickled, Value};
use crate::site::{BACKWARD_PASS, forward_frame};

/// A call stack: a list of frames, and the forward pass's lines that a backward pass's block is for, where PyTorch wrote them
/// (in its anomaly mode), as texts of Python's `traceback`, outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callers {
    pub(super) own: Value,
    pub(super) forward: Value,
}

impl Callers {
    pub(super) const MISSING: Callers = Callers { own: Value::MISSING, forward: Value::MISSING };
}

/// Reads lists of frames.
pub(super) struct StackReader<'a> {
    arena: &'a Pickled,
    fields: Fields<3>,
    known: FxHashMap<[(u32, u32); 2], StackId>,
    frames: FxHashMap<Value, Frame>,
    scratch: Vec<Frame>,
}

impl<'a> StackReader<'a> {
    pub(super) fn new(arena: &'a Pickled) -> Self {
        StackReader {
            arena,
            fields: Fields::new(["filename", "name", "line"]),
            known: FxHashMap::default(),
            frames: FxHashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// The stack of lists of frames; none if they are no lists.
    pub(super) fn read(&mut self, frames: Callers, builder: &mut TraceBuilder, budget: &mut Budget) -> Result<StackId> {
        let Callers { own: list, forward } = frames;
        if !list.is_list() && !forward.is_list() {
            return Ok(StackId::NONE);
        }
        let arena = self.arena;
        let key = [arena.identity(list), arena.identity(forward)];
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        let count = (arena.len(list) + arena.len(forward)) as u64;
        budget.charge(64 + count * 2 * size_of::<Frame>() as u64)?;
        self.scratch.clear();
        for item in arena.items(list).into_iter().flatten() {
            let frame = match self.frames.get(&item) {
                Some(&frame) => frame,
                None => {
                    let frame = self.frame(item, builder, budget)?;
                    self.frames.insert(item, frame);
                    frame
                }
            };
            self.scratch.push(frame);
        }
        self.read_forward(forward, builder, budget)?;
        let id = builder.stack(&self.scratch);
        self.known.insert(key, id);
        Ok(id)
    }

    fn read_forward(&mut self, list: Value, builder: &mut TraceBuilder, budget: &mut Budget) -> Result<()> {
        let begin = self.scratch.len();
        for item in self.arena.items(list).into_iter().flatten() {
            budget.charge(32)?;
            let text = self.arena.as_str(item).unwrap_or_default();
            if let Some((file, line, function)) = forward_frame(&text) {
                self.scratch.push(Frame { file: builder.string(file), function: builder.string(function), line });
            }
        }
        if self.scratch.len() > begin {
            self.scratch.push(Frame { file: builder.string(""), function: builder.string(BACKWARD_PASS), line: 0 });
            self.scratch[begin..].reverse();
        }
        Ok(())
    }

    fn frame(&mut self, item: Value, builder: &mut TraceBuilder, budget: &mut Budget) -> Result<Frame> {
        budget.charge(32)?;
        let [file, function, line] = self.fields.of(self.arena, item);
        let mut text = |value| builder.string(&self.arena.as_str(value).unwrap_or_default());
        let (file, function) = (text(file), text(function));
        let line = self.arena.as_int(line).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        Ok(Frame { file, function, line })
    }
}
