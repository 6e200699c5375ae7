//! Which items of a part live at some time during a stretch of sections.

use crate::part::Part;

/// A lifetime without wrapping: an item of a ring that wraps has two. Fixed items come after the others.
#[derive(Clone, Copy, Debug)]
struct LifetimePiece {
    lower: u32,
    upper: u32,
    item: u32,
}

/// Pieces in order of their first section, under a heap of their latest ends.
#[derive(Clone, Debug)]
pub(crate) struct Lifetimes {
    pieces: Vec<LifetimePiece>,
    latest: Vec<u32>,
    leaves: usize,
}

impl Lifetimes {
    /// O(n log n).
    pub fn new(part: &Part) -> Lifetimes {
        let m = part.sections;
        let mut pieces = Vec::with_capacity(part.items.len() + part.fixed.len());
        for (i, item) in part.items.iter().chain(part.fixed.iter().map(|f| &f.0)).enumerate() {
            pieces.push(LifetimePiece { lower: item.lower, upper: item.upper.min(m), item: i as u32 });
            if item.upper > m {
                pieces.push(LifetimePiece { lower: 0, upper: item.upper - m, item: i as u32 });
            }
        }
        pieces.sort_unstable_by_key(|p| (p.lower, p.upper, p.item));
        let leaves = pieces.len().max(1).next_power_of_two();
        let mut latest = vec![0; 2 * leaves];
        for (k, piece) in pieces.iter().enumerate() {
            latest[leaves + k] = piece.upper;
        }
        for k in (1..leaves).rev() {
            latest[k] = latest[2 * k].max(latest[2 * k + 1]);
        }
        Lifetimes { pieces, latest, leaves }
    }

    /// Calls a function with each item that lives during `[from, to)`, where `to` may be beyond the last of `m` sections
    /// (then with some items twice); how many were looked at.
    pub fn meeting(&self, from: u32, to: u32, m: u32, mut each: impl FnMut(u32)) -> u64 {
        let (from, to) = if from >= m { (from - m, to - m) } else { (from, to) };
        let mut looked = 0;
        for (lower, upper) in [(from, to.min(m)), (0, to.saturating_sub(m))] {
            let end = self.pieces.partition_point(|p| p.lower < upper);
            let mut stack = [(0usize, 0usize, 0usize); 64];
            let mut top = usize::from(lower < upper);
            stack[0] = (1, 0, self.leaves);
            while top > 0 {
                top -= 1;
                let (k, first, last) = stack[top];
                if first >= end || self.latest[k] <= lower {
                    continue;
                }
                looked += 1;
                if k >= self.leaves {
                    each(self.pieces[first].item);
                } else {
                    let half = first.midpoint(last);
                    stack[top] = (2 * k + 1, half, last);
                    stack[top + 1] = (2 * k, first, half);
                    top += 2;
                }
            }
        }
        looked
    }
}
