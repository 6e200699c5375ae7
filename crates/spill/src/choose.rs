//! Which candidates are spilled: those that bring the peak to the capacity with the least added time.

use std::cmp::Reverse;

use crate::profile::{Profile, signed};
use crate::schedule::schedule;
use crate::timeline::timeline;
use crate::{Error, SavedTensor, SpillPlan, SpillProblem, Victim, host};

/// More is spilled than must be, by these parts of it: room in which copies can be late. Made up; what each gives shows in the plan's time.
const ROOM: [i64; 4] = [i64::MAX, 16, 4, 1];

/// Plans a step: several orders of choosing are tried, and the best answer counts.
///
/// # Errors
/// If the problem is not one.
pub fn plan(problem: &SpillProblem) -> Result<SpillPlan, Error> {
    problem.check()?;
    let kept = kept(problem);
    let before = kept.most(0, usize::MAX);
    let mut best = answer(problem, Vec::new(), 0);
    if before <= signed(problem.capacity) {
        return Ok(best);
    }
    let capacity = signed(problem.capacity);
    for order in orders(problem) {
        for part in ROOM {
            let (mut found, reached) = try_order(problem, &order, &kept, capacity - (before - capacity) / part);
            // Where the capacity is out of reach, only what lowers the peak is spilled.
            if reached > capacity {
                found = try_order(problem, &order, &kept, reached).0;
            }
            if worth(problem, &found) < worth(problem, &best) {
                best = found;
            }
        }
    }
    Ok(best)
}

/// What is less is better: the peak, then time, then bytes that are copied.
fn worth(problem: &SpillProblem, plan: &SpillPlan) -> (u64, u64, u64, u64) {
    let bytes = plan.victims.iter().map(|victim| problem.candidates[victim.candidate].bytes).sum();
    (plan.peak.max(problem.capacity), plan.added, bytes, plan.host)
}

/// Live bytes with every candidate on the device.
fn kept(problem: &SpillProblem) -> Profile {
    let live: Vec<u64> = problem.moments.iter().map(|moment| moment.live).collect();
    let mut kept = Profile::new(&live);
    for candidate in &problem.candidates {
        kept.add(candidate.gone, candidate.needed, signed(candidate.bytes));
    }
    kept
}

/// Orders in which candidates are offered: what was packed first has most time for its copy, what is needed last waits longest, few large
/// copies, much memory for long.
fn orders(problem: &SpillProblem) -> [Vec<usize>; 4] {
    let of = |index: &usize| problem.candidates[*index];
    let sorted = |key: &dyn Fn(&usize) -> (u128, usize)| {
        let mut order: Vec<usize> = (0..problem.candidates.len()).collect();
        order.sort_by_key(key);
        order
    };
    let large = |number: u128| u128::MAX - number;
    let area = |one: SavedTensor| u128::from(one.bytes) * (one.needed - one.gone) as u128;
    [
        sorted(&|index| (of(index).packed as u128, *index)),
        sorted(&|index| (large(of(index).needed as u128), *index)),
        sorted(&|index| (large(u128::from(of(index).bytes)), *index)),
        sorted(&|index| (large(area(of(index))), *index)),
    ]
}

/// Spills what lies across a moment above `aim`, in an order, until there is none; also the least that was reached.
fn try_order(problem: &SpillProblem, order: &[usize], kept: &Profile, aim: i64) -> (SpillPlan, i64) {
    let mut live = kept.clone();
    let mut waiting = Profile::new(&vec![0; problem.moments.len()]);
    let mut chosen: Vec<usize> = Vec::new();
    for &index in order {
        let SavedTensor { bytes, packed, gone, needed } = problem.candidates[index];
        if live.most(0, usize::MAX) <= aim {
            break;
        }
        let has_room = waiting.most(packed, needed) + signed(bytes) <= signed(problem.host);
        if bytes > 0 && has_room && live.most(gone, needed) > aim {
            live.add(gone, needed, -signed(bytes));
            waiting.add(packed, needed, signed(bytes));
            chosen.push(index);
        }
    }
    // What later choices made needless stays; the largest first.
    chosen.sort_by_key(|&index| (Reverse(problem.candidates[index].bytes), index));
    chosen.retain(|&index| {
        let SavedTensor { bytes, gone, needed, .. } = problem.candidates[index];
        let is_needed = live.most(gone, needed) + signed(bytes) > aim;
        if !is_needed {
            live.add(gone, needed, signed(bytes));
        }
        is_needed
    });
    chosen.sort_by_key(|&index| (problem.candidates[index].packed, index));
    let (offsets, host) = host::offsets(&problem.candidates, &chosen, problem.host);
    let mut victims = Vec::with_capacity(chosen.len());
    for (candidate, offset) in chosen.into_iter().zip(offsets) {
        let SavedTensor { bytes, gone, needed, .. } = problem.candidates[candidate];
        match offset {
            Some(offset) => victims.push(Victim { candidate, release: gone, copy_in: needed, offset }),
            None => live.add(gone, needed, signed(bytes)),
        }
    }
    let reached = live.most(0, usize::MAX);
    schedule(problem, &mut victims, live, reached.max(signed(problem.capacity)));
    (answer(problem, victims, host), reached)
}

fn answer(problem: &SpillProblem, victims: Vec<Victim>, host: u64) -> SpillPlan {
    let found = timeline(problem, &victims);
    SpillPlan { victims, host, peak: found.peak, added: found.added }
}
