//! What in a first step corresponds to what in the steady state.
//!
//! A first step is mostly a steady step. If its requests lie where those of the step before would lie, the steady
//! state's good layout serves it as well, and only what it makes in addition has to be fitted in.

use rustc_hash::FxHashMap;
use stalloc_plan::SectionKind;

use crate::align::align;
use crate::outline::Outline;
use crate::parts::Program;
use crate::sequence::Sequence;

/// For each slot of a section that runs once, the slot of a repeating section that it corresponds to, if any.
pub fn likes(sequence: &Sequence, program: &Program, outline: &Outline) -> Vec<Option<usize>> {
    let mut likes = vec![None; outline.slots.len()];
    let sections = &outline.sections;
    for (first, next) in outline.ran.windows(2).map(|pair| (pair[0], pair[1])) {
        if sections[first].kind == SectionKind::Repeating || sections[next].kind != SectionKind::Repeating {
            continue;
        }
        // The copy that comes before `next` in the steady state.
        let same_part = |&section: &usize| sections[section].part == sections[next].part;
        let before = (0..sections.len()).filter(same_part).find(|&copy| sections[copy].followers.contains(&next));
        let Some(before) = before else { continue };
        let (ours, theirs) =
            (&program.parts[sections[first].part].reference, &program.parts[sections[before].part].reference);
        for (entry, partner) in align(sequence, ours, theirs).into_iter().enumerate() {
            let slot = sections[first].slot_of[entry];
            let like = partner.and_then(|partner| sections[before].slot_of[partner as usize]);
            if let (Some(slot), Some(like)) = (slot, like)
                && outline.slots[slot].size == outline.slots[like].size
                && outline.slots[slot].stream == outline.slots[like].stream
            {
                likes[slot] = Some(like);
            }
        }
        pair_carried(outline, (first, before), &mut likes);
        pair_carried(outline, (next, next), &mut likes);
    }
    likes
}

/// Pairs what is carried into one section from sections that run once with what is carried into the other from
/// repeating ones: equal sizes in the order of release.
fn pair_carried(outline: &Outline, (ours, theirs): (usize, usize), likes: &mut [Option<usize>]) {
    let carried = |section: usize, repeating: bool| {
        let releases = outline.sections[section].releases.iter();
        let made = |slot: usize| outline.sections[outline.slots[slot].section].kind == SectionKind::Repeating;
        let mut carried: Vec<(u32, usize)> =
            releases.filter(|&(&slot, _)| made(slot) == repeating).map(|(&slot, &at)| (at, slot)).collect();
        carried.sort_unstable();
        carried
    };
    let mut by_size: FxHashMap<(u64, u32), Vec<usize>> = FxHashMap::default();
    for (_, slot) in carried(theirs, true).into_iter().rev() {
        let slot_outline = &outline.slots[slot];
        by_size.entry((slot_outline.size, slot_outline.stream)).or_default().push(slot);
    }
    for (_, slot) in carried(ours, false) {
        let slot_outline = &outline.slots[slot];
        if likes[slot].is_none() {
            likes[slot] = by_size.get_mut(&(slot_outline.size, slot_outline.stream)).and_then(Vec::pop);
        }
    }
}
