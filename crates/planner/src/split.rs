//! Taking a part to pieces that can be solved apart, losing no solution.
//!
//! Two steps, repeated while they find something: an item that lives through a whole part may as well lie at its
//! bottom (whatever is below it can be moved on top of it unchanged); and where no lifetime crosses a boundary
//! between sections, what is before and what is after share addresses freely. In a ring, one such boundary cuts it
//! open.

use crate::part::{Item, Part, Problem};

/// Nested lifetimes (an item through all, then another through all of the rest, ...) would make the repetition
/// quadratic; the searches cope well with what is left after this many rounds.
const PASSES: u32 = 24;

/// Adds the pieces of `part` to `problem.parts`, and what lies at their bottoms to `problem.decided`. O(n log n).
pub(crate) fn split(part: Part, problem: &mut Problem) {
    let mut todo = vec![(part, 0)];
    while let Some((mut part, round)) = todo.pop() {
        part.aligned = part.items.iter().any(|i| i.align > 1);
        let changed = round < PASSES && part.fixed.is_empty() && !part.aligned && peel(&mut part, problem);
        if part.ring && !cut(&mut part) {
            sort(&mut part.items);
            problem.parts.push(part);
            continue;
        }
        let mut pieces = pieces(part);
        if pieces.len() == 1 && !changed {
            problem.parts.append(&mut pieces);
        } else {
            todo.extend(pieces.into_iter().map(|p| (p, round + 1)));
        }
    }
    // Independent of the order of the work above, and the first parts of the step first.
    problem.parts.reverse();
}

/// Moves what lives through the whole part to its bottom; whether there was anything. Saturates: a part that does not
/// fit in the address space is refused when its bound is known.
fn peel(part: &mut Part, problem: &mut Problem) -> bool {
    let (before, through) = (part.items.len(), part.sections);
    part.items.retain(|item| {
        if item.length() >= through {
            problem.decided.push((item.id, part.base));
            part.base = part.base.saturating_add(item.size);
        }
        item.length() < through
    });
    part.items.len() < before
}

/// Opens a ring at a boundary that no lifetime crosses; whether there is one.
fn cut(part: &mut Part) -> bool {
    let m = part.sections;
    let mut crossing = vec![0i64; m as usize + 1];
    for item in part.items.iter().chain(part.fixed.iter().map(|f| &f.0)) {
        if item.length() >= m {
            return false;
        }
        // Boundaries lower+1 ..= upper-1, modulo m; boundary m is boundary 0.
        crossing[item.lower as usize + 1] += 1;
        if item.upper <= m {
            crossing[item.upper as usize] -= 1;
        } else {
            crossing[0] += 1;
            crossing[(item.upper - m) as usize] -= 1;
        }
    }
    let mut count = 0;
    let open = (0..m).find(|&k| {
        count += crossing[k as usize];
        count == 0
    });
    let Some(open) = open else { return false };
    for item in part.items.iter_mut().chain(part.fixed.iter_mut().map(|f| &mut f.0)) {
        let length = item.length();
        item.lower = if item.lower >= open { item.lower - open } else { item.lower + m - open };
        item.upper = item.lower + length;
    }
    part.ring = false;
    true
}

/// The stretches of a line between the boundaries that nothing crosses, last first.
fn pieces(mut part: Part) -> Vec<Part> {
    sort(&mut part.items);
    part.fixed.sort_unstable_by_key(|(i, offset)| (i.lower, i.upper, *offset, i.id));
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut all: Vec<(u32, u32)> = part.items.iter().map(|i| (i.lower, i.upper)).collect();
    if !part.fixed.is_empty() {
        all.extend(part.fixed.iter().map(|(i, _)| (i.lower, i.upper)));
        all.sort_unstable();
    }
    for (lower, upper) in all {
        match ranges.last_mut() {
            Some(last) if lower < last.1 => last.1 = last.1.max(upper),
            _ => ranges.push((lower, upper)),
        }
    }
    let mut pieces = Vec::with_capacity(ranges.len());
    for (from, to) in ranges.into_iter().rev() {
        let at = part.items.partition_point(|i| i.lower < from);
        let mut items = if at == 0 { std::mem::take(&mut part.items) } else { part.items.split_off(at) };
        let at = part.fixed.partition_point(|(i, _)| i.lower < from);
        let mut fixed = part.fixed.split_off(at);
        for item in items.iter_mut().chain(fixed.iter_mut().map(|f| &mut f.0)) {
            item.lower -= from;
            item.upper -= from;
        }
        let piece =
            Part { items, fixed, sections: to - from, base: part.base, aligned: part.aligned, ..Part::default() };
        pieces.push(piece);
    }
    pieces
}

fn sort(items: &mut [Item]) {
    items.sort_unstable_by(|a, b| {
        (a.lower, b.upper, b.size, a.align, a.id).cmp(&(b.lower, a.upper, a.size, b.align, b.id))
    });
}
