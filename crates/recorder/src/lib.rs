//! Turns what a running program reports into one trace file per device.
//!
//! A [`Recorder`] takes events from any thread at the price of a lock and a push. Files are written elsewhere and
//! at another time ([`Recorder::flush`], called twice a second), so that a killed program loses no more than that.

#![forbid(unsafe_code)]

mod chunks;
mod claim;
mod files;
mod log;
mod names;
mod process;
mod progress;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stalloc_trace::growth::Growing;
use stalloc_trace::pace;
use stalloc_trace::site::site;
use stalloc_trace::{Frame, Mark, RawEvent, StackId, StringId, Whose};

pub use crate::files::Error;
pub use crate::log::{Disagreement, StackOf, Timed};
pub use crate::process::Process;
pub use crate::progress::RecordingProgress;

use crate::files::Files;
use crate::log::Log;
use crate::names::Names;
use crate::progress::ProgressCounter;

/// Records one process.
///
/// Locks are taken one at a time, except that [`Recorder::flush`] holds the files while it counts events and looks names up.
pub struct Recorder {
    started: Instant,
    log: Mutex<Log>,
    names: Mutex<Names>,
    files: Mutex<Files>,
    counter: Mutex<ProgressCounter>,
    clock: Option<ModelledClock>,
    /// At each step's begin: when the device was done, and how long the host had waited, microseconds.
    step_times: Mutex<Vec<(u64, u64)>>,
}

/// A dry run's clock, nanoseconds: 0 the host's time, 1 how long it has waited, 2 when the device is done with all that it was given.
pub type ModelledClock = extern "C" fn(i32) -> u64;

/// Steps of which times are kept.
const MOST_STEPS: usize = 10_000;

impl Recorder {
    /// A recorder that writes into `directory`; files appear with the first events.
    pub fn new(directory: PathBuf, process: Process) -> Self {
        Recorder {
            started: Instant::now(),
            log: Mutex::default(),
            names: Mutex::default(),
            files: Mutex::new(Files::new(directory, process)),
            counter: Mutex::default(),
            clock: None,
            step_times: Mutex::default(),
        }
    }

    /// Takes times from a dry run's clock, and says so in the files.
    #[must_use]
    pub fn with_clock(mut self, clock: ModelledClock) -> Self {
        self.clock = Some(clock);
        let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
        files.say(pace::CLOCK, "modelled");
        self
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self) -> MutexGuard<'_, ProgressCounter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.clock.map_or_else(|| self.started.elapsed().as_micros() as u64, |clock| clock(0) / 1000)
    }

    /// An event of `device`, happening now.
    pub fn event(&self, device: u32, event: RawEvent) {
        let mut log = self.log();
        let now = self.now_us();
        log.event(device, event, now);
    }

    /// A mark, now.
    pub fn mark(&self, mark: &Mark) {
        if *mark == Mark::StepBegin {
            self.keep_step_time();
        }
        let mut log = self.log();
        let now = self.now_us();
        log.mark(mark, now);
    }

    fn keep_step_time(&self) {
        let Some(clock) = self.clock else { return };
        let mut times = self.step_times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() < MOST_STEPS {
            times.push((clock(2) / 1000, clock(1) / 1000));
        }
    }

    /// The id of a string, for marks and frames.
    pub fn string(&self, text: &str) -> StringId {
        self.names().string(text)
    }

    /// The id of a call stack, innermost frame first.
    pub fn stack(&self, frames: Vec<Frame>) -> StackId {
        self.names().stack(frames)
    }

    /// Whether allocations wait for [`Recorder::stacks`] before they are written.
    pub fn wait_for_stacks(&self, wait: bool) {
        self.log().wait_for_stacks(wait);
    }

    /// Whether the events of `device` so far are those of `history`, marks aside.
    pub fn agrees(&self, device: u32, history: &[RawEvent]) -> bool {
        self.log().agrees(device, history)
    }

    /// Gives the waiting allocations of `device` their stacks, oldest first.
    ///
    /// # Errors
    /// If the history's allocations are not those that wait.
    pub fn stacks(&self, device: u32, history: &[StackOf]) -> Result<(), Disagreement> {
        self.log().stacks(device, history)
    }

    /// Allocations are remembered from here on, for [`Recorder::late_stacks`]: the history has just been cleared.
    pub fn forget_recent(&self) {
        self.log().forget_recent();
    }

    /// Whether live bytes have been higher than when this was last true.
    pub fn has_new_peak(&self) -> bool {
        self.log().has_new_peak()
    }

    /// Most live bytes since this was last asked, of the device that has most.
    pub fn peak_since(&self) -> u64 {
        self.log().peak_since()
    }

    /// A step is over: whether it asked for something else than the one before, or took live bytes higher.
    pub fn step_differs(&self) -> bool {
        self.log().step_differs()
    }

    /// How many allocations of a device have been recorded since [`Recorder::forget_recent`].
    pub fn recent(&self, device: u32) -> usize {
        self.log().recent(device)
    }

    /// Tells the stacks of allocations that have been recorded since [`Recorder::forget_recent`].
    ///
    /// # Errors
    /// If the history's allocations are not the last of those.
    pub fn late_stacks(&self, device: u32, history: &[StackOf]) -> Result<(), Disagreement> {
        let now = self.now_us();
        self.log().late_stacks(device, history, now)
    }

    /// Tells the stack of something that has been recorded.
    pub fn late_stack(&self, device: u32, whose: Whose, stack: StackId) {
        let now = self.now_us();
        self.log().late_stack(device, whose, stack, now);
    }

    /// Takes `history` for what happened on `device` since the last flush, in place of what [`Recorder::event`] said.
    pub fn history(&self, device: u32, history: Vec<Timed>) {
        self.log().replace(device, history);
    }

    /// Writes what waits for nothing.
    pub fn flush(&self) -> Result<(), Error> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.log().take();
        let mut counter = self.counter();
        for (device, events) in &taken {
            counter.add(*device, events);
        }
        drop(counter);
        files.write(taken, &self.names())
    }

    /// What has been flushed so far, when it is time to say so: after a step, at most once a second.
    pub fn progress(&self) -> Option<RecordingProgress> {
        self.counter().due(Instant::now())
    }

    /// A line for each device whose memory has been found to grow from step to step, once.
    pub fn growing(&self) -> Vec<String> {
        let found = self.counter().take_growing();
        let names = self.names();
        let line = |(device, growing): &(u32, Growing)| {
            let site = site(names.frames(growing.stack), |id| names.text(id));
            growing.line(device, site.as_deref(), "`stalloc report` on this recording shows all of it")
        };
        found.iter().map(line).collect()
    }

    /// Events that could not be written so far.
    pub fn lost(&self) -> u64 {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).lost()
    }

    /// Writes everything and ends the files, named after `rank`, which may have been unknown before; `ended_by`: the exception that
    /// ended the program.
    pub fn finish(&self, rank: u32, ended_by: Option<&str>) -> Result<(), Error> {
        self.log().wait_for_stacks(false);
        let flushed = self.flush();
        self.keep_step_time();
        let times = self.step_times.lock().unwrap_or_else(PoisonError::into_inner);
        let times: Vec<String> = times.iter().map(|(done, waited)| format!("{done}:{waited}")).collect();
        let times = (!times.is_empty()).then(|| times.join(" "));
        let said = [(pace::STEP_TIMES, times.as_deref()), ("ended_by", ended_by)];
        let said: Vec<(&str, &str)> = said.iter().filter_map(|&(key, value)| Some((key, value?))).collect();
        self.files.lock().unwrap_or_else(PoisonError::into_inner).finish(rank, &said).and(flushed)
    }
}
