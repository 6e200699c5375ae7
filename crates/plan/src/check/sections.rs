//! The check of a plan in itself.

use std::collections::BTreeSet;

use super::Verdict;
use super::carried::{Skyline, carried_into};
use super::ranges::Taken;
use crate::{Entry, Plan, Section};

/// See [`Plan::check`].
pub fn check(plan: &Plan) -> Verdict {
    let mut verdict = Verdict::default();
    if let Err(fault) = plan.validate() {
        verdict.unmatched(|| fault);
        return verdict.conclude();
    }
    for (i, slot) in plan.slots.iter().enumerate() {
        verdict.place(|| format!("slot {i}"), slot.offset, slot.size, plan.alignment, plan.arena);
    }
    let promises = promises(plan);
    for (i, carried) in carried_into(plan).into_iter().enumerate() {
        check_section(plan, i, carried, &promises[i], &mut verdict);
    }
    verdict.conclude()
}

/// An address range that a dynamic group may use during `[lower, upper)` of a section's clock.
struct Promise {
    lower: u32,
    upper: u32,
    start: u64,
    end: u64,
    group: u32,
    /// Whether it is the rest of one made in the section before. What is carried in with it was alive there, and was
    /// checked there; what is carried in by other ways never meets it.
    rest: bool,
}

/// The promises that each section must keep: those of its own groups, and the rest of those of sections before it.
fn promises(plan: &Plan) -> Vec<Vec<Promise>> {
    let mut promises: Vec<Vec<Promise>> = plan.sections.iter().map(|_| Vec::new()).collect();
    for (i, group) in plan.dynamic.iter().enumerate() {
        let section = &plan.sections[group.section as usize];
        let mut add = |section: usize, lower: u32, upper: u32, rest: bool| {
            promises[section].extend(group.reusable.iter().map(|range| Promise {
                lower,
                upper,
                start: range.start,
                end: range.end,
                group: i as u32,
                rest,
            }));
        };
        add(group.section as usize, group.lifetime.start, group.lifetime.end, false);
        let beyond = group.lifetime.end.saturating_sub(section.period());
        if beyond > 0 {
            for &follower in &section.followers {
                add(follower as usize, 0, beyond, true);
            }
        }
    }
    promises
}

/// What happens at a clock time, in the order in which it happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    SlotEnds(u32),
    PromiseEnds(u32),
    PromiseBegins(u32),
    SlotBegins(u32),
}

fn check_section(plan: &Plan, index: usize, carried: Vec<(u32, u32)>, promises: &[Promise], verdict: &mut Verdict) {
    let section = &plan.sections[index];
    let end_of = |slot: u32| plan.slots[slot as usize].offset.saturating_add(plan.slots[slot as usize].size);
    let skyline =
        carried.into_iter().map(|(slot, until)| (plan.slots[slot as usize].offset, end_of(slot), until, slot));
    let skyline = Skyline::new(skyline.collect());
    let mut taken = Taken::default();
    let mut promised = Coverage::new(promises.iter().flat_map(|p| [p.start, p.end]).collect());
    for (clock, moment) in moments(plan, section, promises) {
        match moment {
            Moment::SlotEnds(i) => taken.give_back(plan.slots[i as usize].offset, i),
            Moment::PromiseEnds(i) => promised.add(promises[i as usize].start, promises[i as usize].end, -1),
            Moment::PromiseBegins(i) => {
                let Promise { start, end, group, rest, .. } = promises[i as usize];
                let (until, holder) = skyline.longest(start, end);
                let holder = if until > clock && !rest { Some(holder) } else { taken.holder(start, end) };
                if let Some(slot) = holder {
                    verdict.overlap(|| {
                        format!(
                            "section {index}, clock {clock}: slot {slot} lives in a range that group {group} may reuse"
                        )
                    });
                }
                promised.add(start, end, 1);
            }
            Moment::SlotBegins(i) => {
                let (start, end) = (plan.slots[i as usize].offset, end_of(i));
                let (until, holder) = skyline.longest(start, end);
                let holder = if until > clock { Some(holder) } else { taken.holder(start, end) };
                match holder {
                    Some(holder) => verdict.overlap(|| {
                        format!("section {index}, clock {clock}: slot {i} is put where slot {holder} still lives")
                    }),
                    None => taken.take(start, end, i),
                }
                if promised.any(start, end) {
                    verdict.overlap(|| {
                        format!(
                            "section {index}, clock {clock}: slot {i} begins in a range that a dynamic group may reuse"
                        )
                    });
                }
            }
        }
    }
}

fn moments(plan: &Plan, section: &Section, promises: &[Promise]) -> Vec<(u32, Moment)> {
    let mut moments = Vec::with_capacity(2 * (section.entries.len() + promises.len()));
    for entry in &section.entries {
        if let Entry::Slot(i) = *entry {
            let slot = &plan.slots[i as usize];
            moments.push((slot.lower, Moment::SlotBegins(i)));
            if slot.upper <= section.period() {
                moments.push((slot.upper, Moment::SlotEnds(i)));
            }
        }
    }
    for (i, promise) in promises.iter().enumerate().filter(|(_, promise)| promise.lower < promise.upper) {
        moments.push((promise.lower, Moment::PromiseBegins(i as u32)));
        moments.push((promise.upper, Moment::PromiseEnds(i as u32)));
    }
    moments.sort_unstable();
    moments
}

/// How many ranges, which may overlap, cover each address: a segment tree over their edges.
struct Coverage {
    edges: Vec<u64>,
    /// Per node: what was added to all of it, and the most that any part of it has below that.
    nodes: Vec<(i32, i32)>,
}

impl Coverage {
    fn new(edges: BTreeSet<u64>) -> Self {
        let edges: Vec<u64> = edges.into_iter().collect();
        let nodes = vec![(0, 0); 2 * edges.len().next_power_of_two()];
        Coverage { edges, nodes }
    }

    /// Adds to every address of a range whose ends are edges.
    fn add(&mut self, start: u64, end: u64, amount: i32) {
        let (first, last) = self.cells(start, end);
        self.change(1, 0, self.nodes.len() / 2, (first, last), amount);
    }

    /// Whether anything covers part of a range.
    fn any(&self, start: u64, end: u64) -> bool {
        let (first, last) = self.cells(start, end);
        first < last && self.most(1, 0, self.nodes.len() / 2, (first, last)) > 0
    }

    fn cells(&self, start: u64, end: u64) -> (usize, usize) {
        let first = self.edges.partition_point(|&edge| edge <= start).saturating_sub(1);
        (first, self.edges.partition_point(|&edge| edge < end))
    }

    fn change(&mut self, node: usize, low: usize, width: usize, range: (usize, usize), amount: i32) {
        if range.0 <= low && low + width <= range.1 {
            self.nodes[node].0 += amount;
        } else if range.0 < low + width && low < range.1 {
            let half = width / 2;
            self.change(2 * node, low, half, range, amount);
            self.change(2 * node + 1, low + half, half, range, amount);
            let most = |(all, part): (i32, i32)| all + part;
            self.nodes[node].1 = most(self.nodes[2 * node]).max(most(self.nodes[2 * node + 1]));
        }
    }

    fn most(&self, node: usize, low: usize, width: usize, range: (usize, usize)) -> i32 {
        let (all, part) = self.nodes[node];
        if range.0 <= low && low + width <= range.1 {
            all + part
        } else if range.0 < low + width && low < range.1 {
            let half = width / 2;
            all + self.most(2 * node, low, half, range).max(self.most(2 * node + 1, low + half, half, range))
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coverage_answers_as_a_search_of_all_ranges_does(
            ranges in prop::collection::vec((0u64..40, 1u64..12, any::<bool>()), 0..20),
            start in 0u64..45,
            length in 1u64..20,
        ) {
            let edges = ranges.iter().flat_map(|&(s, l, _)| [s, s + l]).collect();
            let mut coverage = Coverage::new(edges);
            for &(s, l, _) in &ranges {
                coverage.add(s, s + l, 1);
            }
            for &(s, l, _) in ranges.iter().filter(|r| !r.2) {
                coverage.add(s, s + l, -1);
            }
            let end = start + length;
            let expected = ranges.iter().any(|&(s, l, stays)| stays && s.max(start) < (s + l).min(end));
            prop_assert_eq!(coverage.any(start, end), expected);
        }
    }
}
