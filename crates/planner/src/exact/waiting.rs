//! The items that wait for a place, in order of their first section: a list from which an item is taken and to which
//! it is given back, last taken first, in constant time (dancing links, Knuth 2000).

use crate::part::Part;

/// The items left.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// By item; the entry after the last is the list's head and end.
    next: Vec<u32>,
    before: Vec<u32>,
    gone: Vec<bool>,
    /// First item, waiting or not, that begins at a section or later.
    begins: Vec<u32>,
}

impl Waiting {
    /// All items of a part, which are in order of their first section.
    pub fn new(part: &Part) -> Waiting {
        let n = part.items.len() as u32;
        let begins = (0..=part.sections).map(|s| part.items.partition_point(|i| i.lower < s) as u32).collect();
        let mut waiting = Waiting { next: vec![], before: vec![], gone: vec![false; n as usize + 1], begins };
        waiting.next = (0..=n).map(|i| if i == n { 0 } else { i + 1 }).collect();
        waiting.before = (0..=n).map(|i| if i == 0 { n } else { i - 1 }).collect();
        waiting
    }

    /// Whether an item has been taken.
    pub fn is_gone(&self, i: u32) -> bool {
        self.gone[i as usize]
    }

    /// Takes an item out.
    pub fn take(&mut self, i: u32) {
        let (before, next) = (self.before[i as usize], self.next[i as usize]);
        self.next[before as usize] = next;
        self.before[next as usize] = before;
        self.gone[i as usize] = true;
    }

    /// Gives back the item that was taken last.
    pub fn give(&mut self, i: u32) {
        let (before, next) = (self.before[i as usize], self.next[i as usize]);
        self.next[before as usize] = i;
        self.before[next as usize] = i;
        self.gone[i as usize] = false;
    }

    /// The first item left that begins at a section or later; the number of items if there is none.
    pub fn from(&self, section: u32) -> u32 {
        let end = self.gone.len() as u32 - 1;
        let mut i = self.begins.get(section as usize).copied().unwrap_or(end);
        // An item that is gone still knows what came after it.
        while self.gone[i as usize] {
            i = self.next[i as usize];
        }
        i
    }

    /// The item left after another.
    pub fn after(&self, i: u32) -> u32 {
        self.next[i as usize]
    }
}

#[cfg(test)]
mod tests;
