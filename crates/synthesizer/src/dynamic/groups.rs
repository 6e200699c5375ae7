//! Which dynamic requests belong together.

use std::collections::BTreeMap;
use std::ops::Range;

use stalloc_plan::SectionKind;

use super::Headroom;
use crate::align::align;
use crate::chance::likely_steps;
use crate::lifetimes::{Death, Nature, Natures};
use crate::parts::Program;
use crate::sequence::Sequence;

/// A request joins one of so many groups begun before it, if any.
const LOOK_BACK: usize = 24;

/// At most so many runs of a part are compared.
const MAX_RUNS: usize = 64;

/// Dynamic requests of a part that live about together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Stream.
    pub stream: u32,
    /// From the first allocation to the last release, on the part's clock; beyond its period, in what follows.
    pub lifetime: Range<u32>,
    /// Entries of the part that belong to it.
    pub entries: Vec<u32>,
    /// Requests of the trace that belong to it and have their place in its home.
    pub requests: Vec<u32>,
    /// Those that outlive the next round: no home is kept for them.
    pub lasting: Vec<u32>,
    /// Each of its entries was there in every run, and there were several.
    pub always: bool,
    /// Bytes in each run, all members together.
    per_run: Vec<u64>,
    /// Bytes to keep for it; 0: none.
    pub home: u64,
}

impl Group {
    /// Most bytes in a run.
    pub fn most(&self) -> u64 {
        self.per_run.iter().copied().max().unwrap_or(0)
    }

    /// Bytes in a run.
    fn cost(lifetime: &Range<u32>, bytes: u64) -> u128 {
        u128::from(lifetime.end - lifetime.start) * u128::from(bytes)
    }

    fn with(&self, other: &Group) -> (Range<u32>, u64) {
        let lifetime = self.lifetime.start.min(other.lifetime.start)..self.lifetime.end.max(other.lifetime.end);
        let bytes = self.per_run.iter().zip(&other.per_run).map(|(a, b)| a.saturating_add(*b)).max();
        (lifetime, bytes.unwrap_or(0))
    }

    fn absorb(&mut self, other: Group) {
        self.lifetime = self.with(&other).0;
        self.per_run.iter_mut().zip(other.per_run).for_each(|(a, b)| *a = a.saturating_add(b));
        self.entries.extend(other.entries);
        self.requests.extend(other.requests);
        self.lasting.extend(other.lasting);
        self.always &= other.always;
    }

    /// Whether nothing of it has a home: what is laid beside it in a home would wait for it for ever.
    fn lasts(&self) -> bool {
        self.requests.is_empty() && !self.lasting.is_empty()
    }
}

/// The dynamic requests of a part, in groups. O(requests x runs).
pub fn gather(
    sequence: &Sequence,
    program: &Program,
    natures: &Natures,
    part: usize,
    headroom: Headroom,
) -> Vec<Group> {
    let singles = singles(sequence, program, natures, part);
    let mut groups: Vec<Group> = Vec::new();
    for single in singles {
        if single.lasts() {
            groups.push(single);
            continue;
        }
        // Joining pays if one home for both takes no more memory and time than two.
        let recent = groups.len().saturating_sub(LOOK_BACK);
        let own = Group::cost(&single.lifetime, single.most());
        let mut best: Option<(u128, usize)> = None;
        let may_join = |group: &Group| group.stream == single.stream && !group.lasts();
        for (i, group) in groups.iter().enumerate().skip(recent).filter(|(_, group)| may_join(group)) {
            let apart = own + Group::cost(&group.lifetime, group.most());
            let (lifetime, bytes) = group.with(&single);
            let together = Group::cost(&lifetime, bytes);
            if together <= apart && best.is_none_or(|(saved, _)| apart - together > saved) {
                best = Some((apart - together, i));
            }
        }
        match best {
            Some((_, i)) => groups[i].absorb(single),
            None => groups.push(single),
        }
    }
    let runs = groups.first().map_or(0, |group| group.per_run.len());
    let total: Vec<u64> =
        (0..runs).map(|run| groups.iter().map(|group| group.per_run[run]).fold(0, u64::saturating_add)).collect();
    for group in &mut groups {
        group.home = headroom.room(&group.per_run, &total);
    }
    groups
}

/// The runs that are compared: whole ones, the last if there are many.
fn runs(program: &Program, part: usize) -> Vec<usize> {
    let whole = program.parts[part].rounds.iter().copied().filter(|&round| program.rounds[round].whole);
    let mut runs: Vec<usize> = whole.collect();
    runs.drain(..runs.len().saturating_sub(MAX_RUNS));
    runs
}

/// The sizes that a part's entries had in what resembles it: for a part that runs once, in the runs of the steps that it
/// resembles, and for steps, in a first step: they tell how much it may vary. `None` where an entry has no partner there.
fn borrowed_runs(sequence: &Sequence, program: &Program, part: usize) -> Vec<Vec<Option<u64>>> {
    let own = &program.parts[part];
    let mut borrowed = Vec::new();
    let likes = match own.kind {
        SectionKind::Once => likely_steps(sequence, program, part),
        SectionKind::Repeating => first_steps(sequence, program, part),
        SectionKind::Prologue => Vec::new(),
    };
    for like in likes {
        let partner = align(sequence, &own.reference, &program.parts[like].reference);
        for round in runs(program, like) {
            let round = &program.rounds[round];
            let mut of_entry = vec![None; program.parts[like].reference.len()];
            for (request, entry) in round.requests.clone().zip(&round.entry) {
                if let Some(entry) = entry {
                    of_entry[*entry as usize] = Some(sequence.size[request as usize]);
                }
            }
            borrowed.push(partner.iter().map(|partner| of_entry[(*partner)? as usize]).collect());
        }
    }
    borrowed
}

/// The parts that run once and resemble a step. The longest batch of a recording may have been its first.
fn first_steps(sequence: &Sequence, program: &Program, part: usize) -> Vec<usize> {
    let once = |&index: &usize| program.parts[index].kind == SectionKind::Once;
    let resembles = |&index: &usize| likely_steps(sequence, program, index).contains(&part);
    (0..program.parts.len()).filter(once).filter(resembles).collect()
}

/// A group for every dynamic entry, by time. Requests that are no entry, such as those of a loop that went round more
/// often, have none: nothing tells the runtime which they are.
fn singles(sequence: &Sequence, program: &Program, natures: &Natures, part: usize) -> Vec<Group> {
    let runs = runs(program, part);
    let borrowed = borrowed_runs(sequence, program, part);
    let own = &program.parts[part];
    let period = own.reference.len() as u32;
    let mut by_entry: BTreeMap<(u32, u32), Group> = BTreeMap::new();
    let new = |stream, lifetime| Group {
        stream,
        lifetime,
        entries: Vec::new(),
        requests: Vec::new(),
        lasting: Vec::new(),
        always: false,
        per_run: vec![0; runs.len() + borrowed.len()],
        home: 0,
    };
    // Every dynamic entry has a group, whether or not any run that is compared has it.
    for (entry, nature) in natures.of[part].iter().enumerate() {
        if *nature == Nature::Dynamic {
            let stream = sequence.stream[own.reference.start as usize + entry];
            let mut group = new(stream, entry as u32..entry as u32 + 1);
            group.entries.push(entry as u32);
            by_entry.insert((entry as u32, stream), group);
        }
    }
    let mut came = vec![0; period as usize];
    for (run, &round) in runs.iter().enumerate() {
        let requests = program.rounds[round].requests.clone();
        for (request, entry) in requests.zip(&program.rounds[round].entry) {
            let Some(entry) = entry.filter(|&entry| natures.of[part][entry as usize] == Nature::Dynamic) else {
                continue;
            };
            came[entry as usize] += 1;
            let stream = sequence.stream[request as usize];
            let upper = match natures.death(sequence, program, round, request) {
                Death::Own(at) => at,
                Death::Later { round: later, at } if later == round + 1 => period.saturating_add(at),
                // What outlives the next round has no place in a step, but the runtime has to know it when it comes.
                Death::Later { .. } | Death::Never => {
                    let group = by_entry.entry((entry, stream)).or_insert_with(|| new(stream, entry..entry + 1));
                    group.lasting.push(request);
                    continue;
                }
            };
            let lifetime = entry..upper.max(entry + 1);
            let group = by_entry.entry((entry, stream)).or_insert_with(|| new(stream, lifetime.clone()));
            group.lifetime.start = group.lifetime.start.min(lifetime.start);
            group.lifetime.end = group.lifetime.end.max(lifetime.end);
            group.requests.push(request);
            group.per_run[run] = group.per_run[run].saturating_add(sequence.size[request as usize]);
        }
    }
    for (run, sizes) in borrowed.iter().enumerate() {
        for group in by_entry.values_mut().filter(|group| !group.lasts()) {
            // Where an entry has no partner, its own size.
            let size =
                |&entry: &u32| sizes[entry as usize].unwrap_or(sequence.size[(own.reference.start + entry) as usize]);
            let bytes = group.entries.iter().map(size).fold(0, u64::saturating_add);
            group.per_run[runs.len() + run] = bytes;
        }
    }
    let mut singles: Vec<Group> = by_entry.into_values().collect();
    // What runs once was seen once, but the steps that it resembles tell what may not come.
    let witnesses: &[Vec<Option<u64>>] = if own.kind == SectionKind::Once { &borrowed } else { &[] };
    let always = |entry: &u32| {
        let entry = *entry as usize;
        let came = came[entry] == runs.len() && witnesses.iter().all(|sizes| sizes[entry].is_some());
        came && runs.len() + witnesses.len() > 1
    };
    singles.iter_mut().for_each(|group| group.always = group.entries.iter().all(always));
    singles.sort_by_key(|group| (group.lifetime.start, group.lifetime.end));
    singles
}
