//! Which entries of a part are static, and how long each of those lives whatever the run.

use rustc_hash::FxHashMap;
use stalloc_plan::SectionKind;

use crate::absent::left_out;
use crate::align::align;
use crate::parts::{Part, Program, Round};
use crate::sequence::{NEVER, Sequence};

/// An entry is static if at least this share of the whole runs of its part have it, in the same size.
const NEARLY_ALL: f64 = 0.9;

/// A step that keeps something of so many runs before is in the plan that often; what is kept longer is dynamic.
pub const MAX_COPIES: u32 = 4;

/// When an entry's memory is free again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In its own run, on its part's clock.
    Own(u32),
    /// In a later round.
    Later(Vec<Later>),
    /// Never.
    Never,
}

/// A place in a later round where an entry is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Later {
    /// The part that releases it.
    pub part: usize,
    /// How many turns later; only for entries of which several live at once.
    pub turns: Option<u32>,
    /// When, on that part's clock.
    pub at: u32,
}

/// What an entry turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Same size every time.
    Static(End),
    /// Anything else.
    Dynamic,
}

/// The entries of all parts.
pub struct Natures {
    /// For each part, for each of its entries.
    pub of: Vec<Vec<Nature>>,
    /// How many copies of each repeating part the plan needs.
    pub copies: u32,
    /// For each part, whether it takes turns: after a run of it, the next copies come.
    pub turning: Vec<bool>,
    /// For each round, for each of its requests and its end: the first entry at or after it.
    clocks: Vec<Vec<u32>>,
    /// For each part, for each of its entries: the site and size that most of its requests have.
    common: Vec<Vec<Option<u32>>>,
}

impl Natures {
    /// Where a request of a round dies.
    pub fn death(&self, sequence: &Sequence, program: &Program, round: usize, request: u32) -> Death {
        death(sequence, program, &self.clocks, round, request)
    }

    /// Whether a request is what its entry is in most runs.
    pub fn is_like(&self, sequence: &Sequence, part: usize, entry: u32, request: u32) -> bool {
        self.common[part][entry as usize] == Some(sequence.exact[request as usize])
    }
}

/// A request that was an entry.
struct Sighting {
    round: usize,
    request: u32,
    /// It is of another part, which stands in for a second run.
    stand_in: bool,
}

/// For a part that was seen whole only once: the once-run step before it, as if it were a run of the part.
struct StandIn {
    round: usize,
    entry: Vec<Option<u32>>,
    clock: Vec<u32>,
}

/// Looks at every entry of every part. O(n log n).
pub fn classify(sequence: &Sequence, program: &Program) -> Natures {
    let clocks: Vec<Vec<u32>> = program.rounds.iter().map(|round| clock(round, &program.parts[round.part])).collect();
    let shapes = same_place_in_other_shapes(sequence, program);
    let parts = program.parts.len();
    let mut judge = Judge { sequence, program, clocks, shapes, stand_in: None, turning: vec![false; parts] };
    // Which parts take turns with copies of themselves decides what is released where: judged again until it stands.
    loop {
        let mut copies = 1;
        let mut turning = judge.turning.clone();
        let (mut of, mut common) = (Vec::with_capacity(parts), Vec::with_capacity(parts));
        for (part, turning) in turning.iter_mut().enumerate() {
            judge.stand_in = stand_in(sequence, program, part);
            let sightings = judge.sightings(part);
            common.push(sightings.iter().map(|s| judge.common_size(s)).collect());
            let judged =
                sightings.iter().zip(left_out(program, &program.parts[part])).map(|(s, left_out)| match left_out {
                    true => (Nature::Dynamic, 0),
                    false => judge.entry(part, s),
                });
            of.push(
                judged
                    .map(|(nature, alive)| {
                        copies = copies.max(alive + 1);
                        *turning |= alive > 0;
                        nature
                    })
                    .collect(),
            );
        }
        if turning == judge.turning {
            return Natures { of, copies, turning, clocks: judge.clocks, common };
        }
        judge.turning = turning;
    }
}

/// For each request of a round and its end: the first entry at or after it that the round has.
fn clock(round: &Round, part: &Part) -> Vec<u32> {
    let period = part.reference.len() as u32;
    let reached = round.entry.iter().flatten().last().map_or(0, |entry| entry + 1);
    let mut next = if round.whole { period } else { reached };
    let mut clock = vec![next; round.requests.len() + 1];
    for (at, entry) in round.entry.iter().enumerate().rev() {
        next = entry.unwrap_or(next);
        clock[at] = next;
    }
    clock
}

fn stand_in(sequence: &Sequence, program: &Program, part: usize) -> Option<StandIn> {
    let this = &program.parts[part];
    let whole = this.rounds.iter().filter(|&&round| program.rounds[round].whole).count();
    if this.kind != SectionKind::Repeating || whole > 1 {
        return None;
    }
    let earlier = program.rounds.iter().enumerate().take(*this.rounds.first()?);
    let (round, run) = earlier.rev().find(|(_, run)| program.parts[run.part].kind == SectionKind::Once)?;
    let entry = align(sequence, &run.requests, &this.reference);
    let as_run = Round { entry: entry.clone(), ..run.clone() };
    Some(StandIn { round, entry, clock: clock(&as_run, this) })
}

struct Judge<'a> {
    sequence: &'a Sequence,
    program: &'a Program,
    clocks: Vec<Vec<u32>>,
    /// For two repeating parts that are shapes of one program: for each time on the first one's clock, the same place
    /// on the second one's.
    shapes: FxHashMap<(usize, usize), Vec<u32>>,
    stand_in: Option<StandIn>,
    /// Parts that take turns with copies of themselves, as far as is known.
    turning: Vec<bool>,
}

fn same_place_in_other_shapes(sequence: &Sequence, program: &Program) -> FxHashMap<(usize, usize), Vec<u32>> {
    let repeating = |&part: &usize| program.parts[part].kind == SectionKind::Repeating;
    let parts: Vec<usize> = (0..program.parts.len()).filter(repeating).collect();
    let mut places = FxHashMap::default();
    for &from in &parts {
        for &to in &parts {
            let (one, other) = (&program.parts[from], &program.parts[to]);
            if from != to && one.program == other.program {
                let as_run = Round {
                    requests: one.reference.clone(),
                    part: to,
                    whole: true,
                    entry: align(sequence, &one.reference, &other.reference),
                };
                places.insert((from, to), clock(&as_run, other));
            }
        }
    }
    places
}

/// Where a request died.
pub enum Death {
    /// In its own round, at this time of its part's clock.
    Own(u32),
    /// In a later round.
    Later {
        /// Which one.
        round: usize,
        /// When, on the clock of that round's part.
        at: u32,
    },
    /// Not within the trace.
    Never,
}

fn death(sequence: &Sequence, program: &Program, clocks: &[Vec<u32>], round: usize, request: u32) -> Death {
    let dies = sequence.dies[request as usize];
    if dies == NEVER {
        return Death::Never;
    }
    let rounds = &program.rounds;
    let of = if dies <= rounds[round].requests.end { round } else { rounds.partition_point(|r| r.requests.end < dies) };
    let Some(run) = rounds.get(of) else { return Death::Never };
    let at = clocks[of][(dies - run.requests.start) as usize];
    if of == round { Death::Own(at) } else { Death::Later { round: of, at } }
}

impl Judge<'_> {
    /// For each entry of a part, the requests that were it.
    fn sightings(&self, part: usize) -> Vec<Vec<Sighting>> {
        let period = self.program.parts[part].reference.len();
        let mut sightings: Vec<Vec<Sighting>> = (0..period).map(|_| Vec::new()).collect();
        let mut add = |round: usize, entries: &[Option<u32>], stand_in: bool| {
            for (request, entry) in self.program.rounds[round].requests.clone().zip(entries) {
                if let Some(entry) = entry {
                    sightings[*entry as usize].push(Sighting { round, request, stand_in });
                }
            }
        };
        if let Some(stand_in) = &self.stand_in {
            add(stand_in.round, &stand_in.entry, true);
        }
        for &round in &self.program.parts[part].rounds {
            add(round, &self.program.rounds[round].entry, false);
        }
        sightings
    }

    fn death(&self, sighting: &Sighting) -> Death {
        let &Sighting { round, request, stand_in } = sighting;
        match (death(self.sequence, self.program, &self.clocks, round, request), &self.stand_in) {
            (Death::Own(_), Some(as_run)) if stand_in => {
                let from = self.program.rounds[round].requests.start;
                Death::Own(as_run.clock[(self.sequence.dies[request as usize] - from) as usize])
            }
            (death, _) => death,
        }
    }

    /// The nature of an entry, and how many older ones live when it is allocated.
    fn entry(&self, part: usize, sightings: &[Sighting]) -> (Nature, u32) {
        let this = &self.program.parts[part];
        if this.kind != SectionKind::Repeating {
            let end = sightings.first().map_or(End::Never, |s| self.single(s));
            return (Nature::Static(end), 0);
        }
        let Some(common) = self.common_size(sightings) else { return (Nature::Dynamic, 0) };
        let same: Vec<&Sighting> =
            sightings.iter().filter(|s| self.sequence.exact[s.request as usize] == common).collect();
        let whole = |s: &&&Sighting| !s.stand_in && self.program.rounds[s.round].whole;
        let runs = this.rounds.iter().filter(|&&round| self.program.rounds[round].whole).count();
        let with = same.iter().filter(whole).count();
        if (with as f64) < NEARLY_ALL * runs as f64 {
            return (Nature::Dynamic, 0);
        }
        // A first step that asked for another size proves an entry dynamic when there is no other witness.
        if sightings.iter().any(|s| s.stand_in) && same.len() < sightings.len() {
            return (Nature::Dynamic, 0);
        }
        // One that is never freed although there are later ones is a leak, and no step has a place for those.
        let earlier = &same[..same.len().saturating_sub(1)];
        if earlier.iter().any(|s| self.sequence.dies[s.request as usize] == NEVER) {
            return (Nature::Dynamic, 0);
        }
        // How many later ones are there before this one is gone?
        let alive = same.iter().enumerate().map(|(i, s)| {
            let dies = self.sequence.dies[s.request as usize];
            same[i + 1..].iter().take_while(|later| later.request < dies).count() as u32
        });
        let alive = alive.max().unwrap_or(0);
        if alive >= MAX_COPIES {
            return (Nature::Dynamic, 0);
        }
        let end = self.several(part, &same, alive);
        // Released by another shape only after its own like was made, as far as is known: then it may be so here too.
        let own_place = same.last().and_then(|s| self.entry_of(s)).unwrap_or(u32::MAX);
        let after_its_like = |release: &Later| release.part == part && release.at > own_place;
        match end {
            Some(End::Later(later)) if alive == 0 && later.iter().any(after_its_like) => {
                self.several(part, &same, 1).map_or((Nature::Dynamic, 0), |end| (Nature::Static(end), 1))
            }
            Some(end) => (Nature::Static(end), alive),
            None => (Nature::Dynamic, 0),
        }
    }

    /// The site and size that most sightings have.
    fn common_size(&self, sightings: &[Sighting]) -> Option<u32> {
        let mut exact: Vec<u32> = sightings.iter().map(|s| self.sequence.exact[s.request as usize]).collect();
        exact.sort_unstable();
        exact.chunk_by(|a, b| a == b).max_by_key(|chunk| chunk.len()).map(|chunk| chunk[0])
    }

    /// The end of an entry that was seen once.
    fn single(&self, sighting: &Sighting) -> End {
        match self.death(sighting) {
            Death::Own(at) => End::Own(at),
            Death::Never => End::Never,
            Death::Later { round, at } => {
                let part = self.program.rounds[round].part;
                // Where it would be released by a part that it also lives through, nothing is promised.
                let passed = (sighting.round + 1..round).any(|r| self.program.rounds[r].part == part);
                if passed { End::Never } else { End::Later(vec![Later { part, turns: None, at }]) }
            }
        }
    }

    /// The latest end of an entry over all its sightings; `None` if they cannot be brought together.
    fn several(&self, part: usize, sightings: &[&Sighting], alive: u32) -> Option<End> {
        let mut own = None;
        let mut later: Vec<Later> = Vec::new();
        let mut passed: Vec<usize> = Vec::new();
        let mut open = None;
        for sighting in sightings {
            match self.death(sighting) {
                Death::Own(at) => own = own.max(Some(at)),
                // It may yet die as the others do.
                Death::Never => open = Some(sighting.round),
                Death::Later { round, at } => {
                    let between = sighting.round + 1..round;
                    passed.extend(between.clone().map(|r| self.program.rounds[r].part));
                    let turns = between.filter(|&r| self.turning[self.program.rounds[r].part]).count();
                    let turns = (alive > 0).then_some(turns as u32 + u32::from(self.turning[part]));
                    later.push(Later { part: self.program.rounds[round].part, turns, at });
                }
            }
        }
        if let Some(round) = open {
            let reached = |round: usize| self.clocks[round].last().copied().unwrap_or(0);
            let last = self.program.rounds.len() - 1;
            let part_of_last = self.program.rounds[last].part;
            if round == last {
                own = own.map(|own| own.max(reached(last)));
            } else if !(round + 1 == last && later.iter().all(|l| l.part != part_of_last || l.at >= reached(last))) {
                // It outlived the place where the others were released.
                return None;
            }
        }
        if later.is_empty() && own.is_some() {
            return own.map(End::Own);
        }
        if alive == 0 {
            later.retain(|release| !passed.contains(&release.part));
        }
        self.carry_over_to_other_shapes(&mut later, if alive == 0 { &passed } else { &[] });
        if alive == 0 && !later.iter().any(|release| release.part == part) {
            // Nothing says when it is released, but when it is made again, it has been.
            if later.is_empty() && open.is_none() && own.is_none() && passed.is_empty() {
                return None;
            }
            let at = sightings.last().and_then(|s| self.entry_of(s))?;
            later.push(Later { part, turns: None, at });
        }
        later.sort_unstable();
        // The latest for each part and number of runs.
        later.dedup_by(|next, kept| {
            let same = next.part == kept.part && next.turns == kept.turns;
            if same {
                kept.at = kept.at.max(next.at);
            }
            same
        });
        Some(End::Later(later))
    }

    /// What one shape of a program releases at some place, the others release at the same place, unless it was seen to
    /// live through them.
    fn carry_over_to_other_shapes(&self, later: &mut Vec<Later>, passed: &[usize]) {
        let mut more: Vec<Later> = Vec::new();
        for release in later.iter() {
            for (&(from, to), places) in self.shapes.iter().filter(|((from, _), _)| *from == release.part) {
                let known = from == to || passed.contains(&to) || later.iter().any(|other| other.part == to);
                if let Some(&at) = places.get(release.at as usize).filter(|_| !known) {
                    more.push(Later { part: to, at, ..*release });
                }
            }
        }
        later.append(&mut more);
    }

    fn entry_of(&self, sighting: &Sighting) -> Option<u32> {
        let round = &self.program.rounds[sighting.round];
        round.entry.get((sighting.request - round.requests.start) as usize).copied().flatten()
    }
}
