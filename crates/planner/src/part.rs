//! What the searches work on: items with lifetimes in sections, in parts that are solved apart (`prepare` makes them).

/// A buffer to place within a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// First section.
    pub lower: u32,
    /// One past the last section; in a ring it may exceed the number of sections, by less than that number.
    pub upper: u32,
    /// In units.
    pub size: u64,
    /// In units; 1 for none.
    pub align: u64,
    /// Index of the buffer in the instance.
    pub id: u32,
}

impl Item {
    pub fn length(&self) -> u32 {
        self.upper - self.lower
    }
}

/// Up to so many items the exact search and ejections are the best there is, and no run is worth a thread; above, they take turns with
/// stretches and cores.
const FEW_ITEMS: usize = 1024;

/// Dives over more items than that, and merging them, take more memory than they are worth (micro_batches:1000000 without stretches, 600
/// million units, with beams, which are gone: 437 MiB instead of 196, and 1.0211 instead of 1.0129); ejections take their turns.
const MOST_ITEMS: usize = 1 << 18;

/// Items that share no section with those of other parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// To be placed, by (lower, upper descending, size descending, id).
    pub items: Vec<Item>,
    /// Already placed, with their offsets in units.
    pub fixed: Vec<(Item, u64)>,
    /// Number of sections.
    pub sections: u32,
    /// Whether the last section is followed by the first.
    pub ring: bool,
    /// Items above this height only: those below live through the whole part.
    pub base: u64,
    /// No solution of the part has a lower top (in units, `base` included).
    pub bound: u64,
    /// Whether any item has an alignment.
    pub aligned: bool,
}

impl Part {
    pub fn is_small(&self) -> bool {
        self.items.len() <= FEW_ITEMS
    }

    pub fn is_huge(&self) -> bool {
        self.items.len() > MOST_ITEMS
    }
}

/// An instance made ready to solve: in units, split into parts that do not meet in time, with its lower bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    pub parts: Vec<Part>,
    /// Offsets already decided, in units, by buffer: fixed ones, those that live through all, those that do not live.
    pub decided: Vec<(u32, u64)>,
    /// What one unit is in the instance's unit.
    pub unit: u64,
    /// The lower bound in the instance's unit.
    pub lower_bound: u64,
}

/// Offsets of a part's items and the highest top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub top: u64,
    pub offsets: Vec<u64>,
}

impl Places {
    pub fn new(part: &Part, offsets: Vec<u64>) -> Places {
        let top = part.items.iter().zip(&offsets).map(|(i, o)| o.saturating_add(i.size)).max().unwrap_or(part.base);
        Places { top, offsets }
    }
}
