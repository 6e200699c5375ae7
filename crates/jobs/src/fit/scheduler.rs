//! Which trial runs when: several at once, the ones that the search needs first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stalloc_common::PrivateFolder;
use stalloc_dryrun_setup::{DryRun, Gpu};
use stalloc_launcher::Rank;

use crate::fit::cache::{TrialCache, TrialKey};
use crate::fit::caught;
use crate::fit::found::{Found, Tried, alike, points};
use crate::fit::ranks::{Class, to_try};
use crate::fit::search::{self, Next, Point};
use crate::fit::trial::{self, Outcome, TrialFailure};
use crate::fit::values::{self, Assignment, Values, Variable};
use crate::fit::{Error, Question};

/// Trials at once that a machine with many cores runs: each takes about 1 GB of host memory.
const MOST_AT_ONCE: usize = 8;

/// Stages of a pipeline that are tried.
const MOST_STAGES: usize = 32;

/// A trial that fails sooner is worth a second one.
const SOON: Duration = Duration::from_secs(60);

/// How often the watcher is told that time passes.
const TICK: Duration = Duration::from_millis(100);

/// One combination of the lists on one GPU, along which a range is searched.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which of the question's GPUs.
    pub gpu: usize,
    /// The values of the lists.
    pub fixed: Assignment,
    /// The searched variable, if there is one: its place among the variables, its first value, how far apart, how many.
    pub range: Option<(usize, i64, i64, u64)>,
    /// Ranks of the job; none for a program that is started as it is.
    pub world_size: Option<u32>,
    /// The levers that are applied to the program; none: it is run as it is, and says nothing of levers.
    pub levers: Option<Vec<String>>,
}

impl Line {
    /// How many values the line has.
    pub fn count(&self) -> u64 {
        self.range.map_or(1, |(.., count)| count)
    }

    /// The value of every variable at a place of the line, in the order of the variables.
    pub fn values(&self, variables: &[Variable], place: u64) -> Assignment {
        let mut values = self.fixed.clone();
        if let Some((at, first, step, _)) = self.range {
            values.insert(at, (variables[at].name.clone(), Variable::at(first, step, place).to_string()));
        }
        values
    }
}

/// The lines of a question.
pub fn lines(question: &Question) -> Result<Vec<Line>, Error> {
    let range = question.variables.iter().enumerate().find_map(|(at, variable)| match variable.values {
        Values::Range { first, step, count } => Some((at, first, step, count)),
        Values::List(_) => None,
    });
    let size = |fixed: &Assignment| match &question.world_size {
        None => Ok(None),
        Some(size) => size.of(fixed).map(Some).ok_or_else(|| Error::WorldSize {
            text: size.to_string(),
            what: format!("is no number of ranks with {}", words(fixed)),
        }),
    };
    let combinations = values::combinations(&question.variables)?;
    let sized = combinations.into_iter().map(|fixed| Ok((size(&fixed)?, fixed))).collect::<Result<Vec<_>, Error>>()?;
    let line = |gpu| {
        sized.iter().map(move |(world_size, fixed)| Line {
            gpu,
            fixed: fixed.clone(),
            range,
            world_size: *world_size,
            levers: None,
        })
    };
    Ok((0..question.gpus.len()).flat_map(line).collect())
}

/// `MB=8 SEQ=4096`.
pub fn words(values: &Assignment) -> String {
    values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Progress that a `fit` reports: time passes, trials of levers begin, a trial is done.
#[derive(Clone, Debug)]
pub enum FitEvent<'a> {
    /// Time passes; so many trials run and so many are done.
    Tick {
        /// How many run.
        running: usize,
        /// How many are done.
        done: usize,
        /// The values of the one that has run longest, and for how long.
        oldest: Option<(&'a Assignment, Duration)>,
    },
    /// Trials of levers begin: how many, what the script needs as it is, and the goal.
    Levers {
        /// Trials to come.
        trials: usize,
        /// Bytes; none where that cannot be found.
        needed: Option<u64>,
        /// Bytes.
        goal: u64,
    },
    /// A trial is done.
    Tried {
        /// The GPU.
        gpu: &'a Gpu,
        /// The values.
        values: &'a Assignment,
        /// The levers that were applied.
        levers: &'a [String],
        /// What it said.
        tried: &'a Tried,
        /// Whether it was known from before.
        is_cached: bool,
    },
}

struct TrialState {
    found: Found,
    running: HashMap<(usize, u64), Instant>,
    error: Option<Error>,
}

struct Scheduler<'a> {
    question: &'a Question,
    stand_ins: &'a [DryRun],
    lines: &'a [Line],
    cache: TrialCache,
    at_once: usize,
    stop: &'a AtomicBool,
    shared: Mutex<TrialState>,
    changed: Condvar,
}

/// Tries what the lines need.
pub fn run(
    question: &Question,
    stand_ins: &[DryRun],
    lines: &[Line],
    watch: &mut dyn FnMut(FitEvent<'_>),
    stop: &AtomicBool,
) -> Result<Found, Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = if question.at_once == 0 { cores.min(MOST_AT_ONCE) } else { question.at_once };
    let work = Scheduler {
        question,
        stand_ins,
        lines,
        cache: TrialCache::new(question.keeps.then(|| PrivateFolder::kept("fit").ok()).flatten()),
        at_once,
        stop,
        shared: Mutex::new(TrialState { found: Found::default(), running: HashMap::new(), error: None }),
        changed: Condvar::new(),
    };
    work.cache.tidy();
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for _ in 0..at_once {
            let (work, sender) = (&work, sender.clone());
            scope.spawn(move || work.work(&sender));
        }
        drop(sender);
        work.watch(&receiver, watch);
    });
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let work = &work;
        scope.spawn(move || {
            (0..lines.len()).for_each(|line| work.look_for_caught(line));
            drop(sender);
        });
        work.watch(&receiver, watch);
    });
    let shared = work.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match shared.error {
        Some(error) => Err(error),
        None => Ok(shared.found),
    }
}

type TrialReport = (usize, u64, Arc<Tried>, bool);

impl Scheduler<'_> {
    fn lock(&self) -> MutexGuard<'_, TrialState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the watcher until the workers are done.
    fn watch(&self, receiver: &Receiver<TrialReport>, watch: &mut dyn FnMut(FitEvent<'_>)) {
        loop {
            match receiver.recv_timeout(TICK) {
                Ok((line, place, tried, is_cached)) => {
                    let values = self.lines[line].values(&self.question.variables, place);
                    let gpu = &self.question.gpus[self.lines[line].gpu];
                    let levers = self.lines[line].levers.as_deref().unwrap_or_default();
                    watch(FitEvent::Tried { gpu, values: &values, levers, tried: &tried, is_cached });
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            let (running, done, oldest) = {
                let shared = self.lock();
                let oldest = shared.running.iter().min_by_key(|(_, since)| **since);
                let oldest = oldest.map(|(&(line, place), since)| (line, place, since.elapsed()));
                (shared.running.len(), shared.found.tried.len(), oldest)
            };
            let oldest =
                oldest.map(|(line, place, time)| (self.lines[line].values(&self.question.variables, place), time));
            let oldest = oldest.as_ref().map(|(values, time)| (values, *time));
            watch(FitEvent::Tick { running, done, oldest });
        }
    }

    /// Takes trials until none is needed.
    fn work(&self, sender: &Sender<TrialReport>) {
        loop {
            let mut shared = self.lock();
            let (line, place) = loop {
                if self.stop.load(Ordering::Relaxed) || shared.error.is_some() {
                    return;
                }
                match self.choose(&shared) {
                    Some(trial) => break trial,
                    None if shared.running.is_empty() => {
                        self.changed.notify_all();
                        return;
                    }
                    None => {
                        let waited = self.changed.wait_timeout(shared, TICK);
                        shared = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                }
            };
            shared.running.insert((line, place), Instant::now());
            let known = shared.found.classes.get(&line).cloned();
            drop(shared);
            let tried = self.trial(line, place, known.as_deref());
            let mut shared = self.lock();
            shared.running.remove(&(line, place));
            match tried {
                Ok(Some((tried, is_cached))) => {
                    if known.is_none() && tried.failure.is_none() {
                        shared.found.classes.insert(line, alike(&tried));
                    }
                    let tried = Arc::new(tried);
                    shared.found.tried.insert((line, place), Arc::clone(&tried));
                    self.share(&mut shared.found, line, place);
                    // The watcher is there until every sender is gone.
                    let _ = sender.send((line, place, tried, is_cached));
                }
                Ok(None) => {}
                Err(error) => shared.error = Some(error),
            }
            self.changed.notify_all();
        }
    }

    /// The trial that is needed most and does not run: first what a search waits for, then what it will probably ask next.
    fn choose(&self, shared: &TrialState) -> Option<(usize, u64)> {
        let mut later = None;
        for (index, line) in self.lines.iter().enumerate() {
            // Which ranks differ is found once; only then is the rest worth starting.
            let is_first = self.ranks(index).len() > 1 && !shared.found.classes.contains_key(&index);
            if is_first && shared.running.keys().any(|(other, _)| *other == index) {
                continue;
            }
            // Whether another GPU's trials do for this one is found once too.
            let is_on = |&(other, _): &(usize, u64)| self.lines[other].gpu == line.gpu;
            let is_ahead = line.gpu == 0 || shared.found.tried.keys().any(is_on);
            if !is_ahead && shared.running.keys().any(is_on) {
                continue;
            }
            let is_alike = |&other: &usize| shared.found.are_alike(line.gpu, self.lines[other].gpu);
            let alike: Vec<usize> = self.others(index).filter(is_alike).collect();
            let runs =
                |place: u64| alike.iter().chain([&index]).any(|&line| shared.running.contains_key(&(line, place)));
            let is_open = |place: u64| !shared.found.tried.contains_key(&(index, place)) && !runs(place);
            for &allocator in &self.question.searched {
                let known = points(&shared.found, index, allocator, &self.question.gpus[line.gpu], self.question.goal);
                let Next::Try(place, others) = search::next(line.count(), &known) else { continue };
                if is_open(place) {
                    return Some((index, place));
                }
                let next = || others.into_iter().find(|&other| is_ahead && is_open(other)).map(|other| (index, other));
                later = later.or_else(next);
            }
        }
        later
    }

    /// The lines of the same values on other GPUs.
    fn others(&self, line: usize) -> impl Iterator<Item = usize> {
        let one = &self.lines[line];
        let is_other =
            move |other: &Line| other.gpu != one.gpu && other.fixed == one.fixed && other.levers == one.levers;
        self.lines.iter().enumerate().filter(move |(_, other)| is_other(other)).map(|(index, _)| index)
    }

    /// Has what one GPU's trials recorded stand for another's, once a trial on each recorded the same.
    fn share(&self, found: &mut Found, line: usize, place: u64) {
        let gpu_of = |line: usize| self.lines[line].gpu;
        for other in self.others(line) {
            let lines = if gpu_of(line) < gpu_of(other) { [line, other] } else { [other, line] };
            found.compare(lines.map(gpu_of), lines, place);
        }
        let pairs = (0..self.lines.len()).flat_map(|to| self.others(to).map(move |from| (from, to)));
        for (from, to) in pairs.filter(|&(from, to)| found.are_alike(gpu_of(from), gpu_of(to))).collect::<Vec<_>>() {
            let gpu = &self.question.gpus[gpu_of(to)];
            let of_from = found.tried.iter().filter(|((of, _), _)| *of == from);
            let lent: Vec<_> = of_from.filter_map(|(&(_, place), tried)| Some((place, tried.on(gpu)?))).collect();
            for (place, tried) in lent {
                found.tried.entry((to, place)).or_insert_with(|| Arc::new(tried));
            }
        }
    }

    /// The ranks of a line that are tried first.
    fn ranks(&self, line: usize) -> Vec<u32> {
        to_try(self.lines[line].world_size.unwrap_or(1), &self.question.ranks)
    }

    /// Tries a place of a line: every rank the first time, then one of each class. None if it was stopped.
    fn trial(&self, line: usize, place: u64, known: Option<&[Class]>) -> Result<Option<(Tried, bool)>, Error> {
        let world_size = self.lines[line].world_size;
        let mut ranks: VecDeque<Option<u32>> = match (world_size, known) {
            (None, _) => VecDeque::from([None]),
            (Some(_), Some(classes)) => classes.iter().map(|class| Some(class.rank)).collect(),
            (Some(_), None) => self.ranks(line).into_iter().map(Some).collect(),
        };
        let values = self.lines[line].values(&self.question.variables, place);
        let command = values::substitute(&self.question.command, &values);
        let stand_in = &self.stand_ins[self.lines[line].gpu];
        let one = |rank: Option<u32>| {
            let rank = rank.and_then(|rank| Some(Rank { rank, world_size: world_size? }));
            self.one(&command, stand_in, rank, self.lines[line].levers.as_deref())
        };
        // The first trial of a world is the only one of its line: its ranks share the cores.
        let several = if known.is_none() && ranks.len() > 1 { self.at_once } else { 1 };
        let mut tried = Tried { devices: Vec::new(), failure: None, levers: None };
        let mut all_cached = true;
        let mut begun: HashSet<Option<u32>> = ranks.iter().copied().collect();
        while !ranks.is_empty() {
            let group: Vec<_> = ranks.drain(..several.max(1).min(ranks.len())).collect();
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let one = &one;
                let started: Vec<_> = group.iter().map(|&rank| (rank, scope.spawn(move || one(rank)))).collect();
                started.into_iter().map(|(rank, thread)| (rank, thread.join())).collect()
            });
            for (rank, outcome) in outcomes {
                // A thread of ours does not panic; of one that did, nothing more is asked.
                let outcome = outcome.unwrap_or_else(|_| Ok(Some((Outcome::Failed(TrialFailure::internal()), false))));
                let Some((outcome, is_cached)) = outcome? else { return Ok(None) };
                all_cached &= is_cached;
                match outcome {
                    Outcome::Ran(devices, levers) => {
                        tried.devices.extend(devices);
                        tried.levers = tried.levers.or(levers.map(|levers| *levers));
                    }
                    Outcome::Failed(failure) => {
                        tried.failure = tried.failure.or(Some((rank.unwrap_or(0), failure)));
                    }
                }
            }
            if tried.failure.is_some() {
                break;
            }
            // Of a large world the other stages of the first rank's pipeline, which it named by what it sent them.
            if known.is_none() && self.question.ranks.is_empty() {
                let stages = tried.devices.iter().min_by_key(|device| device.rank).map(|first| first.stages.clone());
                let others = stages.into_iter().flatten().take(MOST_STAGES).map(Some);
                ranks.extend(others.filter(|rank| begun.insert(*rank)));
            }
        }
        tried.devices.sort_by_key(|device| (device.rank, device.device));
        Ok(Some((tried, all_cached)))
    }

    /// Runs a line's smallest value that does not fit on the card itself, and larger ones if it gets through.
    fn look_for_caught(&self, line: usize) {
        let Line { gpu, world_size, levers, .. } = &self.lines[line];
        let is_asked = self.question.goal.is_none() && self.question.searched.contains(&0);
        if world_size.is_some() || levers.is_some() || !is_asked {
            return;
        }
        let (first, taken) = {
            let shared = self.lock();
            let found = &shared.found;
            let known = points(found, line, 0, &self.question.gpus[*gpu], None);
            let fits = known.iter().rev().find(|(_, point)| matches!(point, Point::Ran { fits: true, .. }));
            let above = fits.map_or(Some(0), |(place, _)| search::too_large(&known, *place));
            let Some(tried) = above.and_then(|first| found.tried.get(&(line, first))) else { return };
            (above.unwrap_or(0), tried.devices.iter().map(|device| device.outside.high).max())
        };
        let Some(taken) = taken else { return };
        let stand_in = self.stand_ins[*gpu].clone().with_taken(taken);
        let runs = |place: u64| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(());
            }
            let values = self.lines[line].values(&self.question.variables, place);
            let command = values::substitute(&self.question.command, &values);
            self.lock().running.insert((line, place), Instant::now());
            let outcome = self.one(&command, &stand_in, None, None);
            self.lock().running.remove(&(line, place));
            match outcome {
                Ok(Some((Outcome::Ran(devices, _), _))) => {
                    Ok(Some(devices.into_iter().flat_map(|device| device.refused).collect()))
                }
                Ok(Some((Outcome::Failed(_), _))) => Ok(None),
                Ok(None) | Err(_) => Err(()),
            }
        };
        if let Ok(Some(caught)) = caught::largest(first, self.lines[line].count(), runs) {
            self.lock().found.caught.insert(line, caught);
        }
    }

    /// Tries one rank, or remembers.
    fn one(
        &self,
        command: &stalloc_common::CommandLine,
        stand_in: &DryRun,
        rank: Option<Rank>,
        levers: Option<&[String]>,
    ) -> Result<Option<(Outcome, bool)>, Error> {
        let setting = &self.question.setting;
        let key = TrialKey {
            command,
            dry_run: stand_in,
            rank: rank.map(|rank| (rank.rank, rank.world_size)),
            steps: setting.steps,
            answers: &setting.answers,
            answers_file: setting.answers_file.as_deref(),
            levers,
            priced_on: setting.priced_on(levers, stand_in.gpu()),
        };
        let key = key.text();
        if let Some(outcome) = self.cache.get(&key) {
            return Ok(Some((outcome, true)));
        }
        let begun = Instant::now();
        let others = if stand_in.is_ample() { &self.question.gpus[..] } else { &[] };
        let try_it = || trial::run(command, (stand_in, others), rank, levers, setting, self.stop);
        let Some(mut result) = try_it()? else { return Ok(None) };
        // A port that is taken, a download that broke off: what failed soon is tried once more.
        if result.0.may_pass() && begun.elapsed() < SOON {
            match try_it()? {
                Some(again) => result = again,
                None => return Ok(None),
            }
        }
        let (outcome, notes) = result;
        // What else may fail does so for reasons that may pass.
        let is_lasting = match &outcome {
            Outcome::Ran(..) => true,
            Outcome::Failed(failure) => {
                matches!(failure.kind, trial::FailureKind::Refused | trial::FailureKind::OutOfMemory)
            }
        };
        if is_lasting {
            self.cache.put(&key, &outcome, &notes);
        }
        Ok(Some((outcome, false)))
    }
}
