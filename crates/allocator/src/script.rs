//! A plan, checked and laid out for following a program: what is expected next, in the order in which it is asked for.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_plan::{DynamicGroup, Entry, Plan, SectionKind, Slot};

use crate::Error;

/// Unit of sizes and offsets here, bytes: what PyTorch rounds every block to.
pub const GRANULE: u64 = 512;

/// Streams that a plan can tell apart.
pub const MAX_STREAMS: usize = 64;

/// Length of the run of requests by which a lost cursor finds its place.
pub const CONTEXT: usize = 4;

/// What a request looks like to the plan: its size in granules and its stream, in one comparable word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// A request of this many granules on the stream that came `stream`-th.
    pub const fn new(granules: u32, stream: u8) -> Self {
        Key((granules as u64) << 8 | stream as u64)
    }

    /// Its size.
    pub const fn granules(self) -> u32 {
        (self.0 >> 8) as u32
    }

    /// Its stream, counted in the order of appearance.
    pub const fn stream(self) -> u8 {
        self.0 as u8
    }
}

/// An entry of a section: what is asked for there.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// A planned request's size and stream; unused for a dynamic one.
    pub key: Key,
    /// A planned request's offset in granules; for a dynamic one, the index of the next planned entry (the section's
    /// length if there is none).
    pub place: u32,
    /// Index of the slot, or of the group with [`Expect::DYNAMIC`] set.
    tag: u32,
}

impl Expect {
    const DYNAMIC: u32 = 1 << 31;

    /// The slot, of a planned entry.
    pub fn slot(&self) -> Option<u32> {
        (self.tag & Self::DYNAMIC == 0).then_some(self.tag)
    }

    /// The group, of a dynamic entry.
    pub fn group(&self) -> Option<u32> {
        (self.tag & Self::DYNAMIC != 0).then_some(self.tag & !Self::DYNAMIC)
    }
}

/// A section of the plan.
#[derive(Clone, Debug)]
pub struct Section {
    /// What it asks for, in order.
    pub entries: Box<[Expect]>,
    /// Sections that may come next.
    pub followers: Box<[u32]>,
    /// It comes again and again.
    pub repeats: bool,
}

/// A group of dynamic requests.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its stream.
    pub stream: u8,
    /// Smallest and largest size seen, granules.
    pub sizes: (u32, u32),
    /// Median size seen, granules.
    pub usual: u32,
    /// Its requests came in every run that was recorded.
    pub always: bool,
    /// Where its blocks are in no planned request's way, granules: first the range kept for them, if there is one,
    /// then all.
    pub places: Box<[Range<u32>]>,
}

impl Group {
    /// Whether a request of this size was seen in the group.
    pub fn has_seen(&self, key: Key) -> bool {
        self.stream == key.stream() && (self.sizes.0..=self.sizes.1).contains(&key.granules())
    }

    /// Whether a request is near enough to what was seen of a group that has always come: within a factor of two.
    pub fn awaits(&self, key: Key) -> bool {
        let size = u64::from(key.granules());
        let is_near = size * 2 >= u64::from(self.sizes.0) && size <= u64::from(self.sizes.1) * 2;
        self.always && self.stream == key.stream() && is_near
    }

    /// Whether a request may well be the group's: its size is within a factor of eight of what was seen.
    pub fn may_be(&self, key: Key) -> bool {
        let size = u64::from(key.granules());
        self.stream == key.stream() && size * 8 >= u64::from(self.sizes.0) && size <= u64::from(self.sizes.1) * 8
    }
}

/// A place in the script: the entry that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Index of the section.
    pub section: u32,
    /// Index of the entry; the number of entries at the section's end.
    pub index: u32,
}

/// The whole plan, ready to be followed.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Length of the arena in granules.
    pub granules: u32,
    /// Sections in the order in which the trace met them.
    pub sections: Box<[Section]>,
    /// Dynamic groups.
    pub groups: Box<[Group]>,
    /// Most slots that a section asks for: about how many blocks are alive at once at most.
    pub slots: usize,
    /// The first planned request of each section, ascending.
    beginnings: Box<[Key]>,
    /// Requests of the first section: what a program asks for before its steps.
    pub beginning: u64,
    /// Positions after each run of [`CONTEXT`] planned requests, ascending.
    contexts: FxHashMap<[Key; CONTEXT], Vec<Position>>,
}

fn refuse(reason: impl Into<String>) -> Error {
    Error::Plan(reason.into())
}

/// A number of bytes in granules; refused if it is no whole number of them or out of all proportion.
fn granules(bytes: u64, what: &str) -> Result<u32, Error> {
    if !bytes.is_multiple_of(GRANULE) {
        return Err(refuse(format!("{what} ({bytes}) is not a multiple of {GRANULE} bytes")));
    }
    u32::try_from(bytes / GRANULE).map_err(|_| refuse(format!("{what} ({bytes} bytes) is beyond 2 TiB")))
}

/// A stream's ordinal; one that cannot be told apart matches no request.
fn stream(ordinal: u32) -> u8 {
    if (ordinal as usize) < MAX_STREAMS { ordinal as u8 } else { u8::MAX }
}

impl Script {
    /// Lays a plan out. It is refused if a number in it leads nowhere; that slots overlap is *not* looked for, since
    /// nothing here relies on their not doing so. O(entries).
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        if plan.slots.len().max(plan.dynamic.len()) >= Expect::DYNAMIC as usize {
            return Err(refuse("it has too many slots"));
        }
        let arena = granules(plan.arena.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX), "its arena")?;
        let groups = plan.dynamic.iter().map(|group| Group {
            stream: stream(group.stream),
            sizes: (ceil(group.sizes[0]), ceil(group.sizes[3])),
            usual: ceil(group.sizes[1]),
            always: group.always,
            places: places(group, arena),
        });
        let mut script = Script { granules: arena, groups: groups.collect(), ..Script::default() };
        let sections = plan.sections.iter().map(|section| {
            let slots = section.entries.iter().filter(|entry| matches!(entry, Entry::Slot(_))).count();
            script.slots = script.slots.max(slots);
            let known = |section: &u32| (*section as usize) < plan.sections.len();
            Ok(Section {
                entries: entries(&section.entries, plan, arena)?,
                followers: section.followers.iter().copied().filter(known).collect(),
                repeats: section.kind == SectionKind::Repeating,
            })
        });
        script.sections = sections.collect::<Result<_, Error>>()?;
        script.beginning = script.sections.first().map_or(0, |section| section.entries.len() as u64).max(1);
        script.index_beginnings();
        script.index_contexts();
        Ok(script)
    }

    fn index_beginnings(&mut self) {
        let first =
            |section: &Section| section.entries.iter().find(|entry| entry.slot().is_some()).map(|entry| entry.key);
        let mut beginnings: Vec<Key> = self.sections.iter().filter_map(first).collect();
        beginnings.sort_unstable();
        beginnings.dedup();
        self.beginnings = beginnings.into();
    }

    /// Whether a request is the first planned one of some section. O(log sections).
    #[inline]
    pub fn begins_section(&self, key: Key) -> bool {
        self.beginnings.binary_search(&key).is_ok()
    }

    fn index_contexts(&mut self) {
        for (number, section) in self.sections.iter().enumerate() {
            let mut last = [Key::default(); CONTEXT];
            let mut seen = 0;
            for (index, entry) in section.entries.iter().enumerate().filter(|(_, entry)| entry.slot().is_some()) {
                last.rotate_left(1);
                last[CONTEXT - 1] = entry.key;
                seen += 1;
                if seen >= CONTEXT {
                    let after = Position { section: number as u32, index: index as u32 + 1 };
                    self.contexts.entry(last).or_default().push(after);
                }
            }
        }
    }

    /// The positions after a run of requests: from `near` on in its section, before it there, or else in another section
    /// that comes again. O(log positions) or, for another section, O(positions).
    pub fn after_context(&self, context: &[Key; CONTEXT], near: Position) -> Option<Position> {
        let positions = self.contexts.get(context)?;
        let from = positions.partition_point(|&position| position < near);
        let here = |position: &&Position| position.section == near.section;
        positions
            .get(from)
            .filter(here)
            .or_else(|| from.checked_sub(1).and_then(|before| positions.get(before)).filter(here))
            .or_else(|| positions.iter().find(|position| self.sections[position.section as usize].repeats))
            .copied()
    }

    /// The entries of a section.
    pub fn entries(&self, section: u32) -> &[Expect] {
        &self.sections[section as usize].entries
    }
}

/// Bytes in granules, rounded up; sizes seen only serve comparisons, so what is too large is cut off.
fn ceil(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRANULE)).unwrap_or(u32::MAX)
}

/// A group's ranges in granules, rounded inwards, cut to the arena; its home comes first.
fn places(group: &DynamicGroup, arena: u32) -> Box<[Range<u32>]> {
    let inside = |range: &Range<u64>| ceil(range.start)..((range.end / GRANULE).min(arena.into()) as u32);
    let all = std::iter::once(&group.home).chain(&group.reusable);
    all.map(inside).filter(|range| range.start < range.end).collect()
}

fn entries(entries: &[Entry], plan: &Plan, arena: u32) -> Result<Box<[Expect]>, Error> {
    let mut laid_out = Vec::with_capacity(entries.len());
    if u32::try_from(entries.len()).is_err() {
        return Err(refuse("a section has too many entries"));
    }
    // Backwards, so that each dynamic entry knows which planned one comes next.
    let mut next_slot = entries.len() as u32;
    for (index, entry) in entries.iter().enumerate().rev() {
        laid_out.push(match *entry {
            Entry::Slot(number) => {
                let slot = plan.slots.get(number as usize).ok_or_else(|| refuse("an entry names no slot"))?;
                next_slot = index as u32;
                let (key, place) = place(slot, arena)?;
                Expect { key, place, tag: number }
            }
            Entry::Dynamic(number) if (number as usize) < plan.dynamic.len() => {
                Expect { key: Key::default(), place: next_slot, tag: number | Expect::DYNAMIC }
            }
            Entry::Dynamic(_) => return Err(refuse("an entry names no dynamic group")),
        });
    }
    laid_out.reverse();
    Ok(laid_out.into())
}

fn place(slot: &Slot, arena: u32) -> Result<(Key, u32), Error> {
    let size = granules(slot.size, "a slot's size")?;
    let offset = granules(slot.offset, "a slot's offset")?;
    if size == 0 || offset.checked_add(size).is_none_or(|end| end > arena) {
        return Err(refuse(format!("a slot of {} bytes at {} is not in its arena", slot.size, slot.offset)));
    }
    Ok((Key::new(size, stream(slot.stream)), offset))
}
