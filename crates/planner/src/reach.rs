//! How high each section of a skyline will be at least: its height now, and above it all that is not placed yet.
//!
//! What is lost below a floor that is raised is lost for good, so a run can be given up as soon as it cannot end below a
//! limit any more, which is often long before the item is placed that is too high.

/// A segment tree with additions to ranges, of which only the greatest value is asked for. In each pair of nodes the higher
/// is 0 and the lower says by how much it is lower; the root holds the greatest value.
pub(crate) struct Reach {
    leaves: usize,
    nodes: Vec<i64>,
}

impl Reach {
    /// From the height that each section reaches if nothing is lost. O(sections).
    pub fn new(heights: &[u64]) -> Reach {
        let leaves = heights.len().next_power_of_two().max(2);
        let mut nodes = vec![0; 2 * leaves];
        for (node, &height) in nodes[leaves..].iter_mut().zip(heights) {
            *node = i64::try_from(height).unwrap_or(i64::MAX);
        }
        let mut reach = Reach { leaves, nodes };
        for pair in (1..leaves).rev() {
            reach.settle(pair);
        }
        reach
    }

    /// The greatest height that any section will reach at least.
    pub fn highest(&self) -> u64 {
        self.nodes[1].max(0).cast_unsigned()
    }

    /// Loses so much in `[from, to)`. O(log sections).
    pub fn lose(&mut self, from: u32, to: u32, lost: u64) {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        let (mut from, mut to) = (from as usize + self.leaves, to as usize + self.leaves);
        if from >= to || lost == 0 {
            return;
        }
        let (first, last) = (from, to - 1);
        while from < to {
            if from % 2 == 1 {
                self.nodes[from] = self.nodes[from].saturating_add(lost);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.nodes[to] = self.nodes[to].saturating_add(lost);
            }
            (from, to) = (from / 2, to / 2);
        }
        let (mut left, mut right) = (first / 2, last / 2);
        while left >= 1 {
            self.settle(left);
            if right != left {
                self.settle(right);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    /// Brings what a pair of nodes has in common to the node above.
    fn settle(&mut self, above: usize) {
        let common = self.nodes[2 * above].max(self.nodes[2 * above + 1]);
        self.nodes[2 * above] -= common;
        self.nodes[2 * above + 1] = self.nodes[2 * above + 1].saturating_sub(common);
        self.nodes[above] = self.nodes[above].saturating_add(common);
    }
}

#[cfg(test)]
mod tests;
