//! What a request is at a place of the plan.

use super::Guess;
use crate::script::{Expect, Key, Position, Script};

/// How many dynamic entries in a row are looked at for one that has seen a request's size.
pub(super) const LOOK_AHEAD: usize = 8;

/// Whether a request in a run of dynamic entries may be the planned one at `next`, after the run. At the section's
/// end that is the first planned one of any section.
#[inline]
pub(super) fn may_be_planned(script: &Script, entries: &[Expect], next: u32, key: Key) -> bool {
    entries.get(next as usize).map_or_else(|| script.begins_section(key), |entry| entry.key == key)
}

/// The planned entry at a position if a request is just that.
pub(super) fn slot_at(script: &Script, at: Position, key: Key) -> Option<(Guess, Position)> {
    let entry = script.entries(at.section).get(at.index as usize).filter(|entry| entry.key == key)?;
    let slot = entry.slot()?;
    Some((Guess::Slot { slot, place: entry.place }, Position { index: at.index + 1, ..at }))
}

/// The group of the dynamic entry before a position, if a request may be one more of it.
pub(super) fn repeated(script: &Script, at: Position, key: Key) -> Option<u32> {
    let number = script.entries(at.section).get((at.index as usize).checked_sub(1)?)?.group()?;
    script.groups[number as usize].has_seen(key).then_some(number)
}

/// What a request is at a position, and the position after it.
pub(super) fn fit(script: &Script, at: Position, key: Key) -> Option<(Guess, Position)> {
    let entries = script.entries(at.section);
    let index = at.index as usize;
    let group = |index: usize| {
        let number = entries.get(index)?.group()?;
        Some((number, &script.groups[number as usize]))
    };
    let dynamic = |number: u32, index: usize| (Guess::Dynamic(number), Position { index: index as u32, ..at });
    let Some((number, first)) = group(index) else { return slot_at(script, at, key) };
    // Dynamic entries may be absent. If a few are left and the request is just the planned one after them, it is that
    // one, unless its size is the usual one of the dynamic entry too, or one of those that are left has always come and
    // was nearly as large. If many are left, one may well have its size.
    let next = entries[index].place as usize;
    let after = || slot_at(script, Position { index: next as u32, ..at }, key);
    let mut run = (index..next).take(LOOK_AHEAD).filter_map(|index| Some((index, group(index)?)));
    let is_usual = first.usual == key.granules() && first.has_seen(key);
    if next - index <= LOOK_AHEAD
        && !is_usual
        && let Some(found) = after()
        && !run.clone().any(|(_, (_, group))| group.awaits(key))
    {
        return Some(found);
    }
    if first.may_be(key) {
        return Some(dynamic(number, index + 1));
    }
    if let Some((index, (number, _))) = run.find(|(_, (_, group))| group.has_seen(key)) {
        return Some(dynamic(number, index + 1));
    }
    after()
}
