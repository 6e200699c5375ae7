//! What is already placed, for an exact search: at each section, ranges of addresses that are taken.
//!
//! The skyline jumps over them: a floor that has risen to the bottom of a range is at its top at once, as nothing can be
//! in between. So above the skyline each section has a next range, below which items must end and floors stop rising,
//! and what it takes counts as load.

use crate::part::Part;

/// The ranges of each section, ascending, none touching another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walls {
    /// Where the ranges of each section begin in `ranges`; empty when there are none at all.
    first: Vec<u32>,
    ranges: Vec<(u64, u64)>,
    /// By section: the next range above the skyline.
    next: Vec<u32>,
    /// What those above the skyline take.
    taken: Vec<u64>,
    undo: Vec<u32>,
}

impl Walls {
    /// Of the fixed items of a part.
    pub fn of(part: &Part, around: u32) -> Walls {
        let mut walls = Walls::default();
        if part.fixed.is_empty() {
            return walls;
        }
        let mut sections = vec![Vec::new(); around as usize];
        for (item, offset) in &part.fixed {
            for s in item.lower..item.upper {
                sections[(s % part.sections) as usize].push((*offset, offset.saturating_add(item.size)));
            }
        }
        walls.first.push(0);
        for mut ranges in sections {
            ranges.sort_unstable();
            let begin = walls.ranges.len();
            for &(from, to) in ranges.iter().filter(|r| r.0 < r.1 && r.1 > part.base) {
                match walls.ranges[begin..].last_mut() {
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => walls.ranges.push((from.max(part.base), to)),
                }
            }
            walls.first.push(walls.ranges.len() as u32);
        }
        walls
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Back to a skyline at the ground, before any jump.
    pub fn reset(&mut self) {
        self.undo.clear();
        self.next.clear();
        self.taken.clear();
        for ends in self.first.windows(2) {
            self.next.push(ends[0]);
            let ranges = &self.ranges[ends[0] as usize..ends[1] as usize];
            self.taken.push(ranges.iter().fold(0, |sum, r| sum.saturating_add(r.1 - r.0)));
        }
    }

    /// Where the next range above the skyline begins.
    pub fn ceiling(&self, section: u32) -> u64 {
        let s = section as usize;
        if self.first.is_empty() || self.next[s] == self.first[s + 1] {
            return u64::MAX;
        }
        self.ranges[self.next[s] as usize].0
    }

    /// What the ranges above the skyline take together.
    pub fn taken(&self, section: u32) -> u64 {
        if self.first.is_empty() { 0 } else { self.taken[section as usize] }
    }

    /// The skyline rises to `height`, no higher than the ceiling: where it is then, and by how much it jumped.
    pub fn rise(&mut self, section: u32, height: u64) -> (u64, u64) {
        if self.ceiling(section) > height {
            return (height, 0);
        }
        let range = self.ranges[self.next[section as usize] as usize];
        self.next[section as usize] += 1;
        self.taken[section as usize] -= range.1 - range.0;
        self.undo.push(section);
        (range.1, range.1 - range.0)
    }

    /// Names the jumps so far, for [`Walls::undo`].
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the last jump, if there were more than so many: its section, and by how much it was.
    pub fn undo(&mut self, mark: usize) -> Option<(u32, u64)> {
        if self.undo.len() <= mark {
            return None;
        }
        let section = self.undo.pop()?;
        self.next[section as usize] -= 1;
        let range = self.ranges[self.next[section as usize] as usize];
        self.taken[section as usize] += range.1 - range.0;
        Some((section, range.1 - range.0))
    }
}
