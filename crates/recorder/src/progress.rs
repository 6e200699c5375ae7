//! How far a recording is, for whoever waits for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stalloc_common::figures::{bytes, count};
use stalloc_trace::growth::{Growing, GrowthWatch};
use stalloc_trace::{Mark, RawEvent};

use crate::log::Timed;

/// The first line follows after this time, the next ones after twice, three times... as much, up to the longest.
const FIRST_LINE: Duration = Duration::from_secs(1);
/// A line is due after this time even if no step has ended.
const LONGEST: Duration = Duration::from_secs(10);
/// PyTorch rounds requests up to this.
const ROUNDING: u64 = 512;

/// What has been recorded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingProgress {
    /// Steps that have ended.
    pub steps: u64,
    /// Whether a step has begun that has not ended.
    pub in_step: bool,
    /// Allocations, on all devices.
    pub requests: u64,
    /// Most bytes that were live on one device.
    pub peak_allocated: u64,
}

/// Counts what is written and says when it is time for a line.
pub struct ProgressCounter {
    progress: RecordingProgress,
    /// Of each device, live bytes and whether its events are within a step.
    devices: BTreeMap<u32, (u64, bool)>,
    /// Of each device, what lives on from step to step; and where that was found to grow.
    watched: BTreeMap<u32, GrowthWatch>,
    growing: Vec<(u32, Growing)>,
    /// When the last line was due, and how many steps it spoke of.
    last: (Instant, u64),
    /// The least time from it to the next.
    pause: Duration,
}

impl Default for ProgressCounter {
    fn default() -> Self {
        ProgressCounter {
            progress: RecordingProgress::default(),
            devices: BTreeMap::new(),
            watched: BTreeMap::new(),
            growing: Vec::new(),
            last: (Instant::now(), 0),
            pause: FIRST_LINE,
        }
    }
}

impl ProgressCounter {
    /// Adds events of `device` as they are written.
    pub fn add(&mut self, device: u32, events: &[Timed]) {
        let (live, in_step) = self.devices.entry(device).or_default();
        let watch = self.watched.entry(device).or_default();
        let progress = &mut self.progress;
        // Marks are every device's: those of one are all.
        let mut steps = 0;
        for Timed { event, .. } in events {
            match event {
                RawEvent::Alloc { address, size, stack, .. } => {
                    watch.alloc(*address, *size, *stack);
                    progress.requests += 1;
                    *live = live.saturating_add(rounded(*size));
                    progress.peak_allocated = progress.peak_allocated.max(*live);
                }
                RawEvent::FreeRequested { address, size, .. } => {
                    watch.free(*address);
                    *live = live.saturating_sub(rounded(*size));
                }
                RawEvent::Stack { whose, stack } => watch.stack(*whose, *stack),
                RawEvent::Mark(Mark::StepBegin) => {
                    self.growing.extend(watch.step_begin().map(|growing| (device, growing)));
                    *in_step = true;
                    progress.in_step = true;
                }
                RawEvent::Mark(Mark::StepEnd) => {
                    // Without a step before it, it only says that the last one went on until here.
                    steps += u64::from(*in_step);
                    *in_step = false;
                    progress.in_step = false;
                }
                _ => {}
            }
        }
        if self.devices.first_key_value().is_some_and(|(first, _)| *first == device) {
            progress.steps += steps;
        }
    }

    /// Devices whose memory has been found to grow since this was last asked.
    pub fn take_growing(&mut self) -> Vec<(u32, Growing)> {
        std::mem::take(&mut self.growing)
    }

    /// What there is to say `now`, if it is time for it.
    pub fn due(&mut self, now: Instant) -> Option<RecordingProgress> {
        let (last, steps) = self.last;
        let waited = now.saturating_duration_since(last);
        let is_new = self.progress.steps > steps;
        let is_due = waited >= LONGEST && self.progress.requests > 0 || waited >= self.pause && is_new;
        is_due.then(|| {
            self.last = (now, self.progress.steps);
            self.pause = (self.pause + FIRST_LINE).min(LONGEST);
            self.progress
        })
    }
}

fn rounded(size: u64) -> u64 {
    size.div_ceil(ROUNDING).saturating_mul(ROUNDING)
}

impl RecordingProgress {
    /// One line: `step 3 of 4 recorded, 12,345 requests, 41.20 GiB at most`.
    pub fn line(&self, steps_wanted: Option<u64>) -> String {
        let of = steps_wanted.map_or(String::new(), |wanted| format!(" of {wanted}"));
        let step = match (self.steps, self.in_step) {
            (0, false) => "no step yet".to_owned(),
            (0, true) => format!("in step 1{of}"),
            (steps, _) => format!("step {steps}{of} recorded"),
        };
        format!("{step}, {} requests, {} at most", count(self.requests), bytes(self.peak_allocated))
    }
}

#[cfg(test)]
mod tests;
