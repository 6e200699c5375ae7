//! Exhaustive search for the lowest peak, written as plainly as can be.

use stalloc_planner::{Buffer, Instance};

/// The lowest peak there is, or `None` when the fixed buffers overlap.
///
/// In a lowest solution that is pushed down as far as it goes, every buffer lies on the ground, on a fixed one or on
/// another, rounded up to its alignment; so trying all orders with first fit finds it.
pub fn best(instance: &Instance) -> Option<u64> {
    let live: Vec<&Buffer> = instance.buffers.iter().filter(|b| b.size > 0 && b.lower < b.upper).collect();
    let (fixed, free): (Vec<&Buffer>, Vec<&Buffer>) = live.into_iter().partition(|b| b.fixed.is_some());
    let mut placed: Vec<(&Buffer, u64)> = Vec::new();
    for b in fixed {
        let offset = b.fixed?;
        if placed
            .iter()
            .any(|&(other, at)| meet(instance, b, other) && offset < at + other.size && at < offset + b.size)
        {
            return None;
        }
        placed.push((b, offset));
    }
    let mut lowest = u64::MAX;
    place(instance, &mut placed, &free, &mut lowest);
    Some(lowest)
}

fn place<'a>(instance: &Instance, placed: &mut Vec<(&'a Buffer, u64)>, free: &[&'a Buffer], lowest: &mut u64) {
    let peak = placed.iter().map(|(b, at)| at + b.size).max().unwrap_or(0);
    if peak >= *lowest {
        return;
    }
    if free.is_empty() {
        *lowest = peak;
    }
    for k in 0..free.len() {
        let mut rest = free.to_vec();
        let b = rest.swap_remove(k);
        let free_at = |offset: u64| {
            placed
                .iter()
                .all(|&(other, at)| !meet(instance, b, other) || offset >= at + other.size || at >= offset + b.size)
        };
        let mut offset = 0;
        while !free_at(offset) {
            offset += b.alignment;
        }
        placed.push((b, offset));
        place(instance, placed, &rest, lowest);
        placed.pop();
    }
}

/// Whether two buffers live at some instant together, instant by instant.
fn meet(instance: &Instance, a: &Buffer, b: &Buffer) -> bool {
    let lives = |b: &Buffer, t: u64| match instance.period {
        None => b.lower <= t && t < b.upper,
        Some(p) => b.upper - b.lower >= p || (b.lower <= t && t < b.upper) || t + p < b.upper,
    };
    (0..instance.period.unwrap_or(32)).any(|t| lives(a, t) && lives(b, t))
}
