//! Finds, among the items not yet placed, the best one that lives within a given stretch of sections.
//!
//! A k-d tree over (lower, upper) whose nodes hold the bounds and the best rank of what is left below them: O(sqrt n)
//! nodes at worst per question, a handful when lifetimes are nested as a training step's are; O(log n) per removal;
//! linear memory.

use crate::part::Item;

/// No item, no rank.
pub(crate) const NONE: u32 = u32::MAX;

/// Items of a leaf; searched one by one.
const LEAF: usize = 8;

/// What is known of the items left below a node.
#[derive(Clone, Copy, Debug)]
struct TreeNode {
    lower: (u32, u32),
    upper: (u32, u32),
    best: u32,
}

const EMPTY: TreeNode = TreeNode { lower: (u32::MAX, 0), upper: (u32::MAX, 0), best: NONE };

impl TreeNode {
    fn join(self, other: TreeNode) -> TreeNode {
        TreeNode {
            lower: (self.lower.0.min(other.lower.0), self.lower.1.max(other.lower.1)),
            upper: (self.upper.0.min(other.upper.0), self.upper.1.max(other.upper.1)),
            best: self.best.min(other.best),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ItemSlot {
    lower: u32,
    upper: u32,
    /// Lower is better; unique. `u32::MAX`: gone.
    rank: u32,
}

/// Where each item lies in the tree: made once for a part, used by every run over it.
#[derive(Clone, Debug)]
pub(crate) struct TreeLayout {
    /// Item at each slot, `u32::MAX` for none.
    item_at: Vec<u32>,
    slot_of: Vec<u32>,
    leaves: usize,
}

impl TreeLayout {
    /// O(n log n).
    pub fn new(items: &[Item]) -> TreeLayout {
        let leaves = items.len().div_ceil(LEAF).max(1).next_power_of_two();
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        let mut layout = TreeLayout { item_at: vec![NONE; leaves * LEAF], slot_of: vec![0; items.len()], leaves };
        // (range of `order`, range of leaves, split by lower?)
        let mut todo = vec![(0, order.len(), 0, leaves, true)];
        while let Some((from, to, first, count, by_lower)) = todo.pop() {
            if count == 1 {
                for (k, &i) in order[from..to].iter().enumerate() {
                    layout.item_at[first * LEAF + k] = i;
                    layout.slot_of[i as usize] = (first * LEAF + k) as u32;
                }
                continue;
            }
            let half = count / 2;
            let middle = from + ((to - from) * half).div_ceil(count);
            if middle < to {
                let key = |i: &u32| {
                    let item = &items[*i as usize];
                    if by_lower { (item.lower, item.upper, *i) } else { (item.upper, item.lower, *i) }
                };
                order[from..to].select_nth_unstable_by_key(middle - from, key);
            }
            todo.push((middle, to, first + half, half, !by_lower));
            todo.push((from, middle, first, half, !by_lower));
        }
        layout
    }
}

/// The items left, with their ranks.
#[derive(Clone, Debug)]
pub(crate) struct Finder<'a> {
    layout: &'a TreeLayout,
    slots: Vec<ItemSlot>,
    /// Heap order: the children of k are 2k and 2k+1, leaves come last.
    nodes: Vec<TreeNode>,
    /// Nodes looked at so far, the measure of work.
    pub work: u64,
}

impl<'a> Finder<'a> {
    /// All items, with `rank[item]` unique and below `u32::MAX`. O(n).
    pub fn new(layout: &'a TreeLayout, items: &[Item], rank: &[u32]) -> Finder<'a> {
        let slot = |&i: &u32| match items.get(i as usize) {
            Some(item) => ItemSlot { lower: item.lower, upper: item.upper, rank: rank[i as usize] },
            None => ItemSlot { lower: u32::MAX, upper: u32::MAX, rank: NONE },
        };
        let slots: Vec<ItemSlot> = layout.item_at.iter().map(slot).collect();
        let mut finder = Finder { layout, slots, nodes: vec![EMPTY; 2 * layout.leaves], work: items.len() as u64 };
        for leaf in 0..layout.leaves {
            finder.nodes[layout.leaves + leaf] = finder.leaf(leaf);
        }
        for k in (1..layout.leaves).rev() {
            finder.nodes[k] = finder.nodes[2 * k].join(finder.nodes[2 * k + 1]);
        }
        finder
    }

    fn leaf(&self, leaf: usize) -> TreeNode {
        let slots = self.slots[leaf * LEAF..(leaf + 1) * LEAF].iter().filter(|s| s.rank != NONE);
        slots.fold(EMPTY, |node, s| {
            node.join(TreeNode { lower: (s.lower, s.lower), upper: (s.upper, s.upper), best: s.rank })
        })
    }

    /// Takes an item out.
    pub fn remove(&mut self, item: u32) {
        let slot = self.layout.slot_of[item as usize] as usize;
        self.slots[slot].rank = NONE;
        let leaf = slot / LEAF;
        let mut k = self.layout.leaves + leaf;
        self.nodes[k] = self.leaf(leaf);
        while k > 1 {
            k /= 2;
            self.nodes[k] = self.nodes[2 * k].join(self.nodes[2 * k + 1]);
        }
    }

    /// The rank of the best item whose lifetime lies within `[from, to)`, if that is better than `than`; else `than`.
    pub fn best_within(&mut self, from: u32, to: u32, than: u32) -> u32 {
        let mut best = than;
        let mut stack = [0u32; 64];
        let mut top = 1;
        stack[0] = 1;
        while top > 0 {
            top -= 1;
            self.work += 1;
            let k = stack[top] as usize;
            let node = &self.nodes[k];
            if node.best >= best || node.lower.1 < from || node.upper.0 > to {
                continue;
            }
            if node.lower.0 >= from && node.upper.1 <= to {
                best = node.best;
            } else if k >= self.layout.leaves {
                let leaf = k - self.layout.leaves;
                for s in &self.slots[leaf * LEAF..(leaf + 1) * LEAF] {
                    if s.lower >= from && s.upper <= to {
                        best = best.min(s.rank);
                    }
                }
            } else {
                // The more promising child is looked at first.
                let (a, b) = (2 * k as u32, 2 * k as u32 + 1);
                let (first, second) =
                    if self.nodes[a as usize].best <= self.nodes[b as usize].best { (a, b) } else { (b, a) };
                stack[top] = second;
                stack[top + 1] = first;
                top += 2;
            }
        }
        best
    }
}
