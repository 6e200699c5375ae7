//! Beam search over skylines: many partial solutions grow side by side, one decision at a time, and those that have lost
//! the least for what they have placed go on. Where a little may be lost everywhere, as with slack, a dive of the exact
//! search cannot tell a good start from a bad one; a beam compares them.
//!
//! A decision is an item that rests on the floor of one valley, outermost on one side, or that none does and the floor
//! rises to the lower wall: the branching of the exact search. What is lost counts the more, the less may be lost where
//! it is; and what no waiting item can save is counted before it is lost. A state with a valley that can neither be
//! filled nor rise is left out. Incomplete: that a beam finds nothing proves nothing.
//!
//! Beam search for packing, guided by the share that is lost: Libralesso and Fontan (2021). For lines in which nothing is
//! fixed or aligned.

mod state;
#[cfg(test)]
mod tests;

use std::time::Instant;

use crate::bound::loads;
use crate::clock::is_over;
use crate::hash::{Rng, mix};
use crate::problem::{Item, Part};
use state::{Made, NONE, Room, Run, State, each};

/// Decisions that are looked at closely, for each state that goes on.
const LOOKED_AT: usize = 3;

/// Waiting items of a valley that are looked at, at most: beyond the first so many there is much to lose, or time until it
/// matters. Whatever the number of items, a decision costs no more than that.
const NEAREST: u32 = 128;

/// What is lost where nothing may be lost counts so many times as much as elsewhere, at most.
const SCARCEST: f64 = 50.0;

/// Which valley a state decides about next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// The leftmost: a decision's consequences show soon, and lie where the next ones are.
    Leftmost,
    Lowest,
    /// The lowest of those in which few items wait: where there is least choice.
    Few,
}

/// How a beam goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// States that go on.
    pub width: usize,
    pub valley: Where,
    /// Whether what is lost is compared with the square of what is placed, so that large items come earlier.
    pub squared: bool,
    /// Whether what is lost is weighted by the inverse of what may be lost there, or by its root.
    pub weighted: bool,
    /// Guides are multiplied by a random factor from 1 to 1 + noise/16.
    pub noise: u64,
    pub seed: u64,
}

/// A decision of a state.
struct Decision {
    /// Smaller is better.
    guide: f64,
    noise: f64,
    lost: f64,
    pending: f64,
    placed: f64,
    key: u64,
    parent: u32,
    /// The valley.
    run: u32,
    /// `NONE`: the floor rises.
    item: u32,
    from_left: bool,
    made: Made,
}

/// A placed item of a state, and what was placed before it.
struct Placed {
    before: u32,
    item: u32,
    offset: u64,
}

/// What all beams over a part share.
pub(crate) struct Beam {
    /// By first section; `id` is the index in the part.
    items: Vec<Item>,
    sections: u32,
    base: u64,
    loads: Vec<u64>,
    /// First item that begins at a section or later.
    begins: Vec<u32>,
    keys: Vec<u64>,
    /// What a unit of address lost costs, from the first section to each.
    cost: Vec<f64>,
    /// Items, runs and sections looked at so far.
    pub work: u64,
}

impl Beam {
    /// Whether a part is one that beams can place.
    pub fn can_place(part: &Part) -> bool {
        !part.ring && !part.aligned && part.fixed.is_empty()
    }

    /// For a part that beams can place; from the last section to the first if it is `mirrored`. O(n log n).
    pub fn new(part: &Part, mirrored: bool) -> Beam {
        let (m, mut loads) = (part.sections, loads(part));
        let mut items: Vec<Item> = part.items.iter().zip(0..).map(|(item, id)| Item { id, ..*item }).collect();
        if mirrored {
            loads.reverse();
            items.iter_mut().for_each(|i| (i.lower, i.upper) = (m - i.upper, m - i.lower));
        }
        items.sort_unstable_by_key(|i| (i.lower, i.upper, i.size, i.id));
        let begins = (0..=m).map(|s| items.partition_point(|i| i.lower < s) as u32).collect();
        let keys = (1..=items.len() as u64).map(mix).collect();
        Beam { items, sections: m, base: part.base, loads, begins, keys, cost: vec![], work: 0 }
    }

    /// Offsets below `limit` (inclusive), if a beam of this manner finds some with so much work and in time.
    pub fn run(&mut self, limit: u64, manner: Manner, work: u64, until: Option<Instant>) -> Option<Vec<u64>> {
        let until_work = self.work.saturating_add(work);
        let limit = limit.checked_sub(self.base)?;
        if self.loads.iter().any(|&load| load > limit) {
            return None;
        }
        let room: Vec<u64> = self.loads.iter().map(|&load| limit - load).collect();
        self.set_costs(&room, manner.weighted);
        let mut rng = Rng::new(manner.seed);
        let mut placed: Vec<Placed> = Vec::new();
        let mut states = vec![State::new(Room::new(&room), self.items.len())];
        let mut next: Vec<State> = Vec::new();
        let mut decisions: Vec<Decision> = Vec::new();
        let mut children: Vec<u32> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        while self.work <= until_work && !is_over(until) {
            decisions.clear();
            for (parent, state) in states.iter_mut().enumerate() {
                self.expand(state, parent as u32, &manner, &mut rng, &mut decisions);
            }
            let looked_at = LOOKED_AT * manner.width;
            if decisions.len() > looked_at {
                decisions.select_nth_unstable_by(looked_at, |a, b| a.guide.total_cmp(&b.guide));
                decisions.truncate(looked_at);
            }
            decisions.retain_mut(|decision| self.assess(&states[decision.parent as usize], decision, &manner));
            decisions.sort_unstable_by(|a, b| a.guide.total_cmp(&b.guide).then(a.key.cmp(&b.key)));
            seen.clear();
            // Of states that have placed the same items, the best.
            decisions.retain(|decision| seen.len() < manner.width && seen.insert(decision.key));
            if decisions.is_empty() {
                return None;
            }
            next.truncate(decisions.len());
            next.resize_with(decisions.len(), State::default);
            children.clear();
            children.resize(states.len(), 0u32);
            decisions.iter().for_each(|decision| children[decision.parent as usize] += 1);
            for (decision, child) in decisions.iter().zip(&mut next) {
                let parent = decision.parent as usize;
                children[parent] -= 1;
                if children[parent] == 0 {
                    // Nobody needs the parent any more.
                    std::mem::swap(child, &mut states[parent]);
                } else {
                    child.clone_from(&states[parent]);
                    self.work += child.size();
                }
                self.apply(child, decision, &mut placed);
                if child.count as usize == self.items.len() {
                    return Some(self.offsets(child.last, &placed));
                }
            }
            std::mem::swap(&mut states, &mut next);
        }
        None
    }

    fn set_costs(&mut self, room: &[u64], weighted: bool) {
        let mean = room.iter().map(|&r| r as f64).sum::<f64>() / room.len().max(1) as f64 + 1.0;
        let mut sum = 0.0;
        self.cost.clear();
        self.cost.push(0.0);
        for &room in room {
            let scarce = mean / (room as f64 + mean / SCARCEST);
            sum += if weighted { scarce } else { scarce.sqrt() };
            self.cost.push(sum);
        }
    }

    /// What it costs that some sections lose so much.
    fn cost(&self, from: u32, to: u32, height: u64) -> f64 {
        (self.cost[to as usize] - self.cost[from as usize]) * height as f64
    }

    fn offsets(&self, mut last: u32, placed: &[Placed]) -> Vec<u64> {
        let mut offsets = vec![self.base; self.items.len()];
        while let Some(p) = placed.get(last as usize) {
            offsets[self.items[p.item as usize].id as usize] = p.offset + self.base;
            last = p.before;
        }
        offsets
    }

    /// The valley that a state decides about.
    fn valley(&mut self, state: &State, valley: Where) -> usize {
        let runs = &state.runs;
        let k = match valley {
            Where::Leftmost => runs.windows(2).position(|w| w[0].height < w[1].height).unwrap_or(runs.len() - 1),
            Where::Lowest => (0..runs.len()).min_by_key(|&k| runs[k].height).unwrap_or(0),
            Where::Few => {
                let is_valley = |&k: &usize| {
                    let (left, right) = state.walls(k);
                    left > runs[k].height && right > runs[k].height
                };
                let class = |k: usize| ((runs[k].waiting + 1).ilog2(), runs[k].height);
                (0..runs.len()).filter(is_valley).min_by_key(|&k| class(k)).unwrap_or(0)
            }
        };
        self.work += 1 + runs.len() as u64 / 4;
        k
    }

    /// Adds the decisions of a state. As long as it has none but to rise, it does so at once.
    fn expand(
        &mut self,
        state: &mut State,
        parent: u32,
        manner: &Manner,
        rng: &mut Rng,
        decisions: &mut Vec<Decision>,
    ) {
        loop {
            let k = self.valley(state, manner.valley);
            let (at, end, floor) = (state.runs[k].at, state.end(k, self.sections), state.runs[k].height);
            let (left, right) = state.walls(k);
            let wall = left.min(right);
            let can_rise = wall < u64::MAX && wall - floor <= state.room.least(at, end);
            let pending = state.pending - state.runs[k].pending;
            let (mut items, mut flush) = (0u32, [0u32; 2]);
            self.work += 1 + u64::from(end - at) / 4;
            let range = (self.begins[at as usize], self.begins[end as usize]);
            self.work += each(&state.waiting, range, |i| {
                let item = &self.items[i as usize];
                if item.upper <= end {
                    items += 1;
                    flush[0] += u32::from(item.lower == at);
                    flush[1] += u32::from(item.upper == end);
                }
                items < NEAREST
            });
            // From the side on which fewer items are flush with the wall, but some are; where not all were seen, from the
            // left.
            let fewer = if (flush[0] == 0) == (flush[1] == 0) { flush[0] <= flush[1] } else { flush[0] > 0 };
            let from_left = fewer || items == NEAREST;
            let before = decisions.len();
            let mut push = |item: u32, lost: f64, placed: f64, key: u64| {
                let noise = 1.0 + manner.noise as f64 / 16.0 * ((rng.next() % 1024) as f64 / 1024.0);
                let (run, made) = (k as u32, Made::default());
                let guide = guide(lost + pending, placed, manner) * noise;
                decisions.push(Decision {
                    guide,
                    noise,
                    lost,
                    pending,
                    placed,
                    key,
                    parent,
                    run,
                    item,
                    from_left,
                    made,
                });
            };
            if can_rise {
                let lost = state.lost + self.cost(at, end, wall - floor);
                push(NONE, lost, state.placed, state.key ^ mix(mix(u64::from(at)) ^ floor));
            }
            let (mut twin, mut seen) = (NONE, 0);
            self.work += each(&state.waiting, range, |i| {
                let item = &self.items[i as usize];
                let alike = |t: u32| {
                    let t = &self.items[t as usize];
                    (t.lower, t.upper, t.size) == (item.lower, item.upper, item.size)
                };
                seen += u32::from(item.upper <= end);
                if item.upper > end || (twin != NONE && alike(twin)) {
                    return seen < NEAREST;
                }
                twin = i;
                let (from, to, wall) = if from_left { (at, item.lower, left) } else { (item.upper, end, right) };
                let rise = wall.min(floor + item.size) - floor;
                if from == to || rise <= state.room.least(from, to) {
                    let area = f64::from(item.length()) * item.size as f64;
                    let lost = state.lost + self.cost(from, to, rise);
                    push(i, lost, state.placed + area, state.key ^ self.keys[i as usize]);
                }
                seen < NEAREST
            });
            if !can_rise || items > 0 {
                return;
            }
            // Nothing can rest here, so there is nothing to compare.
            let Some(mut decision) = decisions.pop().filter(|_| decisions.len() == before) else { return };
            if !self.assess(state, &mut decision, manner) {
                return;
            }
            self.apply(state, &decision, &mut Vec::new());
        }
    }

    /// Looks at what a decision leaves; whether it can go on.
    fn assess(&mut self, state: &State, decision: &mut Decision, manner: &Manner) -> bool {
        decision.made = self.made(state, decision);
        let (from, to) = (decision.made.from as usize, decision.made.to as usize);
        let outer_left = if from == 0 { u64::MAX } else { state.runs[from - 1].height };
        let (outer_right, stop) = state.runs.get(to).map_or((u64::MAX, self.sections), |r| (r.height, r.at));
        for k in (from..to).filter(|&k| k != decision.run as usize) {
            decision.pending -= state.runs[k].pending;
        }
        let count = decision.made.count as usize;
        for j in 0..count {
            let run = decision.made.runs[j];
            let left = if j == 0 { outer_left } else { decision.made.runs[j - 1].height };
            let (right, end) = if j + 1 == count {
                (outer_right, stop)
            } else {
                (decision.made.runs[j + 1].height, decision.made.runs[j + 1].at)
            };
            let wall = left.min(right);
            if wall <= run.height {
                continue;
            }
            let Some((pending, waiting)) = self.pending(state, (run.at, end), wall, run.height, decision.item) else {
                return false;
            };
            (decision.made.runs[j].pending, decision.made.runs[j].waiting) = (pending, waiting);
            decision.pending += pending;
        }
        decision.guide = guide(decision.lost + decision.pending, decision.placed, manner) * decision.noise;
        true
    }

    /// What is certainly lost before a valley is level with its lower wall: where no waiting item lives that lives within
    /// the valley. `None` if more is lost than may be.
    fn pending(
        &mut self,
        state: &State,
        (at, end): (u32, u32),
        wall: u64,
        floor: u64,
        without: u32,
    ) -> Option<(f64, u32)> {
        let (mut covered, mut lost, mut possible, mut count) = (at, 0.0, true, 0);
        let mut gap = |from: u32, to: u32| {
            if from < to && wall < u64::MAX {
                possible &= wall - floor <= state.room.least(from, to);
                lost += self.cost(from, to, wall - floor);
            }
        };
        let range = (self.begins[at as usize], self.begins[end as usize]);
        let looked = each(&state.waiting, range, |i| {
            let item = &self.items[i as usize];
            if item.upper <= end && i != without {
                count += 1;
                if item.upper > covered {
                    gap(covered, item.lower);
                    covered = item.upper;
                }
            }
            count < NEAREST
        });
        if count < NEAREST {
            gap(covered, end);
        }
        self.work += 1 + looked;
        possible.then_some((lost, count))
    }

    /// The runs that a decision makes, and which of the state's they replace.
    fn made(&self, state: &State, decision: &Decision) -> Made {
        let k = decision.run as usize;
        let (at, end, floor) = (state.runs[k].at, state.end(k, self.sections), state.runs[k].height);
        let (left, right) = state.walls(k);
        let mut pieces = [(at, end, left.min(right)), (end, end, 0), (end, end, 0)];
        if decision.item != NONE {
            let item = &self.items[decision.item as usize];
            let top = floor + item.size;
            let (before, after) = if decision.from_left { (left.min(top), floor) } else { (floor, right.min(top)) };
            pieces = [(at, item.lower, before), (item.lower, item.upper, top), (item.upper, end, after)];
        }
        let mut made = Made { from: k as u32, to: k as u32 + 1, ..Made::default() };
        for (from, _, height) in pieces.into_iter().filter(|p| p.0 < p.1) {
            if made.count == 0 && left == height {
                // Level with the run before.
                made.from -= 1;
                made.push(Run { at: state.runs[k - 1].at, height, pending: 0.0, waiting: 0 });
            } else if made.last() != Some(height) {
                made.push(Run { at: from, height, pending: 0.0, waiting: 0 });
            }
        }
        made.to += u32::from(made.last() == Some(right));
        made
    }

    fn apply(&self, state: &mut State, decision: &Decision, placed: &mut Vec<Placed>) {
        let k = decision.run as usize;
        let (at, end, floor) = (state.runs[k].at, state.end(k, self.sections), state.runs[k].height);
        let (left, right) = state.walls(k);
        if decision.item == NONE {
            state.room.lose(at, end, left.min(right) - floor);
        } else {
            let item = &self.items[decision.item as usize];
            state.waiting[decision.item as usize / 64] &= !(1 << (decision.item % 64));
            state.count += 1;
            placed.push(Placed { before: state.last, item: decision.item, offset: floor });
            state.last = placed.len() as u32 - 1;
            let (from, to, wall) = if decision.from_left { (at, item.lower, left) } else { (item.upper, end, right) };
            state.room.lose(from, to, wall.min(floor + item.size) - floor);
        }
        (state.lost, state.pending, state.placed, state.key) =
            (decision.lost, decision.pending, decision.placed, decision.key);
        let made = &decision.made;
        state.runs.splice(made.from as usize..made.to as usize, made.runs[..made.count as usize].iter().copied());
    }
}

/// What states are compared by.
fn guide(lost: f64, placed: f64, manner: &Manner) -> f64 {
    let placed = placed.max(1.0);
    (lost + 0.001) / if manner.squared { placed * placed } else { placed }
}
