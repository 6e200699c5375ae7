//! What in a first step corresponds to what in the steady state.
//!
//! A first step is mostly a steady step. If its requests lie where those of the step before would lie, the steady
//! state's good layout serves it as well, and only what it makes in addition has to be fitted in.

use rustc_hash::FxHashMap;
use stalloc_plan::SectionKind;

use crate::draft::Draft;
use crate::learner::Key;
use crate::outline::Outline;
use crate::tuning::{first_like_later, in_a_row};

/// For each slot of a section that runs once, the slot of a repeating section that it corresponds to, if any.
pub(crate) fn likes(draft: &Draft, outline: &Outline) -> Vec<Option<usize>> {
    let mut likes = vec![None; outline.slots.len()];
    let sections = &outline.sections;
    if !first_like_later() {
        return likes;
    }
    for (first, next) in outline.ran.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?))) {
        if sections[first].kind == SectionKind::Repeating || sections[next].kind != SectionKind::Repeating {
            continue;
        }
        // The copy that comes before `next` in the steady state.
        let same_part = |&section: &usize| sections[section].part == sections[next].part;
        let before = (0..sections.len()).filter(same_part).find(|&copy| sections[copy].followers.contains(&next));
        let Some(before) = before else { continue };
        let keys = |section: usize| &draft.kinds[sections[section].part].known.keys;
        for (ours, theirs) in pairs(keys(first), keys(before)) {
            if let (Some(slot), Some(like)) = (sections[first].slot_of[ours], sections[before].slot_of[theirs]) {
                likes[slot] = Some(like);
            }
        }
        pair_carried(outline, (first, before), &mut likes);
        pair_carried(outline, (next, next), &mut likes);
    }
    likes
}

/// Pairs equal requests of two steps, in the order of both: one by one as long as they are equal, then from the nearest
/// place where some in a row are equal again. O(n) if little differs.
fn pairs(ours: &[Key], theirs: &[Key]) -> Vec<(usize, usize)> {
    let mut rows: FxHashMap<&[Key], Vec<usize>> = FxHashMap::default();
    for (at, row) in theirs.windows(in_a_row()).enumerate() {
        rows.entry(row).or_default().push(at);
    }
    let mut pairs = Vec::with_capacity(ours.len().min(theirs.len()));
    let (mut our, mut their) = (0, 0);
    while our < ours.len() && their < theirs.len() {
        if ours[our] == theirs[their] {
            pairs.push((our, their));
            (our, their) = (our + 1, their + 1);
            continue;
        }
        let mut nearest: Option<(usize, usize, usize)> = None;
        for (skip, row) in ours[our..].windows(in_a_row()).enumerate() {
            if nearest.is_some_and(|(distance, ..)| distance <= skip) {
                break;
            }
            let Some(places) = rows.get(row) else { continue };
            if let Some(&at) = places.get(places.partition_point(|&at| at < their)) {
                let distance = skip + at - their;
                nearest = nearest.into_iter().chain([(distance, our + skip, at)]).min();
            }
        }
        let Some((_, ours, theirs)) = nearest else { break };
        (our, their) = (ours, theirs);
    }
    pairs
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
