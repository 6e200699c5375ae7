//! The check of a plan in itself.

use super::Findings;
use super::carried::{SlotSkyline, carried_into};
use super::ranges::TakenRanges;
use crate::{Entry, Plan, Section};

/// See [`Plan::check`].
pub fn check(plan: &Plan) -> Findings {
    let mut findings = Findings::default();
    if let Err(fault) = plan.validate() {
        findings.unmatched(|| fault);
        return findings.conclude();
    }
    for (i, slot) in plan.slots.iter().enumerate() {
        findings.place(|| format!("slot {i}"), slot.offset, slot.size, plan.alignment, plan.arena);
    }
    for (i, carried) in carried_into(plan).into_iter().enumerate() {
        check_section(plan, i, carried, &mut findings);
    }
    findings.conclude()
}

/// What happens at a clock time, in the order in which it happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SectionMoment {
    Ends(u32),
    Begins(u32),
}

fn check_section(plan: &Plan, index: usize, carried: Vec<(u32, u32)>, findings: &mut Findings) {
    let section = &plan.sections[index];
    let end_of = |slot: u32| plan.slots[slot as usize].offset.saturating_add(plan.slots[slot as usize].size);
    let skyline =
        carried.into_iter().map(|(slot, until)| (plan.slots[slot as usize].offset, end_of(slot), until, slot));
    let skyline = SlotSkyline::new(skyline.collect());
    let mut taken = TakenRanges::default();
    for (clock, moment) in moments(plan, section) {
        match moment {
            SectionMoment::Ends(i) => taken.give_back(plan.slots[i as usize].offset, i),
            SectionMoment::Begins(i) => {
                let (start, end) = (plan.slots[i as usize].offset, end_of(i));
                let (until, holder) = skyline.longest(start, end);
                let holder = if until > clock { Some(holder) } else { taken.holder(start, end) };
                match holder {
                    Some(holder) => findings.overlap(|| {
                        format!("section {index}, clock {clock}: slot {i} is put where slot {holder} still lives")
                    }),
                    None => taken.take(start, end, i),
                }
            }
        }
    }
}

fn moments(plan: &Plan, section: &Section) -> Vec<(u32, SectionMoment)> {
    let mut moments = Vec::with_capacity(2 * section.entries.len());
    for entry in &section.entries {
        if let Entry::Slot(i) = *entry {
            let slot = &plan.slots[i as usize];
            moments.push((slot.lower, SectionMoment::Begins(i)));
            if slot.upper <= section.period() {
                moments.push((slot.upper, SectionMoment::Ends(i)));
            }
        }
    }
    moments.sort_unstable();
    moments
}
