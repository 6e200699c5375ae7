//! A vector clock: how much of each stream's work comes before a point.

use super::Stream;
use std::collections::BTreeMap;

/// The number of each stream's last piece of work that comes before; none where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorClock(BTreeMap<Stream, u64>);

impl VectorClock {
    /// One more piece of work of a stream; its number.
    pub fn advance(&mut self, stream: Stream) -> u64 {
        let number = self.0.entry(stream).or_default();
        *number += 1;
        *number
    }

    /// Comes after all that another comes after.
    pub fn join(&mut self, other: &VectorClock) {
        for (&stream, &number) in &other.0 {
            let ours = self.0.entry(stream).or_default();
            *ours = (*ours).max(number);
        }
    }

    /// Whether a stream's piece of work comes before.
    pub fn has_work(&self, stream: Stream, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|&ours| ours >= number)
    }

    /// Whether all that comes before another comes before this.
    pub fn has(&self, other: &VectorClock) -> bool {
        other.0.iter().all(|(&stream, &number)| number == 0 || self.has_work(stream, number))
    }
}
