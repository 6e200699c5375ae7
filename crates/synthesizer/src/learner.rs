//! What is known of a program, learned from the sequence of its requests: the same for a recording and for a running job.
//!
//! The sequence is cut into *steps* by boundaries that the caller knows. Two steps are of one *kind* if and only if they ask
//! for the same keys in the same order; a kind that came twice repeats. A step has a *clock*: the number of its requests so
//! far. What is freed after entry `j - 1` was asked for and before entry `j` is has its end at clock `j`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::limits::Limits;
use crate::tuning::{exact_share, first_look, max_ends, max_passed, recent_steps, rest_per_draft, warm_up};

/// What a request asks for: two requests of one key are the same to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Bytes, rounded up as PyTorch counts.
    pub size: u64,
    /// Stream, counted in the order in which the program first allocates on it.
    pub stream: u32,
}

/// Kind of a step that is not kept: too long, or forgotten.
pub(crate) const FORGOTTEN: u32 = u32::MAX;

/// Steps that ask for the same keys in the same order. Its number is that of the first of them.
#[derive(Clone, Debug)]
pub(crate) struct StepPattern {
    /// What they ask for, in order.
    pub keys: Vec<RequestKey>,
    /// For each entry, the latest end seen in its own step, on the step's clock; 0: none was seen.
    pub own: Vec<u32>,
    /// The ends that were seen in later steps, by entry.
    pub later: FxHashMap<u32, Later>,
    /// How many steps of it came.
    pub runs: u32,
    last: u32,
    hash: u64,
}

/// Where requests of one entry were freed in later steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later {
    /// Each way in which it was seen, with its latest end.
    pub ends: Vec<LaterEnd>,
    /// Some lived for longer than anybody plans ahead.
    pub long: bool,
}

/// An end in a later step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaterEnd {
    /// The kinds of the steps between, which it lived through.
    pub passed: Vec<u32>,
    /// The kind of the step in which it was freed.
    pub kind: u32,
    /// When, on that step's clock.
    pub at: u32,
}

/// A step that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Its kind.
    pub kind: u32,
    /// Its requests.
    pub requests: u32,
    /// The recording ends within it.
    pub cut_off: bool,
}

/// A live request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRequest {
    /// The step that made it.
    pub step: u32,
    /// The kind of that step once it is complete, before that [`FORGOTTEN`].
    pub kind: u32,
    /// Its entry.
    pub entry: u32,
    /// How many steps of its kind had come before.
    pub run: u32,
    /// Bytes.
    pub size: u64,
}

/// The step that is not complete yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenStep {
    pub keys: Vec<RequestKey>,
    pub ids: Vec<u64>,
    pub own: Vec<u32>,
    /// Requests of earlier steps that were freed in this one, and when.
    freed: Vec<(LiveRequest, u32)>,
    /// It became too long to be kept: how many requests it had before it was cleared.
    pub lost: u32,
}

/// What is looked for, and when, as long as nobody marks steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unmarked {
    /// With so many requests in the open step, it is looked through; 0: never, since steps are marked.
    pub look: usize,
    /// Kinds that the open step may be of: it began as they do.
    pub following: Vec<u32>,
    /// Kinds that repeat, by the last key and the hash of their first requests.
    pub beginnings: FxHashMap<RequestKey, Vec<(usize, u64)>>,
}

impl Unmarked {
    /// Looks for the first time at so many requests.
    pub fn new(look: usize) -> Self {
        Unmarked { look, ..Unmarked::default() }
    }

    /// Whether nobody has marked a step yet.
    pub fn is_on(&self) -> bool {
        self.look > 0
    }
}

/// Learns from allocations, frees and the beginnings of steps. Each takes O(1) amortised, a step's end O(its requests).
/// Memory is bounded whatever the program does, save for what is alive at once (40 bytes for each live request).
#[derive(Clone, Debug)]
pub struct Learner {
    pub(crate) limits: Limits,
    pub(crate) kinds: BTreeMap<u32, StepPattern>,
    pub(crate) by_hash: FxHashMap<u64, u32>,
    /// The last steps.
    pub(crate) ran: VecDeque<Ran>,
    /// How many steps are complete; the prologue, if there is one, is number 0.
    pub(crate) steps: u32,
    /// The number of the first step after the prologue, if it has begun.
    pub(crate) first: Option<u32>,
    pub(crate) live: FxHashMap<u64, LiveRequest>,
    pub(crate) open: OpenStep,
    pub(crate) boundary: bool,
    /// Where steps begin as long as nobody says so.
    pub(crate) unmarked: Unmarked,
    /// Requests in all kinds.
    kept: usize,
    live_bytes: u64,
    pub(crate) peak: u64,
    /// Kinds of the last draft, its requests, and those that came since.
    drafted: (Vec<u32>, u64, u64),
}

impl Default for Learner {
    /// One that knows nothing yet, for a running job.
    fn default() -> Self {
        Learner { unmarked: Unmarked::new(first_look()), ..Learner::with(Limits::RUNNING) }
    }
}

pub(crate) fn hash(keys: &[RequestKey]) -> u64 {
    let mut hasher = FxHasher::default();
    keys.hash(&mut hasher);
    hasher.finish()
}

impl Learner {
    pub(crate) fn with(limits: Limits) -> Self {
        Learner {
            limits,
            kinds: BTreeMap::new(),
            by_hash: FxHashMap::default(),
            ran: VecDeque::new(),
            steps: 0,
            first: None,
            live: FxHashMap::default(),
            open: OpenStep::default(),
            boundary: false,
            unmarked: Unmarked::default(),
            kept: 0,
            live_bytes: 0,
            peak: 0,
            drafted: (Vec::new(), 0, 0),
        }
    }

    /// The next request: what the caller calls it as long as it lives, its bytes, its stream.
    pub fn alloc(&mut self, id: u64, size: u64, stream: u32) {
        if std::mem::take(&mut self.boundary) {
            self.close();
            self.first.get_or_insert(self.steps);
        }
        if self.live.contains_key(&id) {
            self.free(id);
        }
        let size = stalloc_trace::rounded(size);
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.peak = self.peak.max(self.live_bytes);
        let entry = self.open.keys.len() as u32;
        self.live.insert(id, LiveRequest { step: self.steps, kind: FORGOTTEN, entry, run: 0, size });
        if self.open.keys.len() >= self.limits.step {
            self.open = OpenStep { lost: self.open.lost.saturating_add(entry), ..OpenStep::default() };
        }
        self.open.keys.push(RequestKey { size, stream });
        self.open.ids.push(id);
        self.open.own.push(0);
        if self.unmarked.is_on() {
            self.find_boundary();
        }
    }

    /// A request is gone: its memory can be used again. One that is not known is ignored.
    pub fn free(&mut self, id: u64) {
        let Some(block) = self.live.remove(&id) else { return };
        self.live_bytes = self.live_bytes.saturating_sub(block.size);
        let clock = self.open.keys.len() as u32;
        if block.step < self.steps {
            self.open.freed.push((block, clock));
            if self.open.lost > 0 {
                self.open.freed.clear();
            }
        } else if self.open.lost == 0 {
            self.open.own[block.entry as usize] = clock;
        }
    }

    /// A step begins with the next request. What is freed before that still belongs to the step before.
    pub fn step_begin(&mut self) {
        if self.unmarked.is_on() {
            self.trust_marks();
        }
        self.boundary = true;
    }

    /// How many steps are complete, the prologue counted.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// What it keeps: requests in all kinds of steps and in the open one, and the number of kinds.
    pub fn kept(&self) -> (usize, usize) {
        (self.kept + self.open.keys.len(), self.kinds.len())
    }

    /// Completes the open step.
    pub(crate) fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        if !open.keys.is_empty() {
            self.complete(open, None);
        }
    }

    /// Ends the sequence: the last step may have been cut off, or go on after a step's end.
    pub(crate) fn finish(&mut self) {
        let open = std::mem::take(&mut self.open);
        if open.keys.is_empty() || open.lost > 0 || self.first.is_none() || self.kind_of(&open.keys).1.is_some() {
            self.open = open;
            return self.close();
        }
        let steps = || self.kinds.range(self.first.unwrap_or(0)..);
        let cut_off = steps().filter(|(_, kind)| kind.keys.starts_with(&open.keys)).max_by_key(|(_, kind)| kind.runs);
        let whole =
            steps().filter(|(_, kind)| open.keys.starts_with(&kind.keys)).max_by_key(|(_, kind)| kind.keys.len());
        if let Some((&kind, _)) = cut_off {
            self.complete(open, Some(kind));
        } else if let Some((&kind, known)) = whole {
            let made = LiveRequest { step: self.steps, kind, entry: 0, run: known.runs, size: 0 };
            let (step, rest) = open.split(known.keys.len(), made);
            self.complete(step, None);
            self.complete(rest, None);
        } else {
            self.complete(open, None);
        }
        if let Some(last) = self.ran.back_mut() {
            last.cut_off = true;
        }
    }

    /// The kind of step that makes these requests, if it is known, and their hash.
    pub(crate) fn kind_of(&self, keys: &[RequestKey]) -> (u64, Option<u32>) {
        let hash = hash(keys);
        let named = self.by_hash.get(&hash).copied();
        (hash, named.filter(|kind| self.kinds.get(kind).is_some_and(|kind| kind.keys == keys)))
    }

    /// Takes a step into account; `cut_off_from`: the kind of which it is the beginning.
    pub(crate) fn complete(&mut self, open: OpenStep, cut_off_from: Option<u32>) {
        let (step, requests) = (self.steps, open.lost.saturating_add(open.keys.len() as u32));
        let prologue = self.first.is_none();
        let (hash, mut known) = if prologue { (0, None) } else { self.kind_of(&open.keys) };
        known = known.or(cut_off_from);
        let id = if open.lost > 0 { FORGOTTEN } else { known.unwrap_or(step) };
        self.drafted.2 += u64::from(requests);
        if open.lost == 0 {
            if known.is_none() {
                self.kept += open.keys.len();
                let own = vec![0; open.keys.len()];
                let kind = StepPattern { keys: open.keys, own, later: FxHashMap::default(), runs: 0, last: step, hash };
                self.kinds.insert(id, kind);
                if !prologue {
                    self.by_hash.insert(hash, id);
                }
            }
            if let Some(kind) = self.kinds.get_mut(&id) {
                for (entry, (&request, &end)) in open.ids.iter().zip(&open.own).enumerate() {
                    kind.own[entry] = kind.own[entry].max(end);
                    if end == 0
                        && let Some(block) = self.live.get_mut(&request)
                    {
                        *block = LiveRequest { step, kind: id, entry: entry as u32, run: kind.runs, size: block.size };
                    }
                }
                let whole = cut_off_from.is_none() || f64::from(requests) >= exact_share() * kind.keys.len() as f64;
                kind.runs += u32::from(whole);
                kind.last = step;
            }
        }
        for &(block, at) in &open.freed {
            self.freed_later(block, id, at);
        }
        self.ran.push_back(Ran { kind: id, requests, cut_off: cut_off_from.is_some() });
        if self.ran.len() > self.limits.steps {
            self.ran.pop_front();
        }
        self.steps += 1;
        if self.unmarked.is_on() {
            self.note_beginning(id);
        }
        self.forget(id);
    }

    /// A request of an earlier step was freed in the one that is being completed, of kind `of`.
    fn freed_later(&mut self, block: LiveRequest, of: u32, at: u32) {
        let between = (self.steps - block.step - 1) as usize;
        let Some(kind) = self.kinds.get_mut(&block.kind) else { return };
        let later = kind.later.entry(block.entry).or_default();
        if between > max_passed() || between > self.ran.len() || later.ends.len() > max_ends() {
            later.long = true;
            return;
        }
        let passed = self.ran.range(self.ran.len() - between..).map(|ran| ran.kind);
        match later.ends.iter_mut().find(|end| end.kind == of && end.passed.iter().copied().eq(passed.clone())) {
            Some(end) => end.at = end.at.max(at),
            None => later.ends.push(LaterEnd { passed: passed.collect(), kind: of, at }),
        }
    }

    /// Forgets kinds until what is kept is within the limits: what came once first, and of those what came longest ago.
    fn forget(&mut self, newest: u32) {
        while self.kept > self.limits.requests || self.kinds.len() > self.limits.kinds {
            let first = self.first.unwrap_or(0);
            let droppable = self.kinds.iter().filter(|&(&id, _)| id != newest);
            let Some((&id, _)) = droppable.min_by_key(|&(&id, kind)| (kind.runs > 1, id <= first, kind.last)) else {
                return;
            };
            if let Some(kind) = self.kinds.remove(&id) {
                self.kept -= kind.keys.len();
                self.by_hash.remove(&kind.hash);
            }
        }
    }

    /// Forgets all steps. What lives is of none that is known.
    pub(crate) fn forget_steps(&mut self) {
        self.kinds.clear();
        self.by_hash.clear();
        self.ran.clear();
        self.kept = 0;
        self.drafted = (Vec::new(), 0, 0);
    }

    /// The share of requests that belong to kinds that came twice or more, of the last `steps` steps: `(of such kinds,
    /// all)`. The prologue, the first steps that warm up and a last one that was cut off do not count.
    pub(crate) fn exact(&self, steps: usize) -> (u64, u64) {
        let oldest = self.steps as usize - self.ran.len();
        let first = self.first.map_or(usize::MAX, |first| first as usize);
        let (mut exact, mut all, mut warm) = (0, 0, false);
        for (at, ran) in self.ran.iter().enumerate().skip(self.ran.len().saturating_sub(steps)) {
            let repeats = self.kinds.get(&ran.kind).is_some_and(|kind| kind.runs > 1);
            warm |= repeats || oldest + at >= first.saturating_add(warm_up());
            if !ran.cut_off && warm {
                all += u64::from(ran.requests);
                exact += if repeats { u64::from(ran.requests) } else { 0 };
            }
        }
        (exact, all)
    }

    /// Whether the steps repeat exactly enough for offsets to be worth their while.
    pub(crate) fn repeats(&self, steps: usize) -> bool {
        let (exact, all) = self.exact(steps);
        exact > 0 && exact as f64 >= exact_share() * all as f64
    }

    /// Whether a kind is one that comes now: it repeats, and has not been gone for longer than it had been coming. Whatever comes
    /// at an even pace comes, however rarely; a phase that is over goes.
    pub(crate) fn comes(&self, id: u32) -> bool {
        let gone = |kind: &StepPattern| self.steps.saturating_sub(kind.last + 1);
        self.kinds.get(&id).is_some_and(|kind| kind.runs > 1 && gone(kind) <= kind.last - id)
    }

    /// Whether a new draft is worth making: the last steps repeat, one of their kinds is not in the last draft, and enough
    /// came since that one for planning to stay cheap. Asked after each step. O(steps looked at).
    pub fn is_draft_due(&self) -> bool {
        let (known, planned, since) = &self.drafted;
        let mut recent = self.ran.iter().rev().take(recent_steps());
        let new = |ran: &Ran| !known.contains(&ran.kind) && self.comes(ran.kind);
        *since >= planned * rest_per_draft() && recent.any(new) && self.repeats(recent_steps())
    }

    /// Whether the last steps repeat exactly enough for the offsets of a plan to be worth their while. O(steps looked at).
    pub fn repeats_now(&self) -> bool {
        self.repeats(recent_steps())
    }

    /// What was drafted is not followed: once enough came again, a draft of the same steps is due; each refusal doubles how much.
    pub fn forget_draft(&mut self, is_refused: bool) {
        self.drafted = (Vec::new(), self.drafted.1 << u32::from(is_refused), 0);
    }

    pub(crate) fn note_draft(&mut self, kinds: Vec<u32>, requests: u64) {
        let waited = if self.drafted.0.is_empty() { self.drafted.1.min(requests * 64) } else { 0 };
        self.drafted = (kinds, requests.max(waited), 0);
    }
}

impl OpenStep {
    /// The first `n` requests, and the rest as a step of its own; `made` says what the first ones are.
    pub fn split(mut self, n: usize, made: LiveRequest) -> (OpenStep, OpenStep) {
        let clock = n as u32;
        let mut rest = OpenStep { keys: self.keys.split_off(n), ids: self.ids.split_off(n), ..OpenStep::default() };
        rest.own = self.own.split_off(n).into_iter().map(|end| end.saturating_sub(clock)).collect();
        (self.freed, rest.freed) = self.freed.into_iter().partition(|&(_, at)| at <= clock);
        for (entry, end) in self.own.iter_mut().enumerate().filter(|(_, end)| **end > clock) {
            rest.freed.push((LiveRequest { entry: entry as u32, ..made }, std::mem::take(end)));
        }
        rest.freed.iter_mut().for_each(|(_, at)| *at -= clock);
        (self, rest)
    }
}

#[cfg(test)]
mod tests;
