//! Entries that some run left out.
//!
//! A planned request that does not come leaves the runtime waiting for it: what a program may leave out (a workspace that
//! short sequences do not need) is dynamic, even if most runs have it. A run that ended early, or that could not be aligned,
//! proves nothing: the entries around one that is left out have to be there.

use crate::parts::{Part, Program};

/// How far around an entry others are looked for, entries.
const AROUND: usize = 8;

/// For each entry of a part, whether some whole run left it out. O(requests).
pub fn left_out(program: &Program, part: &Part) -> Vec<bool> {
    let mut left_out = vec![false; part.reference.len()];
    for round in part.rounds.iter().map(|&round| &program.rounds[round]).filter(|round| round.whole) {
        let mut there = vec![false; left_out.len()];
        round.entry.iter().flatten().for_each(|&entry| there[entry as usize] = true);
        for (entry, left_out) in left_out.iter_mut().enumerate().filter(|(entry, _)| !there[*entry]) {
            let (before, after) = (entry.saturating_sub(AROUND), (entry + 1 + AROUND).min(there.len()));
            *left_out |= there[before..entry].contains(&true) && there[entry + 1..after].contains(&true);
        }
    }
    left_out
}
