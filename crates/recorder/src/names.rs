//! Strings and call stacks of the running program, each kept once.

use rustc_hash::FxHashMap;
use stalloc_trace::{Frame, StackId, StringId};

/// Everything that marks and call stacks refer to, for all devices.
pub struct Names {
    strings: Vec<String>,
    string_ids: FxHashMap<String, StringId>,
    stacks: Vec<Vec<Frame>>,
    stack_ids: FxHashMap<Vec<Frame>, StackId>,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            strings: Vec::new(),
            string_ids: FxHashMap::default(),
            stacks: vec![Vec::new()],
            stack_ids: FxHashMap::default(),
        }
    }
}

impl Names {
    /// The id of a string, the same for equal ones.
    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        let id = StringId(self.strings.len() as u32);
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }

    /// The id of a call stack, innermost frame first; the same for equal ones.
    pub fn stack(&mut self, frames: Vec<Frame>) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.stack_ids.get(&frames) {
            return id;
        }
        let id = StackId(self.stacks.len() as u32);
        self.stacks.push(frames.clone());
        self.stack_ids.insert(frames, id);
        id
    }

    /// The string behind an id of ours.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The frames behind an id of ours.
    pub fn frames(&self, id: StackId) -> &[Frame] {
        self.stacks.get(id.0 as usize).map_or(&[], Vec::as_slice)
    }
}
