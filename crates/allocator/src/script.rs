//! A plan, checked and laid out for following a program: what is expected next, in the order in which it is asked for.

use rustc_hash::FxHashMap;
use stalloc_plan::{Entry, Plan, SectionKind, Slot};

use crate::Error;

/// Unit of sizes and offsets here, bytes: what PyTorch rounds every block to.
pub const GRANULE: u64 = 512;

/// Length of the run of requests by which a cursor finds its position anywhere in the plan.
pub(crate) const CONTEXT: usize = 4;

/// What a request looks like to the plan: its size in granules and its stream, in one comparable word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// A request of this many granules on the stream that came `stream`-th.
    pub const fn new(granules: u32, stream: u16) -> Self {
        Key((granules as u64) << 16 | stream as u64)
    }

    /// Its size.
    pub const fn granules(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Its stream, counted in the order of appearance.
    pub const fn stream(self) -> u16 {
        self.0 as u16
    }
}

/// What a request is to the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// A planned one, at this offset in granules.
    Planned(u32),
    /// One that the plan expects here, without an offset.
    WithoutOffset,
    /// Not in the plan, while the program is following it; or there is no plan.
    NotInPlan,
    /// It is not known where in the plan the program is.
    Unknown,
}

/// An entry of a section: what is asked for there.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// Size and stream.
    pub key: Key,
    /// Offset in granules, or [`Expect::NO_OFFSET`].
    offset: u32,
}

impl Expect {
    /// No offset.
    const NO_OFFSET: u32 = u32::MAX;

    /// What a request is that is expected here.
    #[inline]
    pub fn guess(&self) -> Guess {
        if self.offset == Self::NO_OFFSET { Guess::WithoutOffset } else { Guess::Planned(self.offset) }
    }
}

/// A section of the plan.
#[derive(Clone, Debug)]
pub struct ScriptSection {
    /// What it asks for, in order.
    pub entries: Box<[Expect]>,
    /// Sections that may come next.
    pub followers: Box<[u32]>,
    /// It comes more than once.
    pub repeats: bool,
}

/// A position in the script: the entry that is expected next.
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
    /// Length of the plan's address range in granules.
    pub(crate) granules: u32,
    /// Sections in the order in which the trace met them.
    pub(crate) sections: Box<[ScriptSection]>,
    /// Most slots that a section asks for: about how many blocks are alive at once at most.
    pub(crate) slots: usize,
    /// Most live bytes to expect.
    pub(crate) expected_peak: u64,
    /// Positions after each run of [`CONTEXT`] requests, ascending.
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
fn stream(ordinal: u32) -> u16 {
    u16::try_from(ordinal).unwrap_or(u16::MAX)
}

impl Script {
    /// Length of the plan's address range.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.granules) * GRANULE
    }

    /// Lays a plan out. It is refused if a number in it leads nowhere; that slots overlap is *not* looked for, since
    /// nothing here relies on their not doing so. O(entries).
    ///
    /// # Errors
    /// [`Error::Plan`].
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        let arena = granules(plan.arena.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX), "its arena")?;
        let mut script = Script { granules: arena, expected_peak: plan.expected_peak, ..Script::default() };
        let sections = plan.sections.iter().map(|section| {
            let slots = section.entries.iter().filter(|entry| matches!(entry, Entry::Slot(_))).count();
            script.slots = script.slots.max(slots);
            let known = |section: &u32| (*section as usize) < plan.sections.len();
            if u32::try_from(section.entries.len()).is_err() {
                return Err(refuse("a section has too many entries"));
            }
            Ok(ScriptSection {
                entries: section.entries.iter().map(|entry| expect(entry, plan, arena)).collect::<Result<_, _>>()?,
                followers: section.followers.iter().copied().filter(known).collect(),
                repeats: section.kind == SectionKind::Repeating,
            })
        });
        script.sections = sections.collect::<Result<_, Error>>()?;
        // What a plan was made around may lie far above its offsets.
        let ends =
            script.sections.iter().flat_map(|section| &section.entries).filter_map(|entry| match entry.guess() {
                Guess::Planned(offset) => Some(offset + entry.key.granules()),
                _ => None,
            });
        script.granules = ends.max().unwrap_or(0);
        if script.granules == 0 {
            // It is served as with no plan.
            script.expected_peak = 0;
        }
        script.index_contexts();
        Ok(script)
    }

    /// Whether it expects nothing: the open arena's.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    fn index_contexts(&mut self) {
        for (number, section) in self.sections.iter().enumerate() {
            for (index, run) in section.entries.windows(CONTEXT).enumerate() {
                let keys = std::array::from_fn(|at| run[at].key);
                let after = Position { section: number as u32, index: (index + CONTEXT) as u32 };
                self.contexts.entry(keys).or_default().push(after);
            }
        }
    }

    /// The position after a run of requests: from `near` on in its section, before it there, or else in another section
    /// that comes more than once. O(log positions) or, for another section, O(positions).
    pub(crate) fn after_context(&self, context: &[Key; CONTEXT], near: Position) -> Option<Position> {
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
    #[inline]
    pub(crate) fn entries(&self, section: u32) -> &[Expect] {
        &self.sections[section as usize].entries
    }
}

fn expect(entry: &Entry, plan: &Plan, arena: u32) -> Result<Expect, Error> {
    match *entry {
        Entry::Slot(number) => {
            let slot = plan.slots.get(number as usize).ok_or_else(|| refuse("an entry names no slot"))?;
            planned(slot, arena)
        }
        Entry::WithoutOffset { size, stream: on } => {
            let key = Key::new(granules(size, "a request's size")?, stream(on));
            Ok(Expect { key, offset: Expect::NO_OFFSET })
        }
    }
}

fn planned(slot: &Slot, arena: u32) -> Result<Expect, Error> {
    let size = granules(slot.size, "a slot's size")?;
    let offset = granules(slot.offset, "a slot's offset")?;
    if size == 0 || offset.checked_add(size).is_none_or(|end| end > arena) {
        return Err(refuse(format!("a slot of {} bytes at {} is not in its arena", slot.size, slot.offset)));
    }
    Ok(Expect { key: Key::new(size, stream(slot.stream)), offset })
}
