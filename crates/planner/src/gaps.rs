//! The free ranges of an address space, by address.

/// Ranges of a chunk before it is cut in two.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
struct GapChunk {
    /// (from, to), ascending, none touching another.
    ranges: Vec<(u64, u64)>,
    /// Length of the longest.
    longest: u64,
}

impl GapChunk {
    fn measure(&mut self) {
        self.longest = self.ranges.iter().map(|r| r.1 - r.0).max().unwrap_or(0);
    }
}

/// Free ranges in chunks: O(sqrt n)-like searches with a very small constant, linear memory.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedGaps {
    chunks: Vec<GapChunk>,
}

impl ChunkedGaps {
    /// Everything from `base` on is free.
    pub fn new(base: u64) -> ChunkedGaps {
        let longest = u64::MAX - base;
        ChunkedGaps { chunks: vec![GapChunk { ranges: vec![(base, u64::MAX)], longest }] }
    }

    /// Takes the lowest free range of a size and says where; `None` if there is none.
    pub fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        self.take_clear_of(size, align, &[])
    }

    /// Takes the lowest free range of a size that meets none of the `blocked` ranges, which are in order.
    pub fn take_clear_of(&mut self, size: u64, align: u64, blocked: &[(u64, u64)]) -> Option<u64> {
        let (c, r, offset) = self.lowest(size, align, blocked)?;
        self.cut(c, r, offset, offset + size);
        Some(offset)
    }

    /// Takes a range that is free; what of it is not is left alone.
    pub fn claim(&mut self, from: u64, to: u64) {
        let c = self.chunks.partition_point(|c| c.ranges.first().is_some_and(|r| r.0 <= from)).saturating_sub(1);
        let Some(r) = self.chunks[c].ranges.iter().position(|r| r.0 <= from && to <= r.1) else { return };
        self.cut(c, r, from, to);
    }

    /// Cuts a range out of the one that holds it.
    fn cut(&mut self, c: usize, r: usize, offset: u64, end: u64) {
        let chunk = &mut self.chunks[c];
        let (from, to) = chunk.ranges[r];
        match (from < offset, end < to) {
            (false, false) => drop(chunk.ranges.remove(r)),
            (false, true) => chunk.ranges[r].0 = end,
            (true, false) => chunk.ranges[r].1 = offset,
            (true, true) => {
                chunk.ranges[r].1 = offset;
                chunk.ranges.insert(r + 1, (end, to));
            }
        }
        self.tidy(c);
    }

    fn lowest(&self, size: u64, align: u64, blocked: &[(u64, u64)]) -> Option<(usize, usize, u64)> {
        for (c, chunk) in self.chunks.iter().enumerate() {
            if chunk.longest < size {
                continue;
            }
            for (r, &(from, to)) in chunk.ranges.iter().enumerate().filter(|(_, r)| r.1 - r.0 >= size) {
                let mut offset = place(from, to, size, align);
                for &(start, end) in blocked {
                    let Some(at) = offset.filter(|&at| start < at + size) else { break };
                    if end > at {
                        offset = place(end, to, size, align);
                    }
                }
                if let Some(offset) = offset {
                    return Some((c, r, offset));
                }
            }
        }
        None
    }

    /// Gives a range back.
    pub fn give(&mut self, from: u64, to: u64) {
        // The chunk that holds the last range below, if any does.
        let c = self.chunks.partition_point(|c| c.ranges[0].0 < from).saturating_sub(1);
        let chunk = &self.chunks[c];
        let r = chunk.ranges.partition_point(|r| r.0 < from);
        let joins_below = r > 0 && chunk.ranges[r - 1].1 == from;
        let above = chunk.ranges.get(r).or_else(|| self.chunks.get(c + 1).map(|next| &next.ranges[0]));
        let above = above.filter(|a| a.0 == to).copied();
        let end = above.map_or(to, |a| a.1);
        if above.is_some() {
            if r < self.chunks[c].ranges.len() {
                self.chunks[c].ranges.remove(r);
            } else {
                self.chunks[c + 1].ranges.remove(0);
                self.tidy(c + 1);
            }
        }
        let chunk = &mut self.chunks[c];
        if joins_below {
            chunk.ranges[r - 1].1 = end;
        } else {
            chunk.ranges.insert(r, (from, end));
        }
        self.tidy(c);
    }

    /// Keeps a chunk neither empty nor too long (one may be empty when it is the only one: the last range, without
    /// end, is never taken whole).
    fn tidy(&mut self, c: usize) {
        if self.chunks[c].ranges.is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(c);
            return;
        }
        let chunk = &mut self.chunks[c];
        if chunk.ranges.len() > CHUNK {
            let ranges = chunk.ranges.split_off(CHUNK / 2);
            let mut other = GapChunk { ranges, longest: 0 };
            other.measure();
            chunk.measure();
            self.chunks.insert(c + 1, other);
        } else {
            chunk.measure();
        }
    }
}

fn place(from: u64, to: u64, size: u64, align: u64) -> Option<u64> {
    let offset = if align == 1 { from } else { from.checked_next_multiple_of(align)? };
    (offset <= to && to - offset >= size).then_some(offset)
}
