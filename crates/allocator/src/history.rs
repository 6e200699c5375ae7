//! Which section comes next, learned from those that came before.

use rustc_hash::FxHashMap;

/// How many sections back the guess looks: evaluation every third step needs three.
const DEPTH: usize = 4;

/// Most runs of sections that are remembered.
const MOST: usize = 4096;

/// No section.
const NONE: u32 = u32::MAX;

/// The sections that the program went through.
#[derive(Clone, Debug)]
pub struct History {
    /// The last sections, newest last.
    last: [u32; DEPTH],
    /// What came after each run of them.
    after: FxHashMap<[u32; DEPTH], u32>,
}

impl Default for History {
    fn default() -> Self {
        History { last: [NONE; DEPTH], after: FxHashMap::default() }
    }
}

impl History {
    /// The program is in this section: it has begun, or it is found to be the one if `corrected`.
    pub fn now_in(&mut self, section: u32, corrected: bool) {
        if corrected {
            self.last[DEPTH - 1] = section;
            return;
        }
        if self.after.len() >= MOST {
            self.after.clear();
        }
        self.after.insert(self.last, section);
        self.last.rotate_left(1);
        self.last[DEPTH - 1] = section;
    }

    /// The section that came next the last time that the same ones had come before.
    pub fn likely_next(&self) -> Option<u32> {
        self.after.get(&self.last).copied()
    }
}
