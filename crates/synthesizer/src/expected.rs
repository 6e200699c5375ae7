//! How much will be alive in steps that were not recorded.
//!
//! The largest batch of a recording may have been its first, when the states that a first step makes were not there yet.
//! When it comes again, they are: more is alive then than ever was in the recording.

use stalloc_plan::SectionKind;

use crate::align::align;
use crate::chance::likely_steps;
use crate::parts::Program;
use crate::sequence::Sequence;

/// Most bytes alive at once in a step that does what a first step did, after it: what the first step had and steps have as
/// well, with all that it made for good alive from its beginning. 0 if no first step resembles the steps.
/// O(n log n).
pub fn peak_of_first_shape(sequence: &Sequence, program: &Program) -> u64 {
    let once = |&round: &usize| program.parts[program.rounds[round].part].kind == SectionKind::Once;
    (0..program.rounds.len()).filter(once).map(|round| peak_again(sequence, program, round)).max().unwrap_or(0)
}

fn peak_again(sequence: &Sequence, program: &Program, round: usize) -> u64 {
    let (part, requests) = (program.rounds[round].part, program.rounds[round].requests.clone());
    let mut comes_again = vec![false; requests.len()];
    for like in likely_steps(sequence, program, part) {
        let partner = align(sequence, &requests, &program.parts[like].reference);
        comes_again.iter_mut().zip(partner).for_each(|(again, partner)| *again |= partner.is_some());
    }
    let Some(next) = program.rounds.get(round + 1).filter(|_| comes_again.contains(&true)) else { return 0 };
    let stays = |request: u32| sequence.dies[request as usize] > next.requests.end;
    let made: u64 =
        requests.clone().filter(|&r| stays(r)).map(|r| sequence.size[r as usize]).fold(0, u64::saturating_add);
    let counts = |request: u32| {
        request < requests.start || (comes_again[(request - requests.start) as usize] && !stays(request))
    };
    sequence.most_alive(requests.clone(), counts).saturating_add(made)
}
