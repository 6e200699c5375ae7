//! Whether every index in a plan points to something, and slots, entries and releases belong together.

use crate::{CARRIED, Entry, FOREVER, Plan, Section};

/// More sections than any program has; the check's time is bounded by it.
const MAX_SECTIONS: usize = 1024;

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

/// The first thing that is wrong, if any. O(size of the plan).
pub fn first_fault(plan: &Plan) -> Result<(), String> {
    ensure(plan.alignment > 0, || "its alignment is 0".into())?;
    ensure(plan.slots.len() < CARRIED as usize, || "it has too many slots".into())?;
    let sections = plan.sections.len();
    ensure(sections <= MAX_SECTIONS, || format!("it has {sections} sections, and {MAX_SECTIONS} at most make sense"))?;
    let mut next_slot = 0;
    for (i, section) in plan.sections.iter().enumerate() {
        check_section(plan, section, &mut next_slot).map_err(|fault| format!("section {i}: {fault}"))?;
    }
    ensure(next_slot as usize == plan.slots.len(), || {
        format!("{} slots are entries of sections, {} are there", next_slot, plan.slots.len())
    })?;
    let unknown = plan.trace_map.iter().flatten().find(|&&slot| slot as usize >= plan.slots.len());
    ensure(unknown.is_none(), || format!("a request has slot {unknown:?}, which is not there"))
}

fn check_section(plan: &Plan, section: &Section, next_slot: &mut u32) -> Result<(), String> {
    ensure(section.entries.len() < CARRIED as usize, || "too many entries".into())?;
    let period = section.period();
    for (clock, entry) in section.entries.iter().enumerate() {
        match *entry {
            Entry::Slot(slot) => {
                ensure(slot == *next_slot, || format!("entry {clock} is slot {slot} where {next_slot} should come"))?;
                *next_slot += 1;
                let slot = plan.slots.get(slot as usize).ok_or_else(|| format!("entry {clock}: no slot {slot}"))?;
                ensure(slot.lower as usize == clock, || {
                    format!("the slot of entry {clock} says that it is allocated at {}", slot.lower)
                })?;
                ensure(slot.size > 0, || format!("the slot of entry {clock} has no bytes"))?;
                let ends = slot.upper == CARRIED || slot.upper == FOREVER;
                ensure(ends || (slot.lower < slot.upper && slot.upper <= period), || {
                    format!("the slot of entry {clock} lives until {} on a clock of {period}", slot.upper)
                })?;
            }
            Entry::WithoutOffset { size, .. } => ensure(size > 0, || format!("entry {clock} has no bytes"))?,
        }
    }
    for release in &section.releases {
        ensure(release.at <= period, || format!("a release at {} on a clock of {period}", release.at))?;
        let slot = plan.slots.get(release.slot as usize);
        ensure(slot.is_some_and(|slot| slot.upper == CARRIED), || {
            format!("it releases slot {}, which nothing carries here", release.slot)
        })?;
    }
    ensure(section.releases.is_sorted(), || "its releases are not in order".into())?;
    ensure(section.followers.is_sorted_by(|a, b| a < b), || "its followers are not in order".into())?;
    let last = section.followers.last().copied().unwrap_or(0) as usize;
    ensure(last < plan.sections.len(), || format!("section {last} follows, which is not there"))
}
