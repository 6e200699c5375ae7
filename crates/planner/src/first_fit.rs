//! First fit: items in a given order, each at the lowest place that is free throughout its lifetime.
//!
//! Which items are in the way is found by an interval tree over lifetimes (a heap of the latest end among those
//! placed), so no interference graph is kept: O(log n) per item in the way, O(n) memory.

use crate::clock::{Until, is_seen_over};
use crate::part::{Item, Part};

/// A lifetime without wrapping: an item of a ring that wraps has two.
#[derive(Clone, Copy, Debug)]
struct ItemPiece {
    lower: u32,
    upper: u32,
    item: u32,
}

/// The items of a part, those placed and those not.
pub(crate) struct FirstFit<'a> {
    part: &'a Part,
    pieces: Vec<ItemPiece>,
    /// Slot of an item's first and second piece; the same for both when there is one.
    slots: Vec<[u32; 2]>,
    /// Heap order, leaves last: the latest end among the pieces placed below.
    latest: Vec<u32>,
    leaves: usize,
    offsets: Vec<u64>,
    near: Vec<(u64, u64)>,
    /// Items looked at so far, the measure of work.
    pub work: u64,
    /// When to give up.
    pub deadline: Until,
}

impl<'a> FirstFit<'a> {
    /// Nothing placed but what is fixed. O(n log n).
    pub fn new(part: &'a Part) -> FirstFit<'a> {
        let all: Vec<&Item> = part.items.iter().chain(part.fixed.iter().map(|f| &f.0)).collect();
        let m = part.sections;
        let mut pieces = Vec::with_capacity(all.len());
        for (i, item) in all.iter().enumerate() {
            pieces.push(ItemPiece { lower: item.lower, upper: item.upper.min(m), item: i as u32 });
            if item.upper > m {
                pieces.push(ItemPiece { lower: 0, upper: item.upper - m, item: i as u32 });
            }
        }
        pieces.sort_unstable_by_key(|p| (p.lower, p.upper, p.item));
        let mut slots = vec![[u32::MAX; 2]; all.len()];
        for (slot, piece) in pieces.iter().enumerate() {
            let of = &mut slots[piece.item as usize];
            *of = [if of[0] == u32::MAX { slot as u32 } else { of[0] }, slot as u32];
        }
        let leaves = pieces.len().max(1).next_power_of_two();
        let mut offsets = vec![0; all.len()];
        for (k, (_, offset)) in part.fixed.iter().enumerate() {
            offsets[part.items.len() + k] = *offset;
        }
        let mut fit = FirstFit {
            part,
            pieces,
            slots,
            latest: vec![0; 2 * leaves],
            leaves,
            offsets,
            near: Vec::new(),
            work: 0,
            deadline: Until::default(),
        };
        fit.clear();
        fit
    }

    /// Takes all items out again but the fixed ones.
    pub fn clear(&mut self) {
        self.latest.fill(0);
        for i in self.part.items.len()..self.slots.len() {
            self.mark(i);
        }
    }

    fn mark(&mut self, i: usize) {
        for slot in self.slots[i] {
            let upper = self.pieces[slot as usize].upper;
            let mut k = self.leaves + slot as usize;
            while k > 0 && self.latest[k] < upper {
                self.latest[k] = upper;
                k /= 2;
            }
        }
    }

    fn size(&self, i: u32) -> u64 {
        let n = self.part.items.len();
        if (i as usize) < n { self.part.items[i as usize].size } else { self.part.fixed[i as usize - n].0.size }
    }

    /// Notes the places of what is placed and lives in `[lower, upper)`.
    fn look(&mut self, lower: u32, upper: u32) {
        let end = self.pieces.partition_point(|p| p.lower < upper);
        let mut stack = [(0usize, 0usize, 0usize); 64];
        let mut top = 1;
        stack[0] = (1, 0, self.leaves);
        while top > 0 {
            top -= 1;
            let (k, from, to) = stack[top];
            if from >= end || self.latest[k] <= lower {
                continue;
            }
            if k >= self.leaves {
                let i = self.pieces[from].item;
                let offset = self.offsets[i as usize];
                self.near.push((offset, offset.saturating_add(self.size(i))));
            } else {
                let half = from.midpoint(to);
                stack[top] = (2 * k + 1, half, to);
                stack[top + 1] = (2 * k, from, half);
                top += 2;
            }
        }
    }

    /// Places an item at the lowest free place at or above the part's base; its top.
    pub fn place(&mut self, i: u32) -> u64 {
        let item = self.part.items[i as usize];
        self.near.clear();
        self.look(item.lower, item.upper.min(self.part.sections));
        if item.upper > self.part.sections {
            self.look(0, item.upper - self.part.sections);
        }
        self.work += 1 + self.near.len() as u64;
        self.near.sort_unstable();
        let aligned = |o: u64| o.checked_next_multiple_of(item.align).unwrap_or(u64::MAX);
        let mut offset = aligned(self.part.base);
        for &(from, to) in &self.near {
            if from >= offset.saturating_add(item.size) {
                break;
            }
            if to > offset {
                offset = aligned(to);
            }
        }
        self.offsets[i as usize] = offset;
        self.mark(i as usize);
        offset.saturating_add(item.size)
    }

    /// Places the items in an order; `None` when a top reaches `limit`, more than `work` is done, or the time is up.
    pub fn run(&mut self, order: &[u32], limit: u64, work: u64) -> Option<Vec<u64>> {
        self.clear();
        let end = self.work.saturating_add(work);
        for (k, &i) in order.iter().enumerate() {
            if self.place(i) >= limit || self.work > end || is_seen_over(k + 1, self.deadline) {
                return None;
            }
        }
        Some(self.offsets[..self.part.items.len()].to_vec())
    }
}
