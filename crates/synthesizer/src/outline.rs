//! From parts to the plan's sections: copies, followers, releases, and what reaches where.

use std::collections::{BTreeMap, BTreeSet};

use stalloc_plan::{CARRIED, FOREVER, SectionKind};

use crate::layout::{Item, Place, THROUGH};
use crate::lifetimes::{End, Nature, Natures};
use crate::parts::Program;
use crate::sequence::Sequence;

/// The sections of a plan and the slots in them, without offsets.
pub struct Outline {
    /// The sections.
    pub sections: Vec<SectionOutline>,
    /// The slots, those of a section together and in order.
    pub slots: Vec<SlotOutline>,
    /// For each round, the section that it ran through.
    pub ran: Vec<usize>,
}

/// A section without entries.
pub struct SectionOutline {
    /// Its part.
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
    /// For each entry, its slot; `None`: dynamic.
    pub slot_of: Vec<Option<usize>>,
}

/// A slot without offset.
pub struct SlotOutline {
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
pub fn outline(sequence: &Sequence, program: &Program, natures: &Natures) -> Outline {
    let mut outline = Outline { sections: Vec::new(), slots: Vec::new(), ran: Vec::new() };
    let mut first_of = Vec::with_capacity(program.parts.len());
    let copies = |part: usize| match program.parts[part].kind {
        SectionKind::Repeating => natures.copies as usize,
        _ => 1,
    };
    for (i, part) in program.parts.iter().enumerate() {
        first_of.push(outline.sections.len());
        for copy in 0..copies(i) {
            let name = if copies(i) > 1 { format!("{}, copy {}", part.name, copy + 1) } else { part.name.clone() };
            let period = part.reference.len() as u32;
            outline.sections.push(SectionOutline {
                part: i,
                period,
                kind: part.kind,
                name,
                runs: 0,
                followers: BTreeSet::new(),
                releases: BTreeMap::new(),
                slot_of: vec![None; period as usize],
            });
        }
    }
    outline.follow(program, &first_of, natures);
    outline.add_slots(sequence, program, natures, &first_of, &copies);
    outline
}

impl Outline {
    /// Which section each round ran through, and what may follow what.
    fn follow(&mut self, program: &Program, first_of: &[usize], natures: &Natures) {
        let copies = natures.copies as usize;
        let mut turn = 0;
        for round in &program.rounds {
            let repeats = program.parts[round.part].kind == SectionKind::Repeating;
            let section = first_of[round.part] + if repeats { turn % copies } else { 0 };
            turn += usize::from(natures.turning[round.part]);
            self.sections[section].runs += 1;
            self.ran.push(section);
        }
        for pair in self.ran.windows(2) {
            self.sections[pair[0]].followers.insert(pair[1]);
        }
        // Repeating parts may come in any order; after a part that takes turns come the next copies. What the program
        // ended with after some run of a part may come after any.
        let all: Vec<usize> = (0..self.sections.len()).collect();
        let repeats = |s: &usize| self.sections[*s].kind == SectionKind::Repeating;
        let repeating: Vec<usize> = all.into_iter().filter(repeats).collect();
        let copy = |section: usize| section - first_of[self.sections[section].part];
        let mut more: Vec<(usize, usize)> = Vec::new();
        for &from in &repeating {
            for &to in &repeating {
                let turn = usize::from(natures.turning[self.sections[from].part]);
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

    fn add_slots(
        &mut self,
        sequence: &Sequence,
        program: &Program,
        natures: &Natures,
        first_of: &[usize],
        copies: &dyn Fn(usize) -> usize,
    ) {
        for section in 0..self.sections.len() {
            let part = self.sections[section].part;
            let copy = section - first_of[part];
            for (entry, nature) in natures.of[part].iter().enumerate() {
                let Nature::Static(end) = nature else { continue };
                let slot = self.slots.len();
                let upper = match end {
                    End::Own(at) => *at,
                    End::Never => FOREVER,
                    End::Later(later) => {
                        for release in later {
                            let of = copies(release.part);
                            let targets = match release.turns {
                                Some(turns) => vec![(copy + turns as usize) % of],
                                None => (0..of).collect(),
                            };
                            for target in targets {
                                let releases = &mut self.sections[first_of[release.part] + target].releases;
                                let at = releases.entry(slot).or_insert(release.at);
                                *at = release.at.max(*at);
                            }
                        }
                        CARRIED
                    }
                };
                let request = program.parts[part].reference.start as usize + entry;
                self.sections[section].slot_of[entry] = Some(slot);
                self.slots.push(SlotOutline {
                    section,
                    lower: entry as u32,
                    // A request of which the trace sees nothing more lives for an instant at least.
                    upper: upper.max(entry as u32 + 1),
                    size: sequence.size[request],
                    stream: sequence.stream[request],
                });
            }
        }
    }

    /// The sections for the layout.
    pub fn places(&self) -> Vec<Place> {
        self.sections.iter().map(|s| Place { kind: s.kind, part: s.part, period: s.period }).collect()
    }

    /// The slots for the layout, each with its like.
    pub fn items(&self, likes: &[Option<usize>]) -> Vec<Item> {
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
                like: likes[i],
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
