//! Requests that differ from step to step, and the room that the plan keeps for them.
//!
//! Dynamic requests of a part are gathered into *groups* that live about together. A group gets a *home*: a range of
//! the arena that is laid out as if it were one buffer, large enough for the whole group in (nearly) every step. What
//! varies from member to member often does not vary in sum (tokens that one expert does not get, another one does),
//! so members are put together where one home for all takes less memory and time than homes of their own.

mod groups;
mod room;

use std::ops::Range;

use serde::Serialize;
use stalloc_plan::{DynamicGroup, FOREVER, Plan};

use crate::layout::Item;
use crate::outline::Outline;
use crate::sequence::Sequence;

pub use groups::{Group, gather};
pub use room::Headroom;

/// Beside its home, a group is told of so many of the largest ranges that it may use.
const MAX_RANGES: usize = 16;

/// The home of a group in a section, as something to place. Its `reach` goes into every section that follows.
pub fn home(group: &Group, section: usize, outline: &Outline) -> Item {
    let period = outline.sections[section].period;
    let beyond = group.lifetime.end.saturating_sub(period);
    let followers = outline.sections[section].followers.iter().filter(|_| beyond > 0);
    Item {
        section,
        lower: group.lifetime.start,
        upper: group.lifetime.end.min(period),
        reach: followers.map(|&next| (next, beyond.min(outline.sections[next].period))).collect(),
        forever: false,
        size: group.home,
        stream: group.stream,
        like: None,
    }
}

/// The room that a plan keeps for what differs from step to step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Room {
    /// Groups of requests that live about together.
    pub groups: usize,
    /// Each group finds room for itself in about this share of the steps: see [`Headroom`].
    pub share_of_steps: f64,
    /// Most bytes at once of groups as large as they were seen.
    pub seen: u64,
    /// Most bytes at once that are kept for them. They are addresses: memory is mapped where it is used.
    pub kept: u64,
}

impl Room {
    /// The room for groups, each in a section.
    pub fn new(groups: &[(usize, Group)], headroom: Headroom) -> Self {
        Room {
            groups: groups.len(),
            share_of_steps: headroom.share_of_steps(),
            seen: at_once(groups, Group::most),
            kept: at_once(groups, |group| group.home),
        }
    }
}

/// Most bytes of groups at once, in the section where that is most. O(groups log groups).
fn at_once(groups: &[(usize, Group)], bytes: impl Fn(&Group) -> u64) -> u64 {
    let mut moments: Vec<(usize, u32, bool, u64)> = Vec::with_capacity(2 * groups.len());
    for (section, group) in groups {
        let Range { start, end } = group.lifetime;
        moments.extend([(*section, end, false, bytes(group)), (*section, start, true, bytes(group))]);
    }
    moments.sort_unstable();
    let (mut live, mut most) = (0u64, 0);
    for (_, _, begins, bytes) in moments {
        live = if begins { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        most = most.max(live);
    }
    most
}

/// What the plan says of a group, without the ranges that it may use.
pub fn describe(sequence: &Sequence, group: &Group, section: usize, home: Range<u64>) -> DynamicGroup {
    let seen = group.requests.iter().chain(&group.lasting);
    let mut sizes: Vec<u64> = seen.map(|&request| sequence.size[request as usize]).collect();
    sizes.sort_unstable();
    let quantile = |share: usize| sizes.get((sizes.len().saturating_sub(1)) * share / 100).copied().unwrap_or(0);
    DynamicGroup {
        section: section as u32,
        stream: group.stream,
        lifetime: group.lifetime.clone(),
        sizes: [quantile(0), quantile(50), quantile(90), quantile(100)],
        peak: group.most(),
        always: group.always,
        reusable: Vec::new(),
        home,
    }
}

/// Fills in the ranges that each group may use: what no slot needs while the group lives. A group without a home
/// outlives what is known, so there are none for it. O(groups x slots of a lifetime).
pub fn find_ranges(plan: &mut Plan, items: &[Item]) {
    let mut of_section: Vec<Vec<u32>> = vec![Vec::new(); plan.sections.len()];
    let mut carried: Vec<Vec<(u32, u32)>> = vec![Vec::new(); plan.sections.len()];
    for (i, item) in items.iter().enumerate() {
        of_section[item.section].push(i as u32);
        for &(section, until) in &item.reach {
            carried[section].push((i as u32, until));
        }
    }
    let mut groups = std::mem::take(&mut plan.dynamic);
    for group in groups.iter_mut().filter(|group| !group.home.is_empty()) {
        let section = group.section as usize;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut take = |slot: u32| {
            let slot = &plan.slots[slot as usize];
            taken.push((slot.offset, slot.offset + slot.size));
        };
        let Range { start, end } = group.lifetime;
        of_section[section].iter().filter(|&&i| lives(&items[i as usize], start, end)).for_each(|&i| take(i));
        carried[section].iter().filter(|&&(_, until)| until > start).for_each(|&(i, _)| take(i));
        let beyond = end.saturating_sub(plan.sections[section].period());
        if beyond > 0 {
            for &next in &plan.sections[section].followers {
                let own = of_section[next as usize].iter();
                own.filter(|&&i| items[i as usize].lower < beyond).for_each(|&i| take(i));
            }
        }
        group.reusable = ranges(taken, plan.arena, &group.home);
    }
    plan.dynamic = groups;
}

fn lives(item: &Item, start: u32, end: u32) -> bool {
    item.lower < end && (item.upper > start || item.upper == FOREVER)
}

/// The largest gaps between what is taken, and the one that holds the home, ascending.
fn ranges(mut taken: Vec<(u64, u64)>, arena: u64, home: &Range<u64>) -> Vec<Range<u64>> {
    taken.sort_unstable();
    taken.push((arena, arena));
    let mut gaps: Vec<Range<u64>> = Vec::new();
    let mut free_from = 0;
    for (start, end) in taken {
        if start > free_from {
            gaps.push(free_from..start);
        }
        free_from = free_from.max(end);
    }
    gaps.sort_by_key(|gap| (!(gap.start <= home.start && home.end <= gap.end), std::cmp::Reverse(gap.end - gap.start)));
    gaps.truncate(MAX_RANGES);
    gaps.sort_by_key(|gap| gap.start);
    gaps
}
