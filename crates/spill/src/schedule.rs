//! When a victim's memory is released and taken again: as late and as early as hides the copies, and as the capacity allows.

use crate::profile::{Profile, signed};
use crate::{SpillProblem, Victim, nanoseconds};

/// Sets `release` and `copy_in` of victims that are in the order in which they are packed. `live`: bytes while each is away for as long as
/// it can be. Those whose memory would be away at no moment are dropped.
pub fn schedule(problem: &SpillProblem, victims: &mut Vec<Victim>, mut live: Profile, capacity: i64) {
    let mut begins = Vec::with_capacity(problem.moments.len());
    let mut time = 0;
    for moment in &problem.moments {
        begins.push(time);
        time += moment.nanoseconds;
    }
    let mut free = 0;
    for victim in victims.iter_mut() {
        let candidate = problem.candidates[victim.candidate];
        free = free.max(begins[candidate.packed]) + nanoseconds(candidate.bytes, problem.out_rate);
        let done = begins.partition_point(|&begin| begin < free).clamp(candidate.gone, candidate.needed);
        // The last moment up to which there is room for it.
        let room = capacity - signed(candidate.bytes);
        let fits = |until: usize| live.most(candidate.gone, until) <= room;
        victim.release = last(candidate.gone, done, fits);
        live.add(candidate.gone, victim.release, signed(candidate.bytes));
    }
    let mut order: Vec<usize> = (0..victims.len()).collect();
    order.sort_unstable_by_key(|&index| std::cmp::Reverse(problem.candidates[victims[index].candidate].needed));
    let mut busy_from = u64::MAX;
    for index in order {
        let victim = &mut victims[index];
        let candidate = problem.candidates[victim.candidate];
        let end = busy_from.min(begins[candidate.needed]);
        let start = end.saturating_sub(nanoseconds(candidate.bytes, problem.in_rate));
        let hidden = begins.partition_point(|&begin| begin <= start).saturating_sub(1);
        let hidden = hidden.clamp(victim.release, candidate.needed);
        let room = capacity - signed(candidate.bytes);
        // The first moment from which there is room for it.
        let fits = |earlier: usize| live.most(candidate.needed - earlier, candidate.needed) <= room;
        victim.copy_in = candidate.needed - last(0, candidate.needed - hidden, fits);
        live.add(victim.copy_in, candidate.needed, signed(candidate.bytes));
        busy_from = start.max(begins[victim.copy_in]);
    }
    victims.retain(|victim| victim.release < victim.copy_in);
}

/// The largest number from `first` to `end` up to which all are true; `first` is.
fn last(first: usize, end: usize, is_true: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (first, end + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if is_true(middle) { good = middle } else { bad = middle }
    }
    good
}
