//! Call stacks of a snapshot: each distinct one is turned into frames once.

use rustc_hash::FxHashMap;

use crate::builder::TraceBuilder;
use crate::error::{Budget, Result};
use crate::model::{Frame, StackId};
use crate::pickle::{Arena, Fields, Value};

/// Reads lists of frames.
pub(super) struct StackReader<'a> {
    arena: &'a Arena,
    fields: Fields<3>,
    known: FxHashMap<(u32, u32), StackId>,
    frames: FxHashMap<Value, Frame>,
    scratch: Vec<Frame>,
}

impl<'a> StackReader<'a> {
    pub(super) fn new(arena: &'a Arena) -> Self {
        StackReader {
            arena,
            fields: Fields::new(["filename", "name", "line"]),
            known: FxHashMap::default(),
            frames: FxHashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// The stack of a list of frames; none if it is no list.
    pub(super) fn read(&mut self, list: Value, builder: &mut TraceBuilder, budget: &mut Budget) -> Result<StackId> {
        if !list.is_list() {
            return Ok(StackId::NONE);
        }
        let arena = self.arena;
        if let Some(&id) = self.known.get(&arena.identity(list)) {
            return Ok(id);
        }
        let count = arena.len(list) as u64;
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
        let id = builder.stack(&self.scratch);
        self.known.insert(arena.identity(list), id);
        Ok(id)
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
