//! Which rounds are runs of the same part of the program.
//!
//! Rounds that ask for about the same things at the same sites are runs of one *part*. Several shapes of the same
//! program (sequence lengths in buckets) are parts of their own where each was seen more than once; sizes that hardly
//! ever come back make one part, whose requests are dynamic where they differ.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_plan::SectionKind;

use crate::align::align;
use crate::rounds::{Rounds, Witness};
use crate::sequence::{NEVER, Sequence};

/// Rounds with this much in common, by site, are runs of the same program.
const SAME_PROGRAM: f64 = 0.6;
/// Rounds with this much in common, by site and size, are runs of it in the same shape.
const SAME_SHAPE: f64 = 0.9;
/// More shapes than this of one program are planned as one part.
const MAX_SHAPES: usize = 16;
/// Shapes are planned one by one if there are, on the average, so many runs of each.
const RUNS_OF_A_SHAPE: usize = 3;
/// A last round with less than this share of the requests of its part was cut off.
const WHOLE: f64 = 0.98;

/// One pairing is as good as another with this share of its pairs.
const AS_WELL: f64 = 0.9;

/// Number of what is no run of any program.
const NO_PROGRAM: usize = usize::MAX;

/// Name of a first step that differs from all others.
const FIRST_STEP: &str = "first step";

/// A run of a part.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its requests.
    pub requests: Range<u32>,
    /// Its part.
    pub part: usize,
    /// Whether it ran to its end.
    pub whole: bool,
    /// For each of its requests, its entry in the part.
    pub entry: Vec<Option<u32>>,
}

/// A part of the program.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is.
    pub kind: SectionKind,
    /// Its name, for people.
    pub name: String,
    /// Parts with the same number are the same program, in different shapes.
    pub program: usize,
    /// Its runs, indices of rounds, ascending.
    pub rounds: Vec<usize>,
    /// The requests of the run that stands for all, in order: its entries.
    pub reference: Range<u32>,
}

/// The program behind a trace.
#[derive(Clone, Debug)]
pub struct Program {
    /// Who said where steps begin.
    pub witness: Witness,
    /// Every round in order, the prologue (if there is one) first.
    pub rounds: Vec<Round>,
    /// Its parts, in the order in which the trace met them.
    pub parts: Vec<Part>,
}

impl Program {
    /// The part of a request and its entry there, if it has one. O(log n).
    pub fn entry_of(&self, request: u32) -> Option<(usize, u32)> {
        let round = self.rounds.get(self.rounds.partition_point(|round| round.requests.end <= request))?;
        let at = request.checked_sub(round.requests.start)?;
        Some((round.part, (*round.entry.get(at as usize)?)?))
    }

    /// Whether a round is a step (of any kind), rather than what comes before, between or after steps.
    pub fn is_step(&self, round: &Round) -> bool {
        let part = &self.parts[round.part];
        part.kind == SectionKind::Repeating || part.name == FIRST_STEP
    }
}

/// Sorts rounds into parts. O(rounds x parts x requests of a round).
pub fn sort(sequence: &Sequence, rounds: &Rounds) -> Program {
    let end = sequence.len() as u32;
    let mut spans: Vec<Range<u32>> = Vec::new();
    for (i, &start) in rounds.starts.iter().enumerate() {
        let next = rounds.starts.get(i + 1).copied().unwrap_or(end);
        spans.push(start..next);
    }
    spans.retain(|span| !span.is_empty());
    let first = spans.first().map_or(end, |span| span.start);
    let programs = cluster(&sequence.site, &spans, SAME_PROGRAM);
    let groups = group(sequence, &spans, &programs);
    let mut builder =
        Builder { sequence, program: Program { witness: rounds.witness, rounds: Vec::new(), parts: Vec::new() } };
    if first > 0 || spans.is_empty() {
        builder.once(0..first, SectionKind::Prologue, NO_PROGRAM, if spans.is_empty() { "trace" } else { "prologue" });
    }
    builder.rounds(&spans, &groups, &programs);
    builder.program
}

/// How often each token comes in a range.
fn bag(tokens: &[u32], range: &Range<u32>) -> FxHashMap<u32, u32> {
    let mut bag = FxHashMap::default();
    for &token in &tokens[range.start as usize..range.end as usize] {
        *bag.entry(token).or_insert(0) += 1;
    }
    bag
}

/// How many requests two bags have in common.
fn common(a: &FxHashMap<u32, u32>, b: &FxHashMap<u32, u32>) -> u32 {
    a.iter().map(|(token, &count)| count.min(b.get(token).copied().unwrap_or(0))).sum()
}

fn likeness(a: &FxHashMap<u32, u32>, b: &FxHashMap<u32, u32>) -> f64 {
    let (size_a, size_b): (u32, u32) = (a.values().sum(), b.values().sum());
    let common = common(a, b);
    f64::from(common) / f64::from((size_a + size_b - common).max(1))
}

/// The share of a stretch of requests whose sites another one has as well.
pub fn contained(sequence: &Sequence, stretch: &Range<u32>, other: &Range<u32>) -> f64 {
    let common = common(&bag(&sequence.site, stretch), &bag(&sequence.site, other));
    f64::from(common) / stretch.len().max(1) as f64
}

/// Numbers the rounds so that runs of one part have the same number.
fn group(sequence: &Sequence, spans: &[Range<u32>], programs: &[usize]) -> Vec<usize> {
    let shapes = cluster(&sequence.exact, spans, SAME_SHAPE);
    let count = |numbers: &[usize], number| numbers.iter().filter(|&&n| n == number).count();
    let mut groups = programs.to_vec();
    let mut next = spans.len();
    for program in 0..spans.len() {
        let members: Vec<usize> = (0..spans.len()).filter(|&i| programs[i] == program).collect();
        let mut seen: Vec<usize> = members.iter().map(|&i| shapes[i]).collect();
        seen.sort_unstable();
        seen.dedup();
        let again: Vec<usize> = seen.into_iter().filter(|&shape| count(&shapes, shape) > 1).collect();
        let covered: usize = members.iter().filter(|&&i| again.contains(&shapes[i])).count();
        // Where a shape was seen once, or each hardly more often, there will be others: then all of them share one plan, in
        // which whatever differs is dynamic.
        let known = covered == members.len() && again.len() * RUNS_OF_A_SHAPE <= members.len();
        if again.len() < 2 || again.len() > MAX_SHAPES || !known {
            continue;
        }
        for shape in again {
            for &i in members.iter().filter(|&&i| shapes[i] == shape) {
                groups[i] = next;
            }
            next += 1;
        }
    }
    groups
}

/// Clusters rounds: each joins the first earlier one that it is like enough, or stands alone. A last round that is
/// contained in an earlier one was cut off.
fn cluster(tokens: &[u32], spans: &[Range<u32>], enough: f64) -> Vec<usize> {
    let mut leaders: Vec<(usize, FxHashMap<u32, u32>)> = Vec::new();
    let mut numbers = Vec::with_capacity(spans.len());
    for (i, span) in spans.iter().enumerate() {
        let own = bag(tokens, span);
        let best = leaders
            .iter()
            .map(|(leader, other)| {
                let contained = f64::from(common(&own, other)) / span.len().max(1) as f64;
                let cut = i + 1 == spans.len() && contained >= enough.max(0.8);
                let like = likeness(&own, other);
                (if cut { like.max(enough) } else { like }, *leader)
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((like, leader)) if like >= enough => numbers.push(leader),
            _ => {
                numbers.push(i);
                leaders.push((i, own));
            }
        }
    }
    numbers
}

struct Builder<'a> {
    sequence: &'a Sequence,
    program: Program,
}

impl Builder<'_> {
    /// A part that runs once.
    fn once(&mut self, requests: Range<u32>, kind: SectionKind, program: usize, name: &str) {
        let part = self.program.parts.len();
        let round = self.program.rounds.len();
        let reference = requests.clone();
        let (name, rounds) = (name.to_owned(), vec![round]);
        self.program.parts.push(Part { kind, name, program, rounds, reference });
        let entry = (0..requests.len() as u32).map(Some).collect();
        self.program.rounds.push(Round { requests, part, whole: true, entry });
    }

    fn rounds(&mut self, spans: &[Range<u32>], groups: &[usize], programs: &[usize]) {
        let mut part_of: FxHashMap<usize, usize> = FxHashMap::default();
        for (i, span) in spans.iter().enumerate() {
            let members: Vec<usize> = (0..spans.len()).filter(|&j| groups[j] == groups[i]).collect();
            let first = i == members[0];
            if members.len() == 1 {
                let name = match i {
                    0 => FIRST_STEP.to_owned(),
                    _ if i + 1 == spans.len() => "after the last step".to_owned(),
                    _ => format!("round {i}, seen once"),
                };
                self.once(span.clone(), SectionKind::Once, programs[i], &name);
                continue;
            }
            let others: Vec<&Range<u32>> = members[1..].iter().map(|&j| &spans[j]).collect();
            if first && i == 0 && self.begins_for_good(span, others[0]) {
                self.once(span.clone(), SectionKind::Once, programs[i], FIRST_STEP);
                continue;
            }
            let part = *part_of.entry(groups[i]).or_insert_with(|| {
                let from = usize::from(!first);
                let reference = typical(spans, &members[from..]);
                let number = self.program.parts.iter().filter(|part| part.kind == SectionKind::Repeating).count();
                let name = if number == 0 { "step".to_owned() } else { format!("step, kind {}", number + 1) };
                let (kind, program) = (SectionKind::Repeating, programs[i]);
                let part = Part { kind, name, program, rounds: Vec::new(), reference };
                self.program.parts.push(part);
                self.program.parts.len() - 1
            });
            self.run(span, part, i + 1 == spans.len());
        }
    }

    /// Whether a first step makes what the second does not make again and what outlives them both, such as optimizer
    /// states.
    fn begins_for_good(&self, first: &Range<u32>, second: &Range<u32>) -> bool {
        let partner = align(self.sequence, first, second);
        let stays = |i: u32| {
            let dies = self.sequence.dies[i as usize];
            dies == NEVER || dies > second.end
        };
        first.clone().zip(partner).any(|(i, partner)| stays(i) && partner.is_none_or(|p| !stays(second.start + p)))
    }

    /// The partners of a round that is shorter than its part, if it is as well paired with the beginning of the part alone:
    /// it was cut off there. A request that has its like much later would be taken for that one.
    fn align_with_beginning(
        &self,
        span: &Range<u32>,
        reference: &Range<u32>,
        entry: &[Option<u32>],
    ) -> Option<Vec<Option<u32>>> {
        let until = span.len() as u32 + span.len() as u32 / 8;
        let beginning = reference.start..(reference.start + until).min(reference.end);
        let partner = (beginning.end < reference.end).then(|| align(self.sequence, span, &beginning))?;
        let pairs = |partner: &[Option<u32>]| partner.iter().flatten().count() as f64;
        (pairs(&partner) >= AS_WELL * pairs(entry)).then_some(partner)
    }

    /// A run of a repeating part; the last one may have been cut off, or be followed by what is no step.
    fn run(&mut self, span: &Range<u32>, part: usize, last: bool) {
        let reference = self.program.parts[part].reference.clone();
        let mut entry = align(self.sequence, span, &reference);
        if last && let Some(beginning) = self.align_with_beginning(span, &reference, &entry) {
            entry = beginning;
        }
        let reached = entry.iter().flatten().last().map_or(0, |&entry| entry + 1);
        let whole = !last || f64::from(reached) >= WHOLE * reference.len() as f64;
        let own = entry.iter().rposition(Option::is_some).map_or(0, |at| at + 1) as u32;
        let mut requests = span.clone();
        if last && reached as usize == reference.len() && own < span.len() as u32 {
            requests.end = span.start + own;
            entry.truncate(own as usize);
        }
        let round = self.program.rounds.len();
        self.program.parts[part].rounds.push(round);
        let rest = requests.end..span.end;
        self.program.rounds.push(Round { requests, part, whole, entry });
        if !rest.is_empty() {
            self.once(rest, SectionKind::Once, NO_PROGRAM, "after the last step");
        }
    }
}

/// The run that stands for all: of the middle length, a later one if there are several; not a last one that may have
/// been cut off, if there is another.
fn typical(spans: &[Range<u32>], members: &[usize]) -> Range<u32> {
    let mut order: Vec<usize> = members.iter().copied().filter(|&i| i + 1 < spans.len()).collect();
    if order.is_empty() {
        order = members.to_vec();
    }
    order.sort_by_key(|&i| (spans[i].len(), i));
    spans[order[order.len() / 2]].clone()
}
