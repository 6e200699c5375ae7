//! Call stacks for steps that were recorded without.
//!
//! Call stacks are expensive, so a recorder notes them in the first steps only. A later step asks for the same things at
//! the same places: each of its requests borrows the call stack of its partner in a step that has them.

use std::ops::Range;

use stalloc_trace::{StackId, Trace};

use crate::align::align;
use crate::rounds::Rounds;
use crate::sequence::Sequence;

/// A round with less than this share of call stacks, compared with the round that has most, was recorded without.
const WITHOUT: f64 = 0.1;

/// A round borrows only from one in which it has at least this share of partners.
const ALIKE: f64 = 0.5;

/// So many rounds with call stacks are compared with each one without: the last ones, since the first is a first step.
const LENDERS: usize = 3;

/// The call stack of each request, borrowed where its round has none; `None` if no round borrows any.
/// `by_size` is the trace's sequence without call stacks. O(rounds x requests).
pub fn stacks(trace: &Trace, by_size: &Sequence, rounds: &Rounds) -> Option<Vec<StackId>> {
    let end = by_size.len() as u32;
    let ends = rounds.starts.iter().skip(1).copied().chain([end]);
    let spans: Vec<Range<u32>> = rounds
        .starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(start, end)| start..end)
        .filter(|span| !span.is_empty())
        .collect();
    let share = |span: &Range<u32>| {
        let requests = &trace.requests[span.start as usize..span.end as usize];
        let with = requests.iter().filter(|request| request.stack != StackId::NONE).count();
        with as f64 / span.len() as f64
    };
    let most = spans.iter().map(share).fold(0.0, f64::max);
    let (without, with): (Vec<_>, Vec<_>) = spans.iter().partition(|&span| share(span) < WITHOUT * most);
    if without.is_empty() || with.is_empty() {
        return None;
    }
    let mut stacks: Vec<StackId> = trace.requests.iter().map(|request| request.stack).collect();
    for round in without {
        let lenders = with.iter().rev().take(LENDERS).map(|&lender| (lender, align(by_size, round, lender)));
        let pairs = |partner: &Vec<Option<u32>>| partner.iter().flatten().count();
        let Some((lender, partner)) = lenders.max_by_key(|(_, partner)| pairs(partner)) else { continue };
        if (pairs(&partner) as f64) < ALIKE * round.len() as f64 {
            continue;
        }
        for (request, partner) in round.clone().zip(partner) {
            if let Some(partner) = partner {
                stacks[request as usize] = trace.requests[(lender.start + partner) as usize].stack;
            }
        }
    }
    Some(stacks)
}
