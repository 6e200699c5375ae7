//! The plan's types.
//!
//! Each section has a *clock*: the number of its entries asked for so far. Entry `i` is allocated at clock `i`;
//! what is given back after entry `j - 1` was asked for and before entry `j` is has its end at clock `j`. Only at an
//! allocation can two lifetimes collide, so nothing is lost by not counting frees, and the clock is what the
//! runtime's cursor knows anyway.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A [`Slot::upper`] that says: lives for ever.
pub const FOREVER: u32 = u32::MAX;

/// A [`Slot::upper`] that says: outlives its section, until a later section releases it ([`Section::releases`]).
pub const CARRIED: u32 = u32::MAX - 1;

/// A planned request: always these bytes, on this stream, at this offset. Each slot is one entry of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Bytes, rounded up as PyTorch counts.
    pub size: u64,
    /// Offset in the arena, a multiple of [`Plan::alignment`].
    pub offset: u64,
    /// Stream, counted in the order in which the program first allocates on it.
    pub stream: u32,
    /// When it is allocated, on its section's clock: the index of its entry.
    pub lower: u32,
    /// When its memory is free again, on its section's clock; at most the section's period, or [`CARRIED`] or
    /// [`FOREVER`].
    pub upper: u32,
}

/// What a program is expected to ask for at one place of a section: always these bytes, on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Entry {
    /// A planned request: index into [`Plan::slots`].
    Slot(u32),
    /// A request without an offset: it always comes here, but nothing bounds how long it lives (what a program keeps of
    /// every step, say). The arena finds an address for it.
    WithoutOffset {
        /// Bytes, rounded up as PyTorch counts.
        size: u64,
        /// Stream, counted as in [`Slot::stream`].
        stream: u32,
    },
}

/// What a section is in the life of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SectionKind {
    /// Everything before the first step; runs once. What lived before the recording began comes first in it.
    Prologue,
    /// A step that runs once, such as the first (optimizer states are made), or what follows the last.
    Once,
    /// A kind of step, or of what lies between two steps, that repeats.
    Repeating,
}

/// Where a slot that outlived its section becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    /// On the clock of the section that releases it: free before this entry is asked for.
    pub at: u32,
    /// The [`CARRIED`] slot, index into [`Plan::slots`].
    pub slot: u32,
}

/// A part of the program that is planned as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// What it is.
    pub kind: SectionKind,
    /// A name for people, such as `first step`.
    pub name: String,
    /// How often the trace ran through it.
    pub runs: u32,
    /// What it asks for, in order.
    pub entries: Vec<Entry>,
    /// Slots carried in from earlier sections that are given back in this one, ascending. A carried slot that is not
    /// among them lives on through the whole section.
    pub releases: Vec<Release>,
    /// Sections that may come next, ascending. Whatever else comes next, the plan promises nothing for.
    ///
    /// A step that must not follow itself, because it keeps something of the run before while making its
    /// replacement, is in the plan twice (or more), each copy followed by the next and the last by the first.
    pub followers: Vec<u32>,
}

impl Section {
    /// Length of its clock.
    pub fn period(&self) -> u32 {
        self.entries.len() as u32
    }
}

/// Where each request of the planned trace stands in the plan.
pub type TraceMap = Vec<Option<u32>>;

/// Where every tensor of a program goes, on one device.
///
/// A plan without slots gives no offsets: nothing of the program is known to repeat exactly, or not often enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Device number within the process.
    pub device: u32,
    /// Fingerprint of the trace that it was made from.
    pub fingerprint: u64,
    /// Every offset is a multiple of this, bytes.
    pub alignment: u64,
    /// Bytes of the arena.
    pub arena: u64,
    /// No plan of the same slots can need a smaller arena.
    pub lower_bound: u64,
    /// Planned requests, those of a section together and in the order of its entries.
    pub slots: Vec<Slot>,
    /// What the program runs through, in the order in which the trace met them first; the program begins in the first.
    pub sections: Vec<Section>,
    /// Most live bytes to expect, as PyTorch counts: of a program whose steps vary this is all that a plan knows.
    pub expected_peak: u64,
    /// For each request of the trace, in order, the slot that serves it; `None`: it has no offset.
    pub trace_map: TraceMap,
    /// What else is worth knowing (`torch`, `device_name`, `made_by`...).
    pub metadata: BTreeMap<String, String>,
}
