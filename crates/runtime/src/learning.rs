//! Learning while the program runs: a thread of the process that reads the arenas' journals, finds steps that repeat
//! exactly, and proposes plans for them.
//!
//! The program never waits for it. It takes a place's lock to exchange a list and to propose a plan, never while it thinks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use stalloc_allocator::{Event, FrameSet, GRANULE, Script};
use stalloc_plan::Plan;
use stalloc_synthesizer::{Learner, Options};

use crate::messages::say;
use crate::place::Place;
use crate::{fork, places};

/// How often journals are read if no step begins: at ten million requests a second a journal holds a fifth of a second.
const PERIOD: Duration = Duration::from_millis(50);

/// What was learned of each device.
static MINDS: Mutex<BTreeMap<i32, Mind>> = Mutex::new(BTreeMap::new());

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether the thread is to end.
static ENDING: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// What is known of the program on one device.
#[derive(Default)]
struct Mind {
    learner: Learner,
    events: Vec<Event>,
    /// Some events were lost: what is known is not the whole program.
    is_partial: bool,
    /// A plan with offsets was proposed, and none without after it.
    has_plan: bool,
    /// Requests, and those at planned offsets, when a draft was last due.
    served: (u64, u64),
}

/// A plan that serves at least this share of the requests is not replaced by another: where it came from a recording, it is
/// at least as good.
const GOOD_SHARE: f64 = 0.9;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, once. The program runs on if it cannot be started, or dies.
pub fn start() {
    if IS_ON.swap(true, Ordering::AcqRel) {
        return;
    }
    let thread = std::thread::Builder::new().name("stalloc-learner".into());
    if thread.spawn(run).is_err() {
        say("no thread can be started to learn from this job; it is served without a plan");
    }
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

fn run() {
    // What it does can wait: the program's own threads come first.
    // SAFETY: a call that changes only this thread's priority; that it may fail does no harm.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
    let (ending, wake) = (&ENDING.0, &ENDING.1);
    let mut is_ending = lock(ending);
    while !*is_ending {
        let waited = wake.wait_timeout(is_ending, PERIOD).unwrap_or_else(PoisonError::into_inner);
        drop(waited);
        if fork::is_child() {
            return;
        }
        if std::panic::catch_unwind(learn_everywhere).is_err() {
            say("an internal error ended the learning; the job runs on");
            return;
        }
        is_ending = lock(ending);
    }
}

fn learn_everywhere() {
    let mut minds = lock(&MINDS);
    for (device, place) in places::all() {
        if place.is_open() {
            minds.entry(device).or_default().learn(place);
        }
    }
}

impl Mind {
    /// Reads what happened and proposes a plan if one is due.
    fn learn(&mut self, place: &Place) {
        self.read(place);
        if self.learner.is_draft_due() {
            let draft = self.learner.draft();
            if self.is_served_well(place) {
                return;
            }
            let plan = draft.plan(|start| Some(start * GRANULE));
            // Without a plan the arena goes on as it is.
            if let Some(script) = plan.ok().and_then(|plan| Script::new(&plan).ok()) {
                self.has_plan |= propose(place, script);
            }
        } else if self.has_plan && !self.learner.repeats_now() {
            self.has_plan = !propose(place, Script::default());
        }
    }

    /// Whether the plan that is followed serves most of what was asked for since the last draft.
    fn is_served_well(&mut self, place: &Place) -> bool {
        let Some(now) = place.with(|arena| arena.statistics()) else { return true };
        let (requests, planned) = std::mem::replace(&mut self.served, (now.requests, now.planned));
        let (requests, planned) = (now.requests - requests, now.planned - planned);
        planned > 0 && planned as f64 >= GOOD_SHARE * requests as f64
    }

    fn read(&mut self, place: &Place) {
        let is_whole = place.with(|arena| arena.take_journal(&mut self.events)).unwrap_or(true);
        if !is_whole {
            self.learner = Learner::new();
            self.is_partial = true;
        }
        for event in &self.events {
            match *event {
                Event::Alloc { start, granules, stream } => {
                    self.learner.alloc(start.into(), u64::from(granules) * GRANULE, stream.into());
                }
                Event::Free { start } => self.learner.free(start.into()),
                Event::StepBegin => self.learner.step_begin(),
            }
        }
        self.events.clear();
    }
}

fn propose(place: &Place, script: Script) -> bool {
    let size = place.with(|arena| arena.frame_bytes()).flatten();
    let frames = size.map_or_else(FrameSet::default, |size| script.frames(size));
    let (retired, accepted) =
        place.with(|arena| (arena.take_retired(), arena.propose(script, &frames))).unwrap_or((None, false));
    drop(retired);
    accepted
}

/// Ends the learning and keeps what was learned: a plan file for each device that repeats, named as `stalloc run` looks for
/// them. Returns how many were written.
///
/// # Errors
/// The first file that cannot be written, in a sentence.
pub fn keep(folder: &Path, rank: u64) -> Result<usize, String> {
    *lock(&ENDING.0) = true;
    ENDING.1.notify_all();
    let mut minds = lock(&MINDS);
    let mut kept = 0;
    for (device, place) in places::all().filter(|(_, place)| place.is_open()) {
        let mut mind = minds.remove(&device).unwrap_or_default();
        mind.read(place);
        // A plan that served the run well is as good as what was learned from that run.
        let served_well = place.with(|arena| arena.statistics()).is_none_or(|s| s.planned > 0 && s.plans == 0);
        if mind.is_partial || served_well {
            continue;
        }
        let mut plan: Plan = mind.learner.whole_plan(&Options::default());
        if plan.slots.is_empty() {
            continue;
        }
        plan.device = u32::try_from(device).unwrap_or(0);
        let path = folder.join(format!("rank{rank}_dev{device}.plan"));
        stalloc_plan::write(&path, &plan).map_err(|error| error.to_string())?;
        kept += 1;
    }
    Ok(kept)
}
