//! The plan's types.

use std::collections::BTreeMap;
use std::ops::Range;

/// An upper end that says: lives for ever.
pub const FOREVER: u32 = u32::MAX;

/// A planned request: always these bytes, on this stream, at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes, rounded up as PyTorch counts.
    pub size: u64,
    /// Offset in the arena, a multiple of [`Plan::alignment`].
    pub offset: u64,
    /// Stream, counted in the order in which the program first allocates on it.
    pub stream: u32,
    /// When it is allocated, on its section's clock.
    pub lower: u32,
    /// When its memory is free again, on its section's clock; beyond the section's period it lives on into the
    /// section that follows by the difference; [`FOREVER`] if it is never freed.
    pub upper: u32,
}

/// What a program is expected to ask for at one place of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A planned request: index into [`Plan::slots`].
    Slot(u32),
    /// A dynamic request: index into [`Plan::dynamic`]. It may be absent, repeated, or of another size.
    Dynamic(u32),
}

/// What a section is in the life of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKind {
    /// Everything before the first step; runs once.
    Prologue,
    /// A step that runs once, such as the first (optimizer states are made).
    Once,
    /// A kind of step that comes again and again; several kinds may alternate in any order.
    Repeating,
}

/// A part of the program that is planned as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it is.
    pub kind: SectionKind,
    /// Length of its clock, which [`Slot::lower`] and [`Slot::upper`] are read on.
    pub period: u32,
    /// What it asks for, in order.
    pub entries: Vec<Entry>,
}

/// What is known of a group of dynamic requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicGroup {
    /// Section that it belongs to.
    pub section: u32,
    /// Stream, counted as in [`Slot::stream`].
    pub stream: u32,
    /// Earliest time of allocation and latest time of release seen, on the section's clock.
    pub lifetime: Range<u32>,
    /// Smallest, median, 90 % and largest size seen, rounded bytes.
    pub sizes: [u64; 4],
    /// Most bytes of the group seen alive at once.
    pub peak: u64,
    /// Address ranges of the arena that no slot of the section needs during `lifetime`, ascending, disjoint.
    pub reusable: Vec<Range<u64>>,
}

/// Where a request of the planned trace stands in the plan.
pub type TraceMap = Vec<Option<u32>>;

/// Where every tensor of a program goes, on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Planned requests.
    pub slots: Vec<Slot>,
    /// What the program runs through, in the order in which the trace met them.
    pub sections: Vec<Section>,
    /// Dynamic requests.
    pub dynamic: Vec<DynamicGroup>,
    /// For each request of the trace, in order, the slot that serves it; `None`: dynamic or outside the plan.
    pub trace_map: TraceMap,
    /// What else is worth knowing (`torch`, `device_name`, `made_by`...).
    pub metadata: BTreeMap<String, String>,
}
