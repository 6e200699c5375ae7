//! A partial solution of a beam: cheap to copy, as most is shared with those that it comes from.

use std::rc::Rc;

/// No item.
pub(super) const NONE: u32 = u32::MAX;

/// Sections whose room is shared or copied together.
const CHUNK: usize = 64;

/// Sections of equal height, up to where the next run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    pub at: u32,
    pub height: u64,
    /// What is certainly lost before it is level with a wall, if it is a valley.
    pub pending: f64,
    /// Items that wait within it, as far as they were counted, if it is a valley.
    pub waiting: u32,
}

/// Up to three runs that replace those `from..to` of a state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    pub runs: [Run; 3],
    pub count: u32,
    pub from: u32,
    pub to: u32,
}

impl Made {
    /// Appends a run.
    pub fn push(&mut self, run: Run) {
        if let Some(slot) = self.runs.get_mut(self.count as usize) {
            *slot = run;
            self.count += 1;
        }
    }

    /// Height of the last.
    pub fn last(&self) -> Option<u64> {
        self.count.checked_sub(1).map(|last| self.runs[last as usize].height)
    }
}

/// What may still be lost by some sections, and the least of it.
#[derive(Clone, Debug)]
struct Chunk {
    least: u64,
    room: [u64; CHUNK],
}

impl Chunk {
    fn new(sections: &[u64]) -> Chunk {
        let mut chunk = Chunk { least: u64::MAX, room: [u64::MAX; CHUNK] };
        chunk.room[..sections.len()].copy_from_slice(sections);
        chunk.count();
        chunk
    }

    fn count(&mut self) {
        self.least = self.room.iter().copied().min().unwrap_or(u64::MAX);
    }
}

/// What may still be lost, by section; chunks are shared until one changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    chunks: Vec<Rc<Chunk>>,
}

impl Room {
    pub fn new(room: &[u64]) -> Room {
        Room { chunks: room.chunks(CHUNK).map(|sections| Rc::new(Chunk::new(sections))).collect() }
    }

    /// The least of some sections; `u64::MAX` of none.
    pub fn least(&self, from: u32, to: u32) -> u64 {
        let least = |(c, range): (usize, std::ops::Range<usize>)| {
            let chunk = &self.chunks[c];
            if range.len() == CHUNK {
                return chunk.least;
            }
            chunk.room[range].iter().copied().min().unwrap_or(u64::MAX)
        };
        pieces(from, to).map(least).min().unwrap_or(u64::MAX)
    }

    /// Some sections lose so much, which they must have.
    pub fn lose(&mut self, from: u32, to: u32, height: u64) {
        for (c, range) in pieces(from, to).filter(|_| height > 0) {
            let chunk = Rc::make_mut(&mut self.chunks[c]);
            chunk.room[range].iter_mut().for_each(|room| *room -= height);
            chunk.count();
        }
    }
}

/// The chunks of some sections, and the range in each.
fn pieces(from: u32, to: u32) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let (from, to) = (from as usize, to as usize);
    let chunks = if from < to { from / CHUNK..to.div_ceil(CHUNK) } else { 0..0 };
    chunks.map(move |c| {
        let begin = c * CHUNK;
        (c, from.max(begin) - begin..to.min(begin + CHUNK) - begin)
    })
}

/// A partial solution.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The skyline, from the first section to the last.
    pub runs: Vec<Run>,
    pub room: Room,
    /// A bit for each item that waits.
    pub waiting: Vec<u64>,
    /// What was lost and what certainly will be, weighted; and the area placed.
    pub lost: f64,
    pub pending: f64,
    pub placed: f64,
    /// Names the items placed.
    pub key: u64,
    /// The item placed last.
    pub last: u32,
    pub count: u32,
}

impl Clone for State {
    fn clone(&self) -> State {
        let mut state = State::default();
        state.clone_from(self);
        state
    }

    /// Into the memory that is there.
    fn clone_from(&mut self, other: &State) {
        self.runs.clone_from(&other.runs);
        self.room.chunks.clone_from(&other.room.chunks);
        self.waiting.clone_from(&other.waiting);
        (self.lost, self.pending, self.placed) = (other.lost, other.pending, other.placed);
        (self.key, self.last, self.count) = (other.key, other.last, other.count);
    }
}

impl State {
    /// Nothing placed of so many items.
    pub fn new(room: Room, items: usize) -> State {
        let mut waiting = vec![u64::MAX; items.div_ceil(64)];
        if let Some(last) = waiting.last_mut().filter(|_| !items.is_multiple_of(64)) {
            *last = (1 << (items % 64)) - 1;
        }
        State { runs: vec![Run::default()], room, waiting, last: NONE, ..State::default() }
    }

    /// Where a run ends.
    pub fn end(&self, k: usize, sections: u32) -> u32 {
        self.runs.get(k + 1).map_or(sections, |run| run.at)
    }

    /// The heights on either side of a run.
    pub fn walls(&self, k: usize) -> (u64, u64) {
        let left = if k == 0 { u64::MAX } else { self.runs[k - 1].height };
        (left, self.runs.get(k + 1).map_or(u64::MAX, |run| run.height))
    }

    /// What copying it costs, in units of work.
    pub fn size(&self) -> u64 {
        (self.runs.len() + self.room.chunks.len() + self.waiting.len() / 2) as u64 / 2
    }
}

/// Calls a function with each waiting item of a range until it answers false; how many it was called with.
pub(super) fn each(waiting: &[u64], (first, last): (u32, u32), mut call: impl FnMut(u32) -> bool) -> u64 {
    let mut looked = 0;
    let mut word = first / 64;
    while word * 64 < last {
        let mut bits = waiting[word as usize];
        if word == first / 64 {
            bits &= u64::MAX << (first % 64);
        }
        if last - word * 64 < 64 {
            bits &= (1 << (last - word * 64)) - 1;
        }
        while bits != 0 {
            looked += 1;
            if !call(word * 64 + bits.trailing_zeros()) {
                return looked;
            }
            bits &= bits - 1;
        }
        word += 1;
    }
    looked
}
