//! From kinds to the plan's sections: copies, followers, releases, and what reaches where.

use std::collections::{BTreeMap, BTreeSet};

use stalloc_plan::{CARRIED, FOREVER, SectionKind};

use crate::draft::Draft;
use crate::ends::{End, Ends};
use crate::layout::{Item, Shape, THROUGH};

/// The sections of a plan and the slots in them, without offsets.
pub(crate) struct Outline {
    /// The sections.
    pub sections: Vec<SectionOutline>,
    /// The slots, those of a section together and in order.
    pub slots: Vec<SlotOutline>,
    /// For each step, the section that it ran through.
    pub ran: Vec<Option<usize>>,
    /// For each kind, its first section; its copies follow.
    first_of: Vec<usize>,
}

/// A section without entries.
pub(crate) struct SectionOutline {
    /// Its kind in the draft.
    pub part: usize,
    /// How long its clock is.
    pub period: u32,
    /// Its kind.
    pub kind: SectionKind,
    /// Its name.
    pub name: String,
    /// How often the trace ran through it.
    pub runs: u32,
    /// What may come next.
    pub followers: BTreeSet<usize>,
    /// Slots that it releases, and when.
    pub releases: BTreeMap<usize, u32>,
    /// For each entry, its slot; `None`: it gets no offset.
    pub slot_of: Vec<Option<usize>>,
}

/// A slot without offset.
pub(crate) struct SlotOutline {
    /// Its section.
    pub section: usize,
    /// Its entry.
    pub lower: u32,
    /// Its end, as in [`stalloc_plan::Slot::upper`].
    pub upper: u32,
    /// Bytes.
    pub size: u64,
    /// Stream.
    pub stream: u32,
}

/// Lays out sections and slots.
pub(crate) fn outline(draft: &Draft, ends: &Ends) -> Outline {
    let mut outline = Outline { sections: Vec::new(), slots: Vec::new(), ran: Vec::new(), first_of: Vec::new() };
    for (i, kind) in draft.kinds.iter().enumerate() {
        outline.first_of.push(outline.sections.len());
        let copies = outline.copies(draft, ends, i);
        for copy in 0..copies {
            let name = if copies > 1 { format!("{}, copy {}", kind.name, copy + 1) } else { kind.name.clone() };
            let period = kind.known.keys.len();
            outline.sections.push(SectionOutline {
                part: i,
                period: period as u32,
                kind: kind.section,
                name,
                runs: 0,
                followers: BTreeSet::new(),
                releases: BTreeMap::new(),
                slot_of: vec![None; period],
            });
        }
    }
    outline.follow(draft, ends);
    outline.add_slots(draft, ends);
    outline
}

impl Outline {
    fn copies(&self, draft: &Draft, ends: &Ends, kind: usize) -> usize {
        if draft.repeats(kind) { ends.copies as usize } else { 1 }
    }

    /// Which section each step ran through, and what may follow what.
    fn follow(&mut self, draft: &Draft, ends: &Ends) {
        let copies = ends.copies as usize;
        let mut turn = 0;
        for kind in &draft.ran {
            let section = kind.map(|kind| {
                let section = self.first_of[kind] + if draft.repeats(kind) { turn % copies } else { 0 };
                turn += usize::from(ends.turning[kind]);
                self.sections[section].runs += 1;
                section
            });
            self.ran.push(section);
        }
        for pair in self.ran.windows(2) {
            if let (Some(from), Some(to)) = (pair[0], pair[1]) {
                self.sections[from].followers.insert(to);
            }
        }
        // Repeating kinds may come in any order; after a kind that takes turns come the next copies. What the program
        // ended with after some copy of a kind may come after any.
        let repeating: Vec<usize> =
            (0..self.sections.len()).filter(|&s| draft.repeats(self.sections[s].part)).collect();
        let copy = |section: usize| section - self.first_of[self.sections[section].part];
        let mut more: Vec<(usize, usize)> = Vec::new();
        for &from in &repeating {
            for &to in &repeating {
                let turn = usize::from(ends.turning[self.sections[from].part]);
                if copy(to) == (copy(from) + turn) % copies {
                    more.push((from, to));
                }
                if self.sections[from].part == self.sections[to].part {
                    let ends = |next: &&usize| !repeating.contains(next) && self.sections[**next].followers.is_empty();
                    let once = self.sections[to].followers.iter().filter(ends);
                    more.extend(once.map(|&next| (from, next)));
                }
            }
        }
        for (from, to) in more {
            self.sections[from].followers.insert(to);
        }
    }

    fn add_slots(&mut self, draft: &Draft, ends: &Ends) {
        for section in 0..self.sections.len() {
            let kind = self.sections[section].part;
            let copy = section - self.first_of[kind];
            for (entry, (end, key)) in ends.of[kind].iter().zip(&draft.kinds[kind].known.keys).enumerate() {
                let slot = self.slots.len();
                let upper = match end {
                    End::Open => continue,
                    End::Own(at) => *at,
                    End::Never => FOREVER,
                    End::Later(releases) => {
                        for release in releases {
                            let of = self.copies(draft, ends, release.kind);
                            let targets = match release.turns {
                                Some(turns) if of > 1 => vec![(copy + turns as usize) % of],
                                _ => (0..of).collect(),
                            };
                            for target in targets {
                                let at = self.sections[self.first_of[release.kind] + target].releases.entry(slot);
                                let at = at.or_insert(release.at);
                                *at = release.at.max(*at);
                            }
                        }
                        CARRIED
                    }
                };
                let lower = entry as u32;
                self.sections[section].slot_of[entry] = Some(slot);
                self.slots.push(SlotOutline { section, lower, upper, size: key.size, stream: key.stream });
            }
        }
    }

    /// The sections for the layout.
    pub fn shapes(&self) -> Vec<Shape> {
        self.sections.iter().map(|s| Shape { kind: s.kind, part: s.part, period: s.period }).collect()
    }

    /// The slots for the layout.
    pub fn items(&self) -> Vec<Item> {
        let through: Vec<Vec<(usize, u32)>> =
            (0..self.sections.len()).map(|section| self.reach(section, |_| None)).collect();
        let mut items = Vec::with_capacity(self.slots.len());
        for (i, slot) in self.slots.iter().enumerate() {
            let reach = match slot.upper {
                FOREVER => through[slot.section].clone(),
                CARRIED => self.reach(slot.section, |target| self.sections[target].releases.get(&i).copied()),
                _ => Vec::new(),
            };
            items.push(Item {
                section: slot.section,
                lower: slot.lower,
                upper: slot.upper.min(self.sections[slot.section].period),
                reach,
                forever: slot.upper == FOREVER,
                size: slot.size,
                stream: slot.stream,
            });
        }
        items
    }

    /// The sections that something alive at the end of one reaches; `ends` says where one releases it.
    pub fn reach(&self, from: usize, ends: impl Fn(usize) -> Option<u32>) -> Vec<(usize, u32)> {
        let mut reached: BTreeMap<usize, u32> = BTreeMap::new();
        let mut open: Vec<usize> = vec![from];
        while let Some(section) = open.pop() {
            for &next in &self.sections[section].followers {
                if reached.contains_key(&next) {
                    continue;
                }
                let end = ends(next);
                reached.insert(next, end.unwrap_or(THROUGH));
                if end.is_none() {
                    open.push(next);
                }
            }
        }
        reached.into_iter().collect()
    }
}
