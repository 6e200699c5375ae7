//! How long the steps of a recording take, and by which clock.

use serde::Serialize;

use crate::Time;
use crate::model::{Event, Mark, Request, Trace};

/// Metadata: `modelled` where times are those of a dry run's clock.
pub const CLOCK: &str = "clock";
/// Metadata: at each step's begin and at the end, when the device was done with all before it, and how long the host had waited by then,
/// microseconds: `done:waited`, separated by spaces.
pub const STEP_TIMES: &str = "step_times_us";

/// Where times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// A real clock, on a GPU.
    Measured,
    /// The clock of a dry run.
    Modelled,
}

/// How long steps take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// By which clock.
    pub clock: Clock,
    /// Of the median step, microseconds.
    pub step_us: u64,
    /// Time in it in which the host waited for the device, microseconds; 0 where that is not known.
    pub waited_us: u64,
}

impl Trace {
    /// The clock of [`Self::times_us`]; none where there are no times, or those of a dry run that had no clock.
    pub fn clock(&self) -> Option<Clock> {
        if self.metadata.get(CLOCK).is_some_and(|clock| clock == "modelled") {
            return (!self.times_us.is_empty()).then_some(Clock::Modelled);
        }
        (!self.times_us.is_empty() && !self.metadata.contains_key("dry_run")).then_some(Clock::Measured)
    }

    /// How long its steps take, where marks say where they begin. Of three steps or more the first, in which programs warm up, is left out.
    pub fn pace(&self) -> Option<Pace> {
        let clock = self.clock()?;
        let told = self.metadata.get(STEP_TIMES).and_then(|told| read(told));
        let moments = told.unwrap_or_else(|| self.moments_of_steps());
        let mut steps: Vec<(u64, u64)> = moments
            .windows(2)
            .map(|pair| (pair[1].0.saturating_sub(pair[0].0), pair[1].1.saturating_sub(pair[0].1)))
            .skip(usize::from(moments.len() > 3))
            .collect();
        steps.sort_unstable();
        let &(step_us, waited_us) = steps.get(steps.len() / 2)?;
        Some(Pace { clock, step_us, waited_us })
    }

    /// Has its pace be that of the first so many steps, as of a recording that ended after them: one that went on to show something is
    /// held against others that did not, and steps may take turns. The last of them lasts as long as the next one where that asks for
    /// the same: what is done once, as locking pages, was done by then. O(events).
    pub fn pace_first(&mut self, steps: u32) {
        let Some(mut moments) = self.metadata.get(STEP_TIMES).and_then(|told| read(told)) else { return };
        let last = steps as usize;
        if let [begin, end, next, ..] = moments[last.saturating_sub(1).min(moments.len())..]
            && self.asks_again(last)
        {
            let lasts = |from: u64, until: u64| until.saturating_sub(from);
            moments[last] = (begin.0 + lasts(end.0, next.0), begin.1 + lasts(end.1, next.1));
        }
        let first: Vec<String> =
            moments.iter().take(last + 1).map(|(done, waited)| format!("{done}:{waited}")).collect();
        self.metadata.insert(STEP_TIMES.to_owned(), first.join(" "));
    }

    /// Whether a step asks for the same sizes in the same order as the one before it.
    fn asks_again(&self, step: usize) -> bool {
        let begins: Vec<Time> =
            self.marks().filter(|(_, mark)| **mark == Mark::StepBegin).map(|(time, _)| time).collect();
        let asked = |step: usize| {
            let (from, until) = (begins.get(step).copied(), begins.get(step + 1).copied().unwrap_or(Time::MAX));
            let is_of = move |request: &&Request| request.alloc >= from && request.alloc < Some(until);
            from.map(|_| self.requests.iter().filter(is_of).map(|request| request.size).collect::<Vec<u64>>())
        };
        step > 0 && asked(step).is_some_and(|sizes| asked(step - 1) == Some(sizes))
    }

    /// When each step began, and the last one's end, by the marks; the host's waiting is not known.
    fn moments_of_steps(&self) -> Vec<(u64, u64)> {
        let mut moments = Vec::new();
        let mut end = None;
        for (event, &time) in self.events.iter().zip(&self.times_us) {
            match event {
                Event::Mark(Mark::StepBegin) => moments.push((time, 0)),
                Event::Mark(Mark::StepEnd) => end = Some((time, 0)),
                _ => {}
            }
        }
        moments.extend(end.filter(|end| moments.last().is_some_and(|last| last < end)));
        moments
    }
}

fn read(told: &str) -> Option<Vec<(u64, u64)>> {
    let moment = |word: &str| {
        let (done, waited) = word.split_once(':')?;
        Some((done.parse().ok()?, waited.parse().ok()?))
    };
    told.split_whitespace().map(moment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawEvent, StackId};

    fn trace(begins: &[u64], end: u64) -> Trace {
        let marks = begins.iter().map(|_| Event::Mark(Mark::StepBegin)).chain([Event::Mark(Mark::StepEnd)]);
        Trace { events: marks.collect(), times_us: begins.iter().copied().chain([end]).collect(), ..Trace::default() }
    }

    #[test]
    fn of_a_recording_that_went_on_the_first_steps_can_be_asked_for() {
        let pace = |sizes: [u64; 4], steps| {
            let mut builder = crate::TraceBuilder::new(0);
            for (step, size) in (1..).zip(sizes) {
                builder.push(RawEvent::Mark(Mark::StepBegin), Some(0));
                builder.push(RawEvent::Alloc { address: step << 30, size, stream: 0, stack: StackId::NONE }, Some(0));
            }
            let mut trace = builder.finish();
            let told = [(CLOCK, "modelled"), (STEP_TIMES, "0:0 900:0 1000:0 1300:0 1450:0")];
            trace.metadata.extend(told.map(|(name, value)| (name.to_owned(), value.to_owned())));
            trace.pace_first(steps);
            trace.pace().map(|pace| pace.step_us)
        };
        assert_eq!(pace([1, 2, 3, 4], 4), Some(150), "the median of 100, 300 and 150");
        assert_eq!(pace([1, 2, 3, 4], 3), Some(300), "the longer of 100 and 300");
        assert_eq!(pace([1, 2, 3, 3], 3), Some(150), "the third did something once that the fourth did not");
        for steps in [0, 1, 2, 5, u32::MAX] {
            pace([1, 2, 3, 3], steps);
        }
    }

    #[test]
    fn the_median_step_counts_and_the_first_does_not() {
        let pace = trace(&[0, 900, 1000, 1110], 1210).pace().unwrap();
        assert_eq!(pace, Pace { clock: Clock::Measured, step_us: 100, waited_us: 0 });
        assert_eq!(trace(&[0, 900], 1000).pace().map(|pace| pace.step_us), Some(900), "of two no step is left out");
        assert_eq!(trace(&[], 5).pace(), None);
    }

    #[test]
    fn a_dry_run_says_when_the_device_was_done() {
        let mut dry = trace(&[0, 10, 20], 30);
        dry.metadata.insert("dry_run".into(), "h100-80gb".into());
        assert_eq!(dry.pace(), None, "without a clock its times are those of the machine that it ran on");
        dry.metadata.insert(CLOCK.into(), "modelled".into());
        assert_eq!(dry.pace().map(|pace| (pace.clock, pace.step_us)), Some((Clock::Modelled, 10)));
        dry.metadata.insert(STEP_TIMES.into(), "5:0 700:1 1000:251 1300:511".into());
        assert_eq!(dry.pace(), Some(Pace { clock: Clock::Modelled, step_us: 300, waited_us: 260 }));
        for damaged in ["5:0 700", "x:1 y:2", "1:2:3 4:5", "9999999999999999999999:0 1:1"] {
            dry.metadata.insert(STEP_TIMES.into(), damaged.into());
            assert_eq!(dry.pace().map(|pace| pace.step_us), Some(10), "{damaged}");
        }
    }
}
