//! Which units of an address range are taken: exact, and cheap for short and for long ranges alike.
//!
//! A hierarchical bitmap. Level 0 has a bit per unit; a bit of level `k + 1` says that a word of level `k` is not
//! empty. A range covers few words in part and many as a whole, and the whole ones are not written: **an empty word
//! whose bit above is set stands for a full one**. So a range of any length touches at most two words per level.

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// Levels that the largest set needs, whose units are numbered by 32 bits.
const MAX_LEVELS: usize = u32::BITS.div_ceil(BITS.ilog2()) as usize;

/// A set of disjoint ranges of `0..len`, each inserted and removed as a whole.
#[derive(Clone, Debug)]
pub struct RangeSet {
    /// All levels, one after the other. Untouched pages of it cost no memory.
    words: Vec<u64>,
    /// Where each level begins in `words`.
    base: [usize; MAX_LEVELS],
    /// The level that is a single word.
    top: usize,
    len: usize,
}

/// Bits `from..to` of a word; `from < to <= 64`.
const fn mask(from: usize, to: usize) -> u64 {
    (u64::MAX >> (BITS - (to - from))) << from
}

/// Cuts a range into the words that it covers in part, by level, and calls `visit(level, word, mask)` for each.
/// Stops when `visit` says `false`; returns whether it never did.
#[inline(always)]
fn for_each_part(start: usize, end: usize, mut visit: impl FnMut(usize, usize, u64) -> bool) -> bool {
    let (mut start, mut end, mut level) = (start, end, 0);
    while start < end {
        let (first, last) = (start / BITS, end / BITS);
        if first == last {
            return visit(level, first, mask(start % BITS, end % BITS));
        }
        if start % BITS != 0 && !visit(level, first, mask(start % BITS, BITS)) {
            return false;
        }
        if end % BITS != 0 && !visit(level, last, mask(0, end % BITS)) {
            return false;
        }
        (start, end, level) = (start.div_ceil(BITS), last, level + 1);
    }
    true
}

impl RangeSet {
    /// An empty set over `0..len`.
    pub fn new(len: usize) -> Self {
        let mut base = [0; MAX_LEVELS];
        let (mut total, mut top, mut bits) = (0, 0, len + 1);
        // One bit more than `len`, so that a range that ends at the end still ends inside a word.
        loop {
            base[top] = total;
            let words = bits.div_ceil(BITS);
            total += words;
            if words == 1 {
                break;
            }
            (bits, top) = (words + 1, top + 1);
        }
        RangeSet { words: vec![0; total], base, top, len }
    }

    /// How many units there are, taken or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// What a word of a level stands for.
    #[inline]
    fn word(&self, mut level: usize, mut index: usize) -> u64 {
        let word = self.words[self.base[level] + index];
        if word != 0 || level == self.top {
            return word;
        }
        loop {
            let bit = index % BITS;
            (level, index) = (level + 1, index / BITS);
            let above = self.words[self.base[level] + index];
            if above >> bit & 1 == 1 {
                return u64::MAX;
            }
            // Only an empty word may stand for a full one.
            if above != 0 || level == self.top {
                return 0;
            }
        }
    }

    /// Whether no unit of `start..end` is taken.
    #[inline]
    pub fn is_free(&self, start: usize, end: usize) -> bool {
        for_each_part(start, end, |level, index, mask| self.word(level, index) & mask == 0)
    }

    /// Takes `start..end`, which is free.
    #[inline]
    pub fn insert(&mut self, start: usize, end: usize) {
        debug_assert!(start < end && end <= self.len && self.is_free(start, end));
        for_each_part(start, end, |mut level, mut index, mut mask| {
            loop {
                let word = &mut self.words[self.base[level] + index];
                let was = *word;
                *word |= mask;
                if was != 0 || level == self.top {
                    return true;
                }
                (mask, index, level) = (1 << (index % BITS), index / BITS, level + 1);
            }
        });
    }

    /// Gives back `start..end`, which was inserted as a whole.
    #[inline]
    pub fn remove(&mut self, start: usize, end: usize) {
        debug_assert!(start < end && end <= self.len);
        for_each_part(start, end, |mut level, mut index, mut mask| {
            loop {
                let word = &mut self.words[self.base[level] + index];
                debug_assert_eq!(*word & mask, mask);
                *word &= !mask;
                if *word != 0 || level == self.top {
                    return true;
                }
                (mask, index, level) = (1 << (index % BITS), index / BITS, level + 1);
            }
        });
    }
}

#[cfg(test)]
mod tests;
