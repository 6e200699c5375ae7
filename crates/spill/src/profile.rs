//! Bytes over the moments of a step: ranges are raised and lowered, and asked for their largest value, in logarithmic time.

/// A tree over the moments; a node's value counts for all below it.
#[derive(Clone, Debug)]
pub struct Profile {
    moments: usize,
    /// The largest value below each node, what the node and those below it add included.
    most: Vec<i64>,
    added: Vec<i64>,
}

impl Profile {
    /// The bytes of each moment.
    pub fn new(bytes: &[u64]) -> Self {
        let leaves = bytes.len().next_power_of_two();
        let mut most = vec![i64::MIN / 2; 2 * leaves];
        for (leaf, &bytes) in most[leaves..].iter_mut().zip(bytes) {
            *leaf = signed(bytes);
        }
        for node in (1..leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Profile { moments: bytes.len(), added: vec![0; most.len()], most }
    }

    /// Raises the moments from `from` up to `until` by `bytes`, which may be negative.
    pub fn add(&mut self, from: usize, until: usize, bytes: i64) {
        self.change(1, 0, self.most.len() / 2, (from, until.min(self.moments)), bytes);
    }

    /// The largest value from `from` up to `until`; nothing where there is no moment.
    pub fn most(&self, from: usize, until: usize) -> i64 {
        self.largest(1, 0, self.most.len() / 2, (from, until.min(self.moments))).max(0)
    }

    fn change(&mut self, node: usize, start: usize, width: usize, range: (usize, usize), bytes: i64) {
        let end = start + width;
        if range.0 >= end || range.1 <= start || range.0 >= range.1 {
            return;
        }
        if range.0 <= start && end <= range.1 {
            self.most[node] += bytes;
            self.added[node] += bytes;
            return;
        }
        self.change(2 * node, start, width / 2, range, bytes);
        self.change(2 * node + 1, start + width / 2, width / 2, range, bytes);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    fn largest(&self, node: usize, start: usize, width: usize, range: (usize, usize)) -> i64 {
        let end = start + width;
        if range.0 >= end || range.1 <= start || range.0 >= range.1 {
            return i64::MIN / 2;
        }
        if range.0 <= start && end <= range.1 {
            return self.most[node];
        }
        let half = width / 2;
        let below = self.largest(2 * node, start, half, range);
        below.max(self.largest(2 * node + 1, start + half, half, range)) + self.added[node]
    }
}

/// Bytes that [`crate::SpillProblem`] has checked to be small enough.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_a_list_would_be(
            bytes in prop::collection::vec(0..50_u64, 1..40),
            changes in prop::collection::vec((0..40_usize, 0..40_usize, 0..50_i64), 0..30),
        ) {
            let mut profile = Profile::new(&bytes);
            let mut list: Vec<i64> = bytes.iter().map(|&bytes| signed(bytes)).collect();
            for (from, until, more) in changes {
                profile.add(from, until, more);
                for at in from..until.min(list.len()) {
                    list[at] += more;
                }
                for from in 0..list.len() {
                    for until in from..=list.len() {
                        prop_assert_eq!(profile.most(from, until), list[from..until].iter().copied().max().unwrap_or(0));
                    }
                }
            }
        }
    }
}
