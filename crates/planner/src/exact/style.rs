//! How an exact search goes about it. Whatever the style, it is complete; no style is best everywhere, so restarts
//! take turns.

/// Which valley a node branches at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one with the fewest children, then the lowest.
    Fewest,
    /// The lowest of those that have few children: counts are compared by their logarithm.
    Few,
    /// The lowest, unless one leaves no choice.
    Lowest,
}

impl Choice {
    /// What a number of children is compared by; 0 for none.
    pub fn class(self, count: u32) -> u32 {
        match self {
            Choice::Fewest => count,
            Choice::Few => count.checked_ilog2().map_or(0, |c| c + 1),
            Choice::Lowest => count.min(2),
        }
    }
}

/// Which children are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taste {
    /// The longest.
    Length,
    /// The largest in time and size.
    Area,
    /// The largest.
    Size,
    /// None: as the noise has it.
    Any,
}

/// A style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub choice: Choice,
    pub taste: Taste,
    /// Scores are multiplied by a random factor from 1 to 1 + noise/16.
    pub noise: u64,
    pub seed: u64,
    /// Whether children that leave something empty next to them are tried later, and those level with a wall earlier.
    pub fit: bool,
}
