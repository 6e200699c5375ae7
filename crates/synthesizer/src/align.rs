//! Which request of one step is which of another.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, Token};
use rustc_hash::FxHashMap;

use crate::sequence::Sequence;

/// One by one is as good as any way that pairs so many times as many equal requests.
const NEARLY: f64 = 0.9;

/// Pairs the requests of `round` with those of `reference`, both ranges of the sequence: for each request of the
/// round, its partner's place within the reference. Partners come in the same order in both.
///
/// Requests of equal site and size are paired first (a longest common subsequence, or nearly); between those, requests
/// of equal site; between those, runs of the same length on the same streams, one by one (without call stacks, a
/// request of another size has another site). Rounds of the same length are paired one by one altogether if that pairs
/// about as many equal requests: where most sizes differ, equal ones are equal by chance.
pub fn align(sequence: &Sequence, round: &Range<u32>, reference: &Range<u32>) -> Vec<Option<u32>> {
    let mut partner = vec![None; round.len()];
    let gaps = match_by(&sequence.exact, round, reference, &mut partner, (0, 0));
    let equal = partner.iter().flatten().count();
    if equal < round.len() && one_by_one(sequence, round, reference).is_some_and(|n| n as f64 >= NEARLY * equal as f64)
    {
        return (0..round.len() as u32).map(Some).collect();
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
    partner
}

/// How many requests of two rounds are equal, one by one, if the rounds are of the same length and streams.
fn one_by_one(sequence: &Sequence, round: &Range<u32>, reference: &Range<u32>) -> Option<usize> {
    let part =
        |values: &[u32], range: &Range<u32>| -> Vec<u32> { values[range.start as usize..range.end as usize].into() };
    let same_streams = part(&sequence.stream, round) == part(&sequence.stream, reference);
    let (ours, theirs) = (part(&sequence.exact, round), part(&sequence.exact, reference));
    same_streams.then(|| ours.iter().zip(&theirs).filter(|(a, b)| a == b).count())
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
