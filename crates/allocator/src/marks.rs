//! A set of units of an address range that is emptied as a whole: inserting is O(1) and looks at one word.

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// A set of units of `0..len`: one is added in O(1), all are taken out at once.
#[derive(Debug)]
pub struct Marks {
    /// A bit per unit. Untouched pages of it cost no memory.
    words: Vec<u64>,
    /// The units whose bits are set, in the order of insertion.
    units: Vec<u32>,
}

impl Marks {
    /// An empty set over `0..len`.
    pub fn new(len: u32) -> Self {
        Marks { words: vec![0; (len as usize).div_ceil(BITS)], units: Vec::new() }
    }

    /// Puts a unit in, if it is not there.
    #[inline]
    pub fn insert(&mut self, unit: u32) {
        let bit = 1 << (unit as usize % BITS);
        let Some(word) = self.words.get_mut(unit as usize / BITS) else { return };
        if *word & bit == 0 {
            *word |= bit;
            self.units.push(unit);
        }
    }

    /// Takes some unit out.
    pub fn pop(&mut self) -> Option<u32> {
        let unit = self.units.pop()?;
        if let Some(word) = self.words.get_mut(unit as usize / BITS) {
            *word &= !(1 << (unit as usize % BITS));
        }
        Some(unit)
    }
}

#[cfg(test)]
mod tests;
