//! Entries that were static by chance.
//!
//! A few runs do not tell what never varies from what did not happen to: of a thousand experts' token counts some were
//! the same in every run recorded. But an entry is rarely the only one of its kind. Entries of one line of the program, or
//! in like surroundings, are *siblings*; what varies in enough siblings varies.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};
use stalloc_plan::SectionKind;

use crate::align::align;
use crate::lifetimes::Nature;
use crate::parts::{Part, Program, contained};
use crate::sequence::{NO_LINE, Sequence};

/// Static entries follow their siblings if at least this share of them all is dynamic.
const SHARE: f64 = 0.1;

/// Siblings differ in size by at most this factor from what dynamic ones have.
const FACTOR: u64 = 2;

/// Shapes of one program differ in size by at most this factor; the runtime takes nothing else for a dynamic request either.
const SHAPES: u64 = 8;

/// So many entries on each side are an entry's surroundings. Fewer prove too little: what never varies would become
/// dynamic, and the runtime loses what it finds its place by.
const SURROUNDINGS: usize = 3;

/// What runs once resembles steps that have this share of its sites.
const RESEMBLES: f64 = 0.8;

/// Makes static entries dynamic if their siblings are, and entries of what runs once if those of the steps that it
/// resembles are. O(n log n).
pub fn follow_siblings(sequence: &Sequence, program: &Program, natures: &mut [Vec<Nature>]) {
    for (part, natures) in
        program.parts.iter().zip(&mut *natures).filter(|(part, _)| part.kind == SectionKind::Repeating)
    {
        of_part(sequence, part, natures);
    }
    for (once, part) in program.parts.iter().enumerate().filter(|(_, part)| part.kind == SectionKind::Once) {
        for like in likely_steps(sequence, program, once) {
            let steps = &program.parts[like].reference;
            for (entry, partner) in align(sequence, &part.reference, steps).into_iter().enumerate() {
                let Some(partner) = partner else { continue };
                let own = sequence.size[part.reference.start as usize + entry];
                let theirs = sequence.size[(steps.start + partner) as usize];
                // Of so different sizes they are not the same thing: a state that only the first step makes.
                if own / SHAPES > theirs || theirs / SHAPES > own {
                    continue;
                }
                // Another size of another shape: the first step may be of any shape the next time.
                if natures[like][partner as usize] == Nature::Dynamic || own != theirs {
                    natures[once][entry] = Nature::Dynamic;
                }
            }
        }
        of_part(sequence, part, &mut natures[once]);
    }
}

/// The steps that a part that runs once resembles: all shapes of the same program, and whatever does nearly all that it
/// does.
pub fn likely_steps(sequence: &Sequence, program: &Program, once: usize) -> Vec<usize> {
    let this = &program.parts[once];
    let resembles = |part: &Part| {
        part.kind == SectionKind::Repeating
            && (part.program == this.program || contained(sequence, &this.reference, &part.reference) >= RESEMBLES)
    };
    (0..program.parts.len()).filter(|&index| resembles(&program.parts[index])).collect()
}

/// What is known of some siblings.
#[derive(Default)]
struct Siblings {
    entries: usize,
    dynamic: usize,
    /// Smallest and largest size of dynamic ones.
    sizes: Option<(u64, u64)>,
}

fn of_part(sequence: &Sequence, part: &Part, natures: &mut [Nature]) {
    let start = part.reference.start as usize;
    let line = |entry: usize| Some(sequence.line[start + entry]).filter(|&line| line != NO_LINE);
    follow(sequence, part, natures, &(0..natures.len()).map(line).collect::<Vec<_>>());
    // Surroundings become more alike as entries become dynamic.
    for _ in 0..2 {
        let key = |entry| Some(surroundings(sequence, part, natures, entry));
        let keys: Vec<_> = (0..natures.len()).map(key).collect();
        follow(sequence, part, natures, &keys);
    }
}

/// Entries with the same key are siblings.
fn follow(sequence: &Sequence, part: &Part, natures: &mut [Nature], keys: &[Option<u64>]) {
    let size = |entry: usize| sequence.size[part.reference.start as usize + entry];
    let mut families: FxHashMap<Option<u64>, Siblings> = FxHashMap::default();
    for entry in (0..natures.len()).filter(|&entry| natures[entry] == Nature::Dynamic && keys[entry].is_some()) {
        let family = families.entry(keys[entry]).or_default();
        family.dynamic += 1;
        let (least, most) = family.sizes.unwrap_or((u64::MAX, 0));
        family.sizes = Some((least.min(size(entry)), most.max(size(entry))));
    }
    let is_sibling = |family: &Siblings, entry: usize| {
        family.sizes.is_some_and(|(least, most)| size(entry) >= least / FACTOR && size(entry) / FACTOR <= most)
    };
    for (entry, key) in keys.iter().enumerate() {
        if let Some(family) = families.get_mut(key)
            && is_sibling(family, entry)
        {
            family.entries += 1;
        }
    }
    for (entry, nature) in natures.iter_mut().enumerate() {
        let family = families.get(&keys[entry]).filter(|family| is_sibling(family, entry));
        if family.is_some_and(|family| family.dynamic as f64 >= SHARE * family.entries as f64) {
            *nature = Nature::Dynamic;
        }
    }
}

/// A number that stands for an entry's line, if it is known, and for what surrounds it: sizes of static neighbours, and
/// which are as large as itself.
fn surroundings(sequence: &Sequence, part: &Part, natures: &[Nature], entry: usize) -> u64 {
    let size = |entry: usize| sequence.size[part.reference.start as usize + entry];
    let mut key = FxHasher::default();
    for neighbour in (1..=SURROUNDINGS).flat_map(|d| [entry.checked_sub(d), Some(entry + d)]) {
        key.write_u64(match neighbour.filter(|&n| n < natures.len()) {
            None => 0,
            Some(n) if size(n) == size(entry) => 1,
            Some(n) if natures[n] == Nature::Dynamic => 2,
            Some(n) => size(n),
        });
    }
    key.write_u64(sequence.line[part.reference.start as usize + entry]);
    key.write_u32(sequence.stream[part.reference.start as usize + entry]);
    key.finish()
}
