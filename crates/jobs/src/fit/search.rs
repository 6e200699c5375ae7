//! Which value of a range to try next.
//!
//! More is assumed to need more: the search keeps a value that fits and a larger one that does not, and narrows the gap. What a job
//! needs grows in pieces of straight lines (first the optimizer's step is the peak, then the activations), each steeper than
//! the one before. So the line between a value that fits and one that does not meets the capacity too early, and the line
//! through two that do not fit meets it too late, or exactly where both are on the last piece: that is where to look. Half of the gap
//! where lines do not help. A value with which the command does not run says nothing about memory: the gap is narrowed to it first, and
//! then values beyond it are tried, a power of two away from the one that fits, up to a number of refusals.

use std::collections::BTreeMap;

/// After so many trials for one allocator the gap is halved every other time: the lines did not help, as where fragmentation jumps.
const LINES: usize = 6;

/// After so many the gap is always halved.
const HALVES: usize = 12;

/// How many of the smallest values may be refused before the whole range is; and how many above one that fits before the search ends
/// with an open answer.
const REFUSALS: u64 = 16;

/// What a trial said about one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// It ran.
    Ran {
        /// Whether it fits.
        fits: bool,
        /// Bytes left, negative where bytes are missing.
        left: Option<i64>,
    },
    /// The command did not run with this value.
    Refused,
}

/// What the search of one line does next: places to try, or the largest that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The place of the largest value that fits is known: none, or this one.
    Found(Option<u64>),
    /// The largest value that was seen to fit: with those between it and one that does not fit the command did not run, or too many of them
    /// would have to be tried.
    Open(Option<u64>),
    /// Try this one, and where a core is free the others: they will probably be asked for.
    Try(u64, Vec<u64>),
}

/// Says what to do after the trials that are `known` of a range with `count` values, by their place. O(trials).
pub fn next(count: u64, known: &BTreeMap<u64, Point>) -> Next {
    let last = count.saturating_sub(1);
    // The smallest value that the command takes: 0, 1, 3, 7...
    let mut first = 0;
    loop {
        match known.get(&first) {
            None => return Next::Try(first, if first < last { vec![last] } else { Vec::new() }),
            Some(Point::Ran { fits: false, .. }) => return Next::Found(None),
            Some(Point::Ran { fits: true, .. }) => break,
            Some(Point::Refused) if first >= last => return Next::Found(None),
            Some(Point::Refused) if first >= REFUSALS => return Next::Open(None),
            Some(Point::Refused) => first = (2 * first + 1).min(last),
        }
    }
    let fits = |place: &u64| matches!(known.get(place), Some(Point::Ran { fits: true, .. }));
    match known.get(&last) {
        None => return Next::Try(last, Vec::new()),
        Some(_) if fits(&last) => return Next::Found(Some(last)),
        Some(_) => {}
    }
    let low = known.keys().copied().filter(fits).max().unwrap_or(first);
    let high = known.keys().copied().find(|&place| place > low && !fits(&place)).unwrap_or(last);
    if high - low <= 1 {
        return beyond_refusals(count, known, low);
    }
    let guess = guess(known, low, high).clamp(low + 1, high - 1);
    // The middle's neighbour would say nothing more.
    let follows_a_line = (3..HALVES).contains(&known.len()) && guess + 1 < high;
    Next::Try(guess, if follows_a_line { vec![guess + 1] } else { Vec::new() })
}

/// What to do where the value above the largest that fits is refused, or does not fit.
fn beyond_refusals(count: u64, known: &BTreeMap<u64, Point>, low: u64) -> Next {
    let limit = too_large(known, low).unwrap_or(count);
    let powers = (0..u64::BITS).rev().filter_map(|power| low.checked_add(1 << power)).filter(|place| *place < limit);
    let is_open = |place: &u64| !known.contains_key(place);
    match powers.chain(low + 1..limit).find(is_open) {
        None => Next::Found(Some(low)),
        Some(place) => {
            let refused = known.range(low + 1..limit).filter(|(_, point)| **point == Point::Refused).count() as u64;
            if refused < REFUSALS { Next::Try(place, Vec::new()) } else { Next::Open(Some(low)) }
        }
    }
}

/// The smallest place above one that fits that is known not to fit for want of memory.
pub fn too_large(known: &BTreeMap<u64, Point>, low: u64) -> Option<u64> {
    let is_too_large = |point: &Point| matches!(point, Point::Ran { fits: false, .. });
    known.range(low + 1..).find(|(_, point)| is_too_large(point)).map(|(place, _)| *place)
}

/// Where the largest that fits probably is, between one that fits and one that does not.
fn guess(known: &BTreeMap<u64, Point>, low: u64, high: u64) -> u64 {
    let half = low + (high - low) / 2;
    // The third trial of all is the middle: only then is there a line to follow.
    if known.len() < 3 || known.len() >= HALVES || (known.len() > LINES && known.len().is_multiple_of(2)) {
        return half;
    }
    let left = |place: u64| match known.get(&place) {
        Some(Point::Ran { left: Some(left), .. }) => Some(*left as f64),
        _ => None,
    };
    let (Some(at_low), Some(at_high)) = (left(low), left(high)) else { return half };
    if at_low < 0.0 || at_high >= 0.0 {
        return half;
    }
    let too_early = low as f64 + at_low / (at_low - at_high) * (high - low) as f64;
    // The farthest that does not fit: neighbours are too near for a line.
    let farther = known.keys().rev().find_map(|&place| Some((place, left(place)?))).filter(|&(place, _)| place > high);
    let too_late = farther.and_then(|(place, at_place)| {
        let slope = (at_high - at_place) / (place - high) as f64;
        (slope > 0.0).then(|| high as f64 + at_high / slope)
    });
    match too_late {
        Some(too_late) => too_late.max(too_early) as u64,
        None => too_early as u64,
    }
}

#[cfg(test)]
mod tests;
