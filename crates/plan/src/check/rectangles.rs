//! The check of a solved allocation instance.

use super::Findings;
use super::ranges::TakenRanges;

/// A placed buffer: `[lower, upper)` in time, `[offset, offset + size)` in address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First instant at which it lives.
    pub lower: u64,
    /// First instant at which it no longer lives.
    pub upper: u64,
    /// Bytes.
    pub size: u64,
    /// What its offset must be a multiple of.
    pub alignment: u64,
    /// Where it was put.
    pub offset: u64,
}

/// Checks that no two buffers that live at the same time share an address, that each is aligned and ends at or below
/// `capacity` if there is one. O(n log n).
///
/// ```
/// use stalloc_plan::{Rectangle, check_rectangles};
/// let a = Rectangle { lower: 0, upper: 4, size: 8, alignment: 1, offset: 0 };
/// let b = Rectangle { lower: 4, upper: 6, ..a }; // begins when the other ends
/// assert!(check_rectangles(&[a, b], None).ok);
/// let c = Rectangle { lower: 3, ..b };
/// assert_eq!(check_rectangles(&[a, c], None).overlaps, 1);
/// ```
pub fn check_rectangles(rectangles: &[Rectangle], capacity: Option<u64>) -> Findings {
    let mut findings = Findings::default();
    let top = capacity.unwrap_or(u64::MAX);
    // Ends come before beginnings at the same time: lifetimes are half-open.
    let mut moments: Vec<(u64, bool, u32)> = Vec::with_capacity(rectangles.len() * 2);
    for (i, r) in rectangles.iter().enumerate() {
        findings.place(|| format!("buffer {i}"), r.offset, r.size, r.alignment, top);
        if r.lower < r.upper {
            moments.push((r.lower, true, i as u32));
            moments.push((r.upper, false, i as u32));
        }
    }
    moments.sort_unstable();
    let mut taken = TakenRanges::default();
    for (time, begins, i) in moments {
        let r = &rectangles[i as usize];
        let end = r.offset.saturating_add(r.size);
        if !begins {
            taken.give_back(r.offset, i);
        } else if let Some(holder) = taken.holder(r.offset, end) {
            findings.overlap(|| format!("at {time}, buffer {i} is put where buffer {holder} still lives"));
        } else {
            taken.take(r.offset, end, i);
        }
    }
    findings.conclude()
}
