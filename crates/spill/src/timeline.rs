//! A step with a plan: when each copy is made, how long the device waits, and how many bytes live.

use crate::{SpillProblem, Victim, nanoseconds};

/// When each copy of a spilled step runs, what that adds to the step, nanoseconds, and what lives at most, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When each victim is copied out, from and until, nanoseconds since the step began.
    pub out: Vec<(u64, u64)>,
    /// The same of the copy back.
    pub back: Vec<(u64, u64)>,
    /// How much longer the step takes, nanoseconds.
    pub added: u64,
    /// Largest live bytes.
    pub peak: u64,
}

/// What happens at a moment, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    CopyOut,
    Release,
    CopyIn,
    Need,
}

/// Follows a step. Each link makes one copy after the other, in the order in which they are asked for.
pub fn timeline(problem: &SpillProblem, victims: &[Victim]) -> Timeline {
    let mut acts: Vec<(usize, Act, usize, usize)> = Vec::with_capacity(4 * victims.len());
    for (index, victim) in victims.iter().enumerate() {
        let candidate = problem.candidates[victim.candidate];
        acts.push((candidate.packed, Act::CopyOut, candidate.needed, index));
        acts.push((victim.release, Act::Release, candidate.needed, index));
        acts.push((victim.copy_in, Act::CopyIn, candidate.needed, index));
        acts.push((candidate.needed, Act::Need, candidate.needed, index));
    }
    acts.sort_unstable();
    let mut found =
        Timeline { out: vec![(0, 0); victims.len()], back: vec![(0, 0); victims.len()], ..Timeline::default() };
    let (mut now, mut work, mut out_free, mut in_free) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut acts = acts.into_iter().peekable();
    for (at, moment) in problem.moments.iter().enumerate() {
        while let Some((_, act, _, index)) = acts.next_if(|(moment, ..)| *moment == at) {
            let bytes = problem.candidates[victims[index].candidate].bytes;
            match act {
                Act::CopyOut => {
                    let start = now.max(out_free);
                    out_free = start + nanoseconds(bytes, problem.out_rate);
                    found.out[index] = (start, out_free);
                }
                Act::Release => now = now.max(found.out[index].1),
                Act::CopyIn => {
                    let start = now.max(in_free);
                    in_free = start + nanoseconds(bytes, problem.in_rate);
                    found.back[index] = (start, in_free);
                }
                Act::Need => now = now.max(found.back[index].1),
            }
        }
        now += moment.nanoseconds;
        work += moment.nanoseconds;
    }
    found.added = now - work;
    found.peak = peak(problem, victims);
    found
}

/// Largest live bytes.
fn peak(problem: &SpillProblem, victims: &[Victim]) -> u64 {
    let mut change = vec![0_i128; problem.moments.len() + 1];
    let mut live = |from: usize, until: usize, bytes: i128| {
        change[from] += bytes;
        change[until] -= bytes;
    };
    for candidate in &problem.candidates {
        live(candidate.gone, candidate.needed, i128::from(candidate.bytes));
    }
    for victim in victims {
        live(victim.release, victim.copy_in, -i128::from(problem.candidates[victim.candidate].bytes));
    }
    let mut kept = 0;
    let each = problem.moments.iter().zip(change).map(|(moment, change)| {
        kept += change;
        u64::try_from(i128::from(moment.live) + kept).unwrap_or(0)
    });
    each.max().unwrap_or(0)
}
