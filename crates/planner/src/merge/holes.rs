//! What is missing where a rectangle was full shows in the loads: where the load falls by some amount and later rises by the
//! same, a piece of that size is likely to be missing in between; where a few changes together make up for each other, a few
//! pieces that begin or end together.

use rustc_hash::FxHashMap;

/// Changes that make up for each other, at most.
pub(super) const MOST: usize = 6;

/// Changes that follow one, among which those are looked for that make up for it.
const NEAREST: usize = 12;

/// What is missing: first section, one past the last, size.
pub(super) type Hole = (u32, u32, u64);

/// A change of what is missing, at the begin of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub at: u32,
    pub by: i64,
}

/// Likely holes, by changes of which up to so many make up for each other; those that make up for nothing are left.
pub(super) fn holes(changes: &mut Vec<Change>, most: usize) -> Vec<Hole> {
    let mut found = Vec::new();
    pair(changes, &mut found);
    (3..=most).for_each(|count| group(changes, count, &mut found));
    found
}

/// Where what is missing changes.
pub(super) fn changes(missing: &[u64]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut before = 0;
    for (&now, at) in missing.iter().chain(&[0]).zip(0..) {
        let by = now as i64 - before;
        if by != 0 {
            changes.push(Change { at, by });
        }
        before = now as i64;
    }
    changes
}

/// Takes out the pairs.
fn pair(changes: &mut Vec<Change>, found: &mut Vec<Hole>) {
    let mut open: FxHashMap<i64, Vec<usize>> = FxHashMap::default();
    let mut gone = vec![false; changes.len()];
    for (k, change) in changes.iter().enumerate() {
        if change.by > 0 {
            open.entry(change.by).or_default().push(k);
        } else if let Some(first) = open.get_mut(&-change.by).and_then(Vec::pop) {
            (gone[first], gone[k]) = (true, true);
            found.push((changes[first].at, change.at, change.by.unsigned_abs()));
        }
    }
    let mut gone = gone.iter();
    changes.retain(|_| !gone.next().is_some_and(|&gone| gone));
}

/// Takes out groups of so many, those that end soonest first.
fn group(changes: &mut Vec<Change>, count: usize, found: &mut Vec<Hole>) {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for first in 0..changes.len() {
        let mut chosen = vec![first];
        search(changes, count, changes[first].by, &mut chosen, &mut groups);
    }
    let span = |g: &Vec<usize>| changes[g[g.len() - 1]].at - changes[g[0]].at;
    groups.sort_by_key(|g| (span(g), g[0]));
    let mut gone = vec![false; changes.len()];
    for group in &groups {
        if group.iter().any(|&k| gone[k]) {
            continue;
        }
        group.iter().for_each(|&k| gone[k] = true);
        cells(&group.iter().map(|&k| changes[k]).collect::<Vec<_>>(), found);
    }
    let mut gone = gone.iter();
    changes.retain(|_| !gone.next().is_some_and(|&gone| gone));
}

/// Groups that begin with those chosen, which add up to `sum`.
fn search(changes: &[Change], count: usize, sum: i64, chosen: &mut Vec<usize>, groups: &mut Vec<Vec<usize>>) {
    if sum <= 0 {
        if sum == 0 && chosen.len() == count {
            groups.push(chosen.clone());
        }
        return;
    }
    if chosen.len() == count {
        return;
    }
    let last = chosen[chosen.len() - 1];
    for k in last + 1..changes.len().min(chosen[0] + 1 + NEAREST) {
        chosen.push(k);
        search(changes, count, sum + changes[k].by, chosen, groups);
        chosen.pop();
    }
}

/// The holes of a group: what is missing during each stretch, cut at each height that is another's.
fn cells(group: &[Change], found: &mut Vec<Hole>) {
    let mut heights = Vec::new();
    let mut sum = 0;
    for change in &group[..group.len() - 1] {
        sum += change.by;
        heights.push(sum);
    }
    let mut levels = heights.clone();
    levels.sort_unstable();
    levels.dedup();
    for (w, &height) in group.windows(2).zip(&heights) {
        let mut below = 0;
        for &level in levels.iter().take_while(|&&level| level <= height) {
            found.push((w[0].at, w[1].at, (level - below) as u64));
            below = level;
        }
    }
}

#[cfg(test)]
mod tests;
