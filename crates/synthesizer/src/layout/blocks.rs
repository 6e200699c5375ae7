//! What is already placed, as the planner wants it: disjoint blocks.

use stalloc_planner::Buffer;

/// A range of addresses that is taken for a range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// From when.
    pub lower: u64,
    /// Until when.
    pub upper: u64,
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// Cuts what is taken, which may overlap (items that are never alive together may share addresses), into blocks that
/// do not, and that the planner works around. O(n log n) if little overlaps.
pub fn disjoint(mut taken: Vec<Taken>) -> Vec<Buffer> {
    taken.retain(|t| t.lower < t.upper && t.start < t.end);
    taken.sort_unstable_by_key(|t| (t.start, t.end));
    let mut blocks = Vec::with_capacity(taken.len());
    // Ranges that touch each other's addresses are cut into bands together; the rest need not be.
    let mut rest = taken.as_slice();
    while let Some(first) = rest.first() {
        let mut end = first.end;
        let count = rest.iter().take_while(|t| {
            let touches = t.start < end;
            end = if touches { end.max(t.end) } else { end };
            touches
        });
        let (cluster, others) = rest.split_at(count.count());
        cut(cluster, &mut blocks);
        rest = others;
    }
    blocks
}

fn cut(cluster: &[Taken], blocks: &mut Vec<Buffer>) {
    if overlap_free(cluster) {
        blocks.extend(cluster.iter().map(|t| block(t.lower, t.upper, t.start, t.end)));
        return;
    }
    let mut edges: Vec<u64> = cluster.iter().flat_map(|t| [t.start, t.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut open: Vec<(u64, u64, u64)> = Vec::new();
    for band in edges.windows(2) {
        let mut spans: Vec<(u64, u64)> =
            cluster.iter().filter(|t| t.start <= band[0] && band[1] <= t.end).map(|t| (t.lower, t.upper)).collect();
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64, u64)> = Vec::new();
        for (lower, upper) in spans {
            match merged.last_mut() {
                Some(last) if lower <= last.1 => last.1 = last.1.max(upper),
                _ => merged.push((lower, upper, band[0])),
            }
        }
        // A span that the band below has as well goes on.
        for span in &mut merged {
            if let Some(at) = open.iter().position(|o| (o.0, o.1) == (span.0, span.1)) {
                span.2 = open.swap_remove(at).2;
            }
        }
        blocks.extend(open.drain(..).map(|(lower, upper, start)| block(lower, upper, start, band[0])));
        open = merged;
    }
    let top = edges.last().copied().unwrap_or(0);
    blocks.extend(open.into_iter().map(|(lower, upper, start)| block(lower, upper, start, top)));
}

/// Whether no two overlap in time and address: by a sweep over time.
fn overlap_free(cluster: &[Taken]) -> bool {
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * cluster.len());
    for (i, t) in cluster.iter().enumerate() {
        moments.extend([(t.lower, true, i), (t.upper, false, i)]);
    }
    moments.sort_unstable();
    let mut live = std::collections::BTreeMap::new();
    for (_, begins, i) in moments {
        let t = &cluster[i];
        if !begins {
            live.remove(&t.start);
        } else if live.range(..t.end).next_back().is_some_and(|(_, &end)| end > t.start) {
            return false;
        } else {
            live.insert(t.start, t.end);
        }
    }
    true
}

fn block(lower: u64, upper: u64, start: u64, end: u64) -> Buffer {
    Buffer { lower, upper, size: end - start, alignment: 1, fixed: Some(start) }
}

#[cfg(test)]
mod tests;
