//! Boundaries for a running job that marks none.
//!
//! Until a step is marked, what came is looked through for repetition now and then, at lengths that double. Once it was cut
//! into steps, a step of a known kind ends where that kind ends; after anything else, the next step begins where the first
//! requests of a known kind come again.

use rustc_hash::FxHashMap;

use crate::learner::{Learner, LiveRequest, RequestKey, Unmarked, hash};
use crate::step_detection::{NEVER, Sequence, repetition};
use crate::tuning::{beginning, last_rounds};

impl Learner {
    /// The program marks its steps after all: what was cut without marks is forgotten.
    pub(crate) fn trust_marks(&mut self) {
        self.unmarked = Unmarked::default();
        if self.first.take().is_some() {
            self.forget_steps();
            // What is open is not all that came before the first step.
            self.open.lost = self.open.lost.max(1);
        }
    }

    /// Looks whether a step begins with the last request, or has just ended with it. O(kinds that it may be of), but for
    /// the times when the open step is looked through.
    pub(crate) fn find_boundary(&mut self) {
        let (at, key) = match self.open.keys[..] {
            [.., key] => (self.open.keys.len() - 1, key),
            [] => return,
        };
        let is_next =
            |kinds: &Learner, id: u32| kinds.kinds.get(&id).is_some_and(|kind| kind.keys.get(at) == Some(&key));
        let mut following = std::mem::take(&mut self.unmarked.following);
        if at == 0 {
            let repeating = self.kinds.iter().filter(|(_, kind)| kind.runs > 1);
            following = repeating.filter(|(_, kind)| kind.keys.first() == Some(&key)).map(|(&id, _)| id).collect();
        } else {
            following.retain(|&id| is_next(self, id));
        }
        let has_ended = following.iter().any(|id| self.kinds.get(id).is_some_and(|kind| kind.keys.len() == at + 1));
        self.unmarked.following = following;
        if has_ended {
            self.boundary = true;
        } else if self.unmarked.following.is_empty() {
            if let Some(length) = self.known_beginning() {
                self.cut(self.open.keys.len() - length);
                self.follow();
            } else if self.open.keys.len() >= self.unmarked.look {
                self.look_through();
            }
        }
    }

    /// How many of the last requests are the beginning of a kind that repeats.
    fn known_beginning(&self) -> Option<usize> {
        let keys = &self.open.keys;
        let lengths = self.unmarked.beginnings.get(keys.last()?)?.iter();
        let is_one = |&&(length, beginning): &&(usize, u64)| {
            keys.len() > length && hash(&keys[keys.len() - length..]) == beginning
        };
        lengths.filter(is_one).map(|&(length, _)| length).max()
    }

    /// Follows the kinds that begin as the open step does.
    fn follow(&mut self) {
        let open = &self.open.keys;
        let repeating = self.kinds.iter().filter(|(_, kind)| kind.runs > 1 && kind.keys.len() > open.len());
        self.unmarked.following =
            repeating.filter(|(_, kind)| kind.keys.starts_with(open)).map(|(&id, _)| id).collect();
    }

    /// Cuts the open step where it repeats. O(n log n).
    fn look_through(&mut self) {
        let open = &self.open;
        let mut numbers: FxHashMap<RequestKey, u32> = FxHashMap::default();
        let mut number = |key: &RequestKey| {
            let next = numbers.len() as u32;
            *numbers.entry(*key).or_insert(next)
        };
        let sequence = Sequence {
            initial: 0,
            dies: open.own.iter().map(|&end| if end == 0 { NEVER } else { end }).collect(),
            key: open.keys.iter().map(&mut number).collect(),
            size: open.keys.iter().map(|key| key.size).collect(),
        };
        let starts = repetition::find(&sequence, None).unwrap_or_default();
        let length = open.keys.len();
        if length >= self.limits.step / 2 {
            // Too long to wait for more.
            self.open.lost = 1;
            self.close();
            self.first.get_or_insert(self.steps);
        } else {
            let mut done = 0;
            for &start in &starts[starts.len().saturating_sub(last_rounds())..] {
                self.cut(start as usize - done);
                done = start as usize;
            }
        }
        // A job that does not repeat is looked through less and less often.
        self.unmarked.look = (2 * length).min(self.limits.step / 2);
        self.follow();
    }

    /// Ends the open step before its request `n`; the rest is the next one, which is open.
    fn cut(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let open = std::mem::take(&mut self.open);
        let kind = self.kind_of(&open.keys[..n]).1.unwrap_or(self.steps);
        let run = self.kinds.get(&kind).map_or(0, |kind| kind.runs);
        let (step, rest) = open.split(n, LiveRequest { step: self.steps, kind, entry: 0, run, size: 0 });
        for (entry, id) in rest.ids.iter().enumerate() {
            if let Some(block) = self.live.get_mut(id)
                && block.step == self.steps
                && block.entry as usize == n + entry
            {
                (block.step, block.entry) = (self.steps + 1, entry as u32);
            }
        }
        self.complete(step, None);
        self.first.get_or_insert(self.steps);
        self.open = rest;
    }

    /// Notes how a kind begins that has come for the second time.
    pub(crate) fn note_beginning(&mut self, kind: u32) {
        let Some(kind) = self.kinds.get(&kind).filter(|kind| kind.runs == 2) else { return };
        let beginning = &kind.keys[..kind.keys.len().min(beginning())];
        if let Some(last) = beginning.last() {
            self.unmarked.beginnings.entry(*last).or_default().push((beginning.len(), hash(beginning)));
        }
    }
}

#[cfg(test)]
mod tests;
