//! The largest value with which a command runs because it catches what it is refused.
//!
//! cuDNN takes its next plan where a workspace does not fit, and a program may do the same. A trial on memory without limit sees
//! nothing of that: so the command is run on the card itself, with values that do not fit.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stalloc_trace::{Event, Trace, site::site};

/// A value with which the command runs all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Its place in the range.
    pub place: u64,
    /// What was refused meanwhile.
    pub refused: Vec<Refused>,
}

/// Requests of one line that were refused, and that the program lived on without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The line that asked for them, or that they are the backward pass of; none where nobody knows.
    pub site: Option<String>,
    /// How many.
    pub count: u64,
    /// Bytes of the largest.
    pub most: u64,
}

/// What the card refused in a recording, by line, the largest first.
pub fn refused(trace: &Trace) -> Vec<Refused> {
    let mut by_site = BTreeMap::new();
    for event in &trace.events {
        let Event::OutOfMemory { size, stack, .. } = event else { continue };
        let (count, most) = by_site.entry(site(trace.stacks.get(*stack), |id| trace.string(id))).or_insert((0, 0));
        (*count, *most) = (*count + 1, (*size).max(*most));
    }
    let mut all: Vec<_> = by_site.into_iter().map(|(site, (count, most))| Refused { site, count, most }).collect();
    all.sort_by_key(|one| Reverse(one.most));
    all
}

/// The largest place from `first` on, of `count`, with which the command `runs`: it says what was refused. More is
/// assumed to need more. O(log count) runs; one where the first fails, as for most commands.
pub fn largest<E>(
    first: u64,
    count: u64,
    mut runs: impl FnMut(u64) -> Result<Option<Vec<Refused>>, E>,
) -> Result<Option<Caught>, E> {
    let (mut found, mut fails, mut step) = (None::<Caught>, count, 1);
    let mut place = first;
    while place < fails {
        match runs(place)? {
            Some(refused) => found = Some(Caught { place, refused }),
            None => fails = place,
        }
        let Some(runs) = found.as_ref().map(|caught| caught.place) else { break };
        if fails - runs <= 1 {
            break;
        }
        place = if fails == count { (runs + step).min(count - 1) } else { runs + (fails - runs) / 2 };
        step *= 2;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn the_largest_that_runs_is_found_and_a_command_that_catches_nothing_is_run_once() {
        for (first, count, most) in
            [(7, 100, 20), (7, 100, 99), (7, 8, 7), (0, 1, 0), (7, 100, 7), (3, 1_000_000, 70_001)]
        {
            let mut tried = Vec::new();
            let found = largest(first, count, |place| {
                tried.push(place);
                Ok::<_, Infallible>((place <= most).then(Vec::new))
            });
            assert_eq!(found, Ok(Some(Caught { place: most, refused: Vec::new() })), "{first} {count} {most}");
            assert!(tried.iter().all(|place| (first..count).contains(place)) && tried.len() <= 40, "{tried:?}");
        }
        let mut runs = 0;
        let found = largest(5, 100, |_| {
            runs += 1;
            Ok::<_, Infallible>(None)
        });
        assert_eq!((found, runs), (Ok(None), 1));
        assert_eq!(largest(5, 5, |_| Ok::<_, Infallible>(Some(Vec::new()))), Ok(None), "nothing is left to try");
        assert_eq!(largest(5, 9, |_| Err("stopped")), Err("stopped"));
    }
}
