//! Learning while the program runs: a thread of the process that reads the arenas' journals, finds steps that repeat
//! exactly, and proposes plans for them.
//!
//! The program never waits for it. It takes an arena's lock to exchange a list and to propose a plan, never while it thinks.
//! It begins when the first arena is opened, so that a process that is forked before has one of its own; and it keeps what it knows
//! from time to time, for jobs that are killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use stalloc_caching::{Rivals, RivalsHeld};
use stalloc_learning::{Finding, Knowledge, Learning};

use crate::devices::LockedArena;
use crate::messages::say;
use crate::serving::Serving;
use crate::{devices, fork};

/// How often journals are read if no step begins: at ten million requests a second a journal holds a fifth of a second.
const PERIOD: Duration = Duration::from_millis(50);

/// What is new is kept this often: a job that is killed loses no more.
const KEEP: Duration = Duration::from_secs(30);

/// After keeping, the thread does so many times as long other things.
const REST_PER_KEEP: u32 = 20;

/// How to find the line that keeps memory; this process knows no call stacks.
const FIND_IT: &str = "To find the line: `stalloc trace --steps 8 -o traces -- COMMAND`, then `stalloc report traces`";

/// One of so many bytes in pools of CUDA graphs changes no comparison: its figures have two decimals.
const POOLS: u64 = 100;

/// Most time that the program's end waits for the learner.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was learned of one device's job.
struct Learned {
    learning: Learning,
    rivals: Rivals,
    /// What was known when it was last kept.
    kept: Option<Knowledge>,
}

impl Learned {
    fn of(device: i32) -> Self {
        let room = lock(&ROOMS).get(&device).copied().unwrap_or(ANY_ROOM);
        Learned { learning: Learning::with_growth(), rivals: Rivals::new(room), kept: None }
    }
}

/// Room of a device that does not say what it has, bytes: more than any GPU.
const ANY_ROOM: u64 = 1 << 44;

/// Bytes that each device had free when its arena was opened.
static ROOMS: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());

/// What came of a device's job.
#[derive(Clone, Copy, Debug)]
pub struct JobOutcome {
    /// What PyTorch's allocator would have held, what ours does not serve included; `None` where that is not known.
    pub held: Option<RivalsHeld>,
    /// Why no plan is followed.
    pub finding: Finding,
}

/// What was learned of each device.
static LEARNED: Mutex<BTreeMap<i32, Learned>> = Mutex::new(BTreeMap::new());

/// Where what was learned is kept, and of which rank it is.
static KEPT_IN: Mutex<Option<(PathBuf, u64)>> = Mutex::new(None);

/// Whether arenas keep journals, and whether the thread that reads them has begun.
static IS_ON: AtomicBool = AtomicBool::new(false);
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether it was said that nothing can be kept: one line, whoever finds it first.
static NOT_KEPT: AtomicBool = AtomicBool::new(false);

/// Whether the thread is to end.
static ENDING: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has arenas that are opened from now on learned from.
pub fn start() {
    IS_ON.store(true, Ordering::Release);
}

/// An arena that keeps a journal has been opened on a device with so much free memory: starts the thread, once. The program runs on if
/// it cannot be started, or dies.
pub(crate) fn arena_opened(device: i32, room: Option<u64>) {
    if let Some(room) = room {
        lock(&ROOMS).insert(device, room);
    }
    if HAS_BEGUN.swap(true, Ordering::AcqRel) {
        return;
    }
    let thread = std::thread::Builder::new().name("stalloc-learner".into());
    if thread.spawn(run).is_err() {
        say("no thread can be started to learn from this job; it is served without a plan");
    }
}

/// Has what is learned kept in a folder from time to time, as plans of this rank.
pub fn keep_in(folder: &Path, rank: u64) {
    *lock(&KEPT_IN) = Some((folder.to_owned(), rank));
}

/// Whether arenas are to keep a journal.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire)
}

/// A step has begun: there is something to learn from.
pub(crate) fn step_begun() {
    if is_on() {
        ENDING.1.notify_one();
    }
}

/// Never interrupts another thread, yet has the share of one: on a node that data loaders fill, a thread of lower priority
/// learns nothing, and a request waits for it where it holds an arena's lock.
fn wait_for_turns() {
    // SAFETY: a structure of numbers, for which 0 is right.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: a call that changes only how this thread is scheduled; that it may fail does no harm.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const none) };
}

fn run() {
    wait_for_turns();
    let (ending, wake) = (&ENDING.0, &ENDING.1);
    let mut keeping = Keeping { due: Instant::now() };
    let mut is_ending = lock(ending);
    while !*is_ending {
        let waited = wake.wait_timeout(is_ending, PERIOD).unwrap_or_else(PoisonError::into_inner);
        drop(waited);
        if fork::is_child() {
            return;
        }
        match std::panic::catch_unwind(|| learn_everywhere(keeping)) {
            Ok(next) => keeping = next,
            Err(_) => {
                say("an internal error ended the learning; the job runs on");
                return;
            }
        }
        is_ending = lock(ending);
    }
}

/// When the thread keeps what it knows.
#[derive(Clone, Copy)]
struct Keeping {
    due: Instant,
}

fn learn_everywhere(mut keeping: Keeping) -> Keeping {
    let mut learned = lock(&LEARNED);
    for (device, locked) in devices::all() {
        if locked.is_open() {
            let learned = learned.entry(device).or_insert_with(|| Learned::of(device));
            learn(learned, locked);
            if let Some(growing) = learned.learning.take_growing() {
                say(&growing.line(device, None, FIND_IT));
            }
        }
    }
    if Instant::now() < keeping.due {
        return keeping;
    }
    let Some((folder, rank)) = lock(&KEPT_IN).clone() else { return keeping };
    let began = Instant::now();
    let mut has_kept = false;
    for (&device, learned) in learned.iter_mut() {
        let known = learned.learning.known();
        // Once it repeats; after that, when it is more.
        if known.repeats && learned.kept != Some(known) && !is_served_well(device) {
            has_kept = true;
            match write(&folder, rank, device, learned.learning.so_far()) {
                Ok(true) => learned.kept = Some(known),
                Ok(false) => {} // what repeats now is not the whole program yet
                Err(error) => not_kept(&error),
            }
        }
    }
    if has_kept {
        keeping.due = Instant::now() + KEEP.max(began.elapsed() * REST_PER_KEEP);
    }
    keeping
}

fn not_kept(error: &str) {
    if !NOT_KEPT.swap(true, Ordering::AcqRel) {
        say(&format!("what was learned is not kept: {error}"));
    }
}

/// Whether a plan that was there serves a device well: it is as good as what was learned from the run.
fn is_served_well(device: i32) -> bool {
    let locked = devices::all().find(|(other, _)| *other == device);
    let now = locked.and_then(|(_, locked)| locked.with(|arena| arena.statistics()));
    now.is_none_or(|now| now.planned > 0 && now.plans == 0)
}

/// Writes what was learned of a device; false if there is nothing that repeats.
fn write(folder: &Path, rank: u64, device: i32, learning: Learning) -> Result<bool, String> {
    let Some(mut plan) = learning.whole_plan() else { return Ok(false) };
    plan.device = u32::try_from(device).unwrap_or(0);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let path = folder.join(format!("rank{rank}_dev{device}.plan"));
    if path.exists() && !path.is_file() {
        // A pipe would be waited for.
        return Err(format!("{}: it is not a file", path.display()));
    }
    stalloc_plan::write(&path, &plan).map_err(|error| error.to_string())?;
    Ok(true)
}

/// Takes into account what happened, and changes the plan if that is due.
fn learn(known: &mut Learned, locked: &LockedArena) {
    hear(known, locked);
    let learning = &mut known.learning;
    let rivals = known.rivals.now();
    let told = |arena: &mut dyn Serving| {
        rivals.inspect(|now| arena.rivals_hold(now.least, now.given_back));
        arena.statistics()
    };
    let Some(now) = locked.with(told) else { return };
    let size = locked.with(|arena| arena.frame_bytes()).flatten();
    let mut proposed = learning.think(&now);
    while let Some(proposal) = proposed {
        let (is_plan, frames) = (proposal.is_plan(), proposal.frames(size));
        let answer = locked.with(|arena| (arena.take_retired(), arena.propose(proposal.script, &frames)));
        let (retired, accepted) = answer.unwrap_or((None, false));
        drop(retired);
        proposed = learning.answered(is_plan, accepted);
    }
}

fn hear(known: &mut Learned, locked: &LockedArena) {
    let journal = known.learning.journal();
    let is_whole = locked.with(|arena| arena.take_journal(journal)).unwrap_or(true);
    known.rivals.hear(journal, is_whole);
    known.learning.hear(is_whole);
}

/// What came of a device's job so far; `None` where nothing is learned, or the learner does not stop thinking in time.
pub fn outcome(device: i32) -> Option<JobOutcome> {
    let began = Instant::now();
    let mut learned = loop {
        match LEARNED.try_lock() {
            Ok(learned) => break learned,
            Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return None,
        }
    };
    let known = learned.get_mut(&device)?;
    let (_, locked) = devices::all().find(|&(number, _)| number == device)?;
    hear(known, locked);
    let report = locked.report()?;
    let others = report.fallback_reserved + report.arena.pools;
    let add =
        |held: RivalsHeld| RivalsHeld { pytorch: held.pytorch + others, expandable: held.expandable + others, ..held };
    // Pools of CUDA graphs are not replayed: where they decide, nobody knows what PyTorch's would hold.
    let is_known = report.arena.pools <= report.peak_reserved / POOLS;
    Some(JobOutcome { held: known.rivals.held().filter(|_| is_known).map(add), finding: known.learning.finding() })
}

/// Ends the learning and keeps what was learned: a plan file for each device that repeats, named as `stalloc run` looks for
/// them. Returns how many were written; what cannot be written is said in a line, once for the process.
pub fn keep(folder: &Path, rank: u64) -> usize {
    *lock(&ENDING.0) = true;
    ENDING.1.notify_all();
    if let Err(error) = std::fs::create_dir_all(folder) {
        not_kept(&format!("{}: {error}", folder.display()));
        return 0;
    }
    let mut learned = lock(&LEARNED);
    let mut kept = 0;
    for (device, locked) in devices::all().filter(|(_, locked)| locked.is_open()) {
        let mut learned = learned.remove(&device).unwrap_or_else(|| Learned::of(device));
        hear(&mut learned, locked);
        if is_served_well(device) {
            continue;
        }
        match write(folder, rank, device, learned.learning) {
            Ok(is_kept) => kept += usize::from(is_kept),
            Err(error) => not_kept(&error),
        }
    }
    kept
}
