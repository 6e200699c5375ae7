//! Which request of one step is which of another.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, Token};
use rustc_hash::FxHashMap;

use crate::gapped;
use crate::sequence::Sequence;

/// One by one is as good as any way that pairs so many times as many equal requests.
const NEARLY: f64 = 0.7;

/// Equal requests guide the way if they are this share of the shorter round.
const MOSTLY: f64 = 0.5;

/// Pairs the requests of `round` with those of `reference`, both ranges of the sequence: for each request of the
/// round, its partner's place within the reference. Partners come in the same order in both.
///
/// Requests of equal site and size are paired first (a longest common subsequence, or nearly); between those, requests of
/// equal site; between those, runs of the same length on the same streams, one by one (without call stacks, a request of
/// another size has another site). Rounds of the same length are paired one by one altogether if that pairs about as many
/// equal requests. Where little is equal, as in two shapes of a program, few gaps must part the partners ([`gapped`]).
pub fn align(sequence: &Sequence, round: &Range<u32>, reference: &Range<u32>) -> Vec<Option<u32>> {
    // Most of two rounds is the same at both ends.
    let equal = |(a, b): &(u32, u32)| sequence.exact[*a as usize] == sequence.exact[*b as usize];
    let before = round.clone().zip(reference.clone()).take_while(equal).count() as u32;
    let (ours, theirs) = (round.start + before..round.end, reference.start + before..reference.end);
    let after = ours.clone().rev().zip(theirs.clone().rev()).take_while(equal).count() as u32;
    let (ours, theirs) = (ours.start..ours.end - after, theirs.start..theirs.end - after);
    let shorter = ours.len().min(theirs.len()) as f64;
    let (mut middle, equal) = by_equals(sequence, &ours, &theirs);
    if (equal as f64) < MOSTLY * shorter
        && let Some(partner) = gapped::pair(sequence, &ours, &theirs)
    {
        middle = partner;
    }
    let end = reference.len() as u32;
    let middle = middle.into_iter().map(|partner| partner.map(|partner| before + partner));
    (0..before).map(Some).chain(middle).chain((end - after..end).map(Some)).collect()
}

/// The partners by equal requests, and how many of those there are.
fn by_equals(sequence: &Sequence, round: &Range<u32>, reference: &Range<u32>) -> (Vec<Option<u32>>, usize) {
    let mut partner = vec![None; round.len()];
    let gaps = match_by(&sequence.exact, round, reference, &mut partner, (0, 0));
    let equal = partner.iter().flatten().count();
    if one_by_one(sequence, round, reference).is_some_and(|n| n as f64 >= NEARLY * equal as f64) {
        return ((0..round.len() as u32).map(Some).collect(), equal);
    }
    for (ours, theirs) in gaps {
        let part = round.start + ours.start..round.start + ours.end;
        let against = reference.start + theirs.start..reference.start + theirs.end;
        let (base, offset) = (ours.start, theirs.start);
        let rest = match_by(&sequence.site, &part, &against, &mut partner, (base, offset));
        for (ours, theirs) in rest {
            if ours.len() != theirs.len() {
                continue;
            }
            let stream = |start: u32, at: u32| sequence.stream[(start + at) as usize];
            for (our, their) in ours.zip(theirs) {
                if stream(round.start, our) == stream(reference.start, their) {
                    partner[our as usize] = Some(their);
                }
            }
        }
    }
    (partner, equal)
}

/// How many requests of two rounds are equal, one by one, if the rounds are of the same length and streams.
fn one_by_one(sequence: &Sequence, round: &Range<u32>, reference: &Range<u32>) -> Option<usize> {
    let streams = |range: &Range<u32>| &sequence.stream[range.start as usize..range.end as usize];
    let exact = |range: &Range<u32>| &sequence.exact[range.start as usize..range.end as usize];
    let equal = exact(round).iter().zip(exact(reference)).filter(|(a, b)| a == b).count();
    (streams(round) == streams(reference)).then_some(equal)
}

/// Pairs equal tokens of two ranges; `base` is where the ranges begin within the round and within the reference.
/// Returns what is left over between the pairs, as places within the round and the reference.
fn match_by(
    tokens: &[u32],
    ours: &Range<u32>,
    theirs: &Range<u32>,
    partner: &mut [Option<u32>],
    base: (u32, u32),
) -> Vec<(Range<u32>, Range<u32>)> {
    // The diff wants small numbers.
    let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
    let mut number = |range: &Range<u32>| -> Vec<Token> {
        let tokens = &tokens[range.start as usize..range.end as usize];
        let mut token = |token: u32| {
            let next = numbers.len() as u32;
            Token(*numbers.entry(token).or_insert(next))
        };
        tokens.iter().map(|&t| token(t)).collect()
    };
    let (before, after) = (number(theirs), number(ours));
    let mut diff = Diff::default();
    diff.compute_with(Algorithm::Myers, &before, &after, numbers.len() as u32);
    let mut gaps = Vec::new();
    let (mut their, mut our) = (0, 0);
    let mut pair_until = |their: &mut u32, our: &mut u32, end: u32| {
        while *our < end {
            partner[(base.0 + *our) as usize] = Some(base.1 + *their);
            *our += 1;
            *their += 1;
        }
    };
    for hunk in diff.hunks() {
        pair_until(&mut their, &mut our, hunk.after.start);
        gaps.push((
            base.0 + hunk.after.start..base.0 + hunk.after.end,
            base.1 + hunk.before.start..base.1 + hunk.before.end,
        ));
        (their, our) = (hunk.before.end, hunk.after.end);
    }
    pair_until(&mut their, &mut our, after.len() as u32);
    gaps.retain(|(ours, theirs)| !ours.is_empty() && !theirs.is_empty());
    gaps
}
