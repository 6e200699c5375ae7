//! Boundaries from repetition alone.
//!
//! A *class* is a request's key, or the keys of a few requests in a row. A class that occurs once in every step is
//! an *anchor*: its occurrences cut the trace into rounds. An anchor is as good as the requests that its rounds
//! explain: those whose class is in most rounds and which are gone by the end of the round after (a layer or a
//! micro-batch repeats as well, but not the optimizer's requests, and activations outlive it). The best rounds are moved
//! to where they repeat exactly and least is alive.

use std::cmp::Reverse;
use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use super::{NEVER, Sequence};
use crate::tuning::{enough, exact_share, max_trials, much, same};

/// Lengths of the runs of requests that are tried as classes.
const RUNS: [usize; 2] = [1, 8];

/// Shares of requests that are explained (by requests alone and by requests in a row, added up).
#[derive(Clone, Copy, Default)]
struct Explained {
    /// Of all.
    all: f64,
    /// Of those in the second half of the trace.
    late: f64,
}

impl Explained {
    fn plus(self, other: Explained) -> Explained {
        Explained { all: self.all + other.all, late: self.late + other.late }
    }

    /// Whether rounds that explain this much are better than more numerous ones that explain `other`. What they
    /// explain in addition must be there late in the trace as well: in the beginning, what happens only once has its
    /// like by chance in rounds that are long enough.
    fn is_worth_fewer_rounds_than(self, other: Explained) -> bool {
        self.all > other.all + much() || (self.all > other.all + same() && self.late > other.late + same())
    }
}

/// Where steps begin, if anything repeats. `known` boundaries (they may lie anywhere in a step) are moved to where least is
/// alive; without them, the best ones are looked for.
pub fn find(sequence: &Sequence, known: Option<Vec<u32>>) -> Option<Vec<u32>> {
    if let Some(known) = known {
        let rounds: Vec<u32> = known.into_iter().map(|start| start.saturating_sub(sequence.initial)).collect();
        return Some(boundary(sequence, &rounds));
    }
    let first = sequence.initial as usize;
    let runs: Vec<Vec<u32>> = RUNS.iter().map(|&run| classes(&sequence.key[first..], run)).collect();
    let mut anchors: Vec<Vec<u32>> = Vec::new();
    for class in &runs {
        anchors.extend(occurrences(class));
    }
    // Alone, a request says little; in a row, one that varies hides its neighbours: both count.
    let mut weigh = [Weigh::new(sequence, &runs[0]), Weigh::new(sequence, &runs[1])];
    let mut best: Option<(Explained, &Vec<u32>)> = None;
    for anchor in trials(&anchors).into_iter().rev() {
        let explained =
            weigh.iter_mut().map(|weigh| weigh.explained(anchor)).fold(Explained::default(), Explained::plus);
        let better = best.is_none_or(|(most, with)| match with.len() == anchor.len() {
            true => explained.all > most.all,
            false => explained.is_worth_fewer_rounds_than(most),
        });
        if better {
            best = Some((explained, anchor));
        }
    }
    let (_, rounds) = best?;
    (weigh[0].explained(rounds).all >= enough()).then(|| boundary(sequence, rounds))
}

/// The class of each run of `run` requests, by its first; runs that the end cuts off have classes of their own.
fn classes(key: &[u32], run: usize) -> Vec<u32> {
    let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
    let mut class = Vec::with_capacity(key.len());
    for i in 0..key.len() {
        let mut hasher = FxHasher::default();
        for &key in &key[i..(i + run).min(key.len())] {
            hasher.write_u32(key);
        }
        hasher.write_usize(run.min(key.len() - i));
        let next = numbers.len() as u32;
        class.push(*numbers.entry(hasher.finish()).or_insert(next));
    }
    class
}

/// Where each class that comes at least twice occurs, ascending.
fn occurrences(class: &[u32]) -> Vec<Vec<u32>> {
    let classes = class.iter().max().map_or(0, |&last| last as usize + 1);
    let mut occurrences = vec![Vec::new(); classes];
    for (i, &class) in class.iter().enumerate() {
        occurrences[class as usize].push(i as u32);
    }
    occurrences.retain(|occurrences| occurrences.len() >= 2);
    occurrences
}

/// Two anchors of each number of rounds: the one that comes first, and the one whose shortest round is longest.
fn trials(anchors: &[Vec<u32>]) -> Vec<&Vec<u32>> {
    struct Group<'a> {
        members: usize,
        first: &'a Vec<u32>,
        wide: (&'a Vec<u32>, u32),
    }
    let mut groups: std::collections::BTreeMap<usize, Group<'_>> = std::collections::BTreeMap::new();
    for anchor in anchors {
        let shortest = shortest(anchor);
        let group = groups.entry(anchor.len()).or_insert(Group { members: 0, first: anchor, wide: (anchor, shortest) });
        group.members += 1;
        if anchor[0] < group.first[0] {
            group.first = anchor;
        }
        if shortest > group.wide.1 {
            group.wide = (anchor, shortest);
        }
    }
    // Steps have many anchors: numbers of rounds that few classes share are tried last.
    let mut groups: Vec<Group<'_>> = groups.into_values().collect();
    groups.sort_by_key(|group| (Reverse(group.members), group.first.len()));
    groups.truncate(max_trials() / 2);
    let mut trials: Vec<&Vec<u32>> = groups.iter().flat_map(|group| [group.first, group.wide.0]).collect();
    trials.sort_by_key(|anchor| (anchor.len(), anchor[0]));
    trials.dedup();
    trials
}

/// Length of the shortest round.
fn shortest(anchor: &[u32]) -> u32 {
    anchor.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(0)
}

/// Weighs how much of a trace the rounds of an anchor explain.
struct Weigh<'a> {
    sequence: &'a Sequence,
    class: &'a [u32],
    /// Per class: in how many inner rounds it is, the last round that it was met in, and the first.
    inner: Vec<(u32, u32, u32)>,
}

impl<'a> Weigh<'a> {
    fn new(sequence: &'a Sequence, class: &'a [u32]) -> Self {
        let classes = class.iter().max().map_or(0, |&last| last as usize + 1);
        Weigh { sequence, class, inner: vec![(0, 0, 0); classes] }
    }

    /// The share of requests that an anchor's rounds explain. O(n).
    fn explained(&mut self, anchor: &[u32]) -> Explained {
        self.inner.fill((0, 0, u32::MAX));
        let rounds = anchor.len() as u32;
        // Round 0 comes before the first occurrence, the last after the last: both may be cut off.
        let mut round = 0;
        for (i, &class) in self.class.iter().enumerate() {
            round += u32::from(anchor.get(round as usize) == Some(&(i as u32)));
            let (count, last, first) = &mut self.inner[class as usize];
            if *first == u32::MAX {
                *first = round;
            }
            if *last != round || *count == 0 {
                *last = round;
                *count += u32::from(round > 0 && (rounds == 2 || round < rounds));
            }
        }
        // Three rounds of five; with two rounds, both (the second may be cut off).
        let needed = if rounds <= 3 { 2 } else { ((rounds - 1) * 3).div_ceil(5) };
        let initial = self.sequence.initial;
        // A last round that is longer than all others is more than one round.
        let longest = anchor.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let end = anchor.last().map_or(0, |&last| last.saturating_add(longest + longest / 4)) as usize;
        let half = self.class.len() / 2;
        let (mut explained, mut late) = (0u64, 0u64);
        let mut round = 0;
        for (i, &class) in self.class.iter().enumerate().take(end) {
            round += u32::from(anchor.get(round as usize) == Some(&(i as u32)));
            if self.inner[class as usize].0 < needed {
                continue;
            }
            let dies = self.sequence.dies[i + initial as usize];
            let after_next = anchor.get(round as usize + 1).map_or(NEVER, |&start| start + initial);
            // What is still alive at the end of the trace may die in time; only time can tell.
            let ends = dies <= after_next || (dies == NEVER && round + 1 >= rounds);
            explained += u64::from(ends);
            late += u64::from(ends && i >= half);
        }
        let share = |part: u64, of: usize| part as f64 / of.max(1) as f64;
        Explained { all: share(explained, self.class.len()), late: share(late, self.class.len() - half) }
    }
}

/// Moves all boundaries by the same number of requests, so that most of the rounds between them repeat exactly; of several
/// ways to do so, to where least is alive. As request indices. O(n).
fn boundary(sequence: &Sequence, rounds: &[u32]) -> Vec<u32> {
    let initial = sequence.initial;
    let count = sequence.key.len() as i64 - i64::from(initial);
    let span = rounds.last().zip(rounds.first()).map_or(0, |(last, first)| last - first);
    let typical = span / (rounds.len() as u32 - 1).max(1);
    let crossing = crossing(sequence, typical.saturating_mul(2));
    let hashes = Hashes::new(&sequence.key[initial as usize..]);
    let moved = |by: i64| -> Vec<u32> {
        let moved = rounds.iter().map(|&start| i64::from(start) + by).filter(|start| (0..count).contains(start));
        moved.map(|start| start as u32).collect()
    };
    let ways = (-i64::from(typical)..i64::from(typical)).map(|by| (by, moved(by))).filter(|(_, way)| !way.is_empty());
    let best = ways.min_by_key(|(by, way)| {
        let alive = way.iter().map(|&at| u128::from(crossing[at as usize])).sum::<u128>() / way.len() as u128;
        (Reverse(hashes.repeated(way)), Reverse(way.len()), alive, by.abs())
    });
    best.map_or(moved(0), |(_, way)| way).into_iter().map(|at| at + initial).collect()
}

/// Hashes of all beginnings of a sequence, so that stretches of it can be compared in no time.
struct Hashes {
    /// Of the first so many numbers.
    beginning: Vec<u64>,
    power: Vec<u64>,
}

impl Hashes {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(key: &[u32]) -> Self {
        let (mut beginning, mut power) = (vec![0u64], vec![1u64]);
        let mix = |key: u32| (u64::from(key) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31) | 1;
        for (i, &key) in key.iter().enumerate() {
            beginning.push(beginning[i].wrapping_mul(Self::BASE).wrapping_add(mix(key)));
            power.push(power[i].wrapping_mul(Self::BASE));
        }
        Hashes { beginning, power }
    }

    fn of(&self, start: u32, length: u32) -> u64 {
        let (start, length) = (start as usize, length as usize);
        self.beginning[start + length].wrapping_sub(self.beginning[start].wrapping_mul(self.power[length]))
    }

    /// How many requests lie in rounds that come twice or more; the last round may go on after that, or be cut off.
    /// O(rounds).
    fn repeated(&self, anchor: &[u32]) -> u32 {
        let end = self.beginning.len() as u32 - 1;
        let mut kinds: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        for round in anchor.windows(2) {
            let length = round[1] - round[0];
            *kinds.entry((length, self.of(round[0], length))).or_insert(0) += 1;
        }
        let last = anchor.last().copied().unwrap_or(end);
        let rest = end - last;
        let mut missing = 0;
        let like_last =
            kinds.iter_mut().filter(|((length, hash), _)| *length <= rest && self.of(last, *length) == *hash);
        match like_last.max_by_key(|((length, _), _)| *length) {
            Some((_, count)) => *count += 1,
            None => {
                let whole = |round: &&[u32]| {
                    let length = round[1] - round[0];
                    let is_enough = f64::from(rest) >= exact_share() * f64::from(length);
                    is_enough && length > rest && self.of(round[0], rest) == self.of(last, rest)
                };
                if let Some(round) = anchor.windows(2).find(whole) {
                    let length = round[1] - round[0];
                    *kinds.entry((length, self.of(round[0], length))).or_insert(0) += 1;
                    missing = length - rest;
                }
            }
        }
        let repeated = kinds.iter().filter(|(_, count)| **count > 1);
        repeated.map(|((length, _), count)| length.saturating_mul(*count)).sum::<u32>() - missing
    }
}

/// For each request, the bytes alive just before it that live for less than `limit` requests in all.
fn crossing(sequence: &Sequence, limit: u32) -> Vec<u64> {
    let first = sequence.initial as usize;
    let count = sequence.key.len() - first;
    let mut change = vec![0i128; count + 1];
    for i in first..sequence.key.len() {
        let dies = sequence.dies[i];
        if dies != NEVER && dies - i as u32 <= limit {
            change[i - first + 1] += i128::from(sequence.size[i]);
            change[(dies as usize - first).min(count)] -= i128::from(sequence.size[i]);
        }
    }
    let mut alive = 0i128;
    (0..count)
        .map(|i| {
            alive += change[i];
            u64::try_from(alive).unwrap_or(u64::MAX)
        })
        .collect()
}

#[cfg(test)]
mod tests;
