//! How long the steps of a recording take, and by which clock.

use serde::Serialize;

use crate::model::{Event, Mark, Trace};

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
    /// held against others that did not, and steps may take turns.
    pub fn pace_first(&mut self, steps: u32) {
        if let Some(told) = self.metadata.get_mut(STEP_TIMES)
            && let Some((end, _)) = told.match_indices(' ').nth(steps as usize)
        {
            told.truncate(end);
        }
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

    fn trace(begins: &[u64], end: u64) -> Trace {
        let marks = begins.iter().map(|_| Event::Mark(Mark::StepBegin)).chain([Event::Mark(Mark::StepEnd)]);
        Trace { events: marks.collect(), times_us: begins.iter().copied().chain([end]).collect(), ..Trace::default() }
    }

    #[test]
    fn of_a_recording_that_went_on_the_first_steps_can_be_asked_for() {
        let pace = |steps| {
            let mut trace = trace(&[0], 0);
            let told = [(CLOCK, "modelled"), (STEP_TIMES, "0:0 900:0 1000:0 1300:0 1450:0")];
            trace.metadata.extend(told.map(|(name, value)| (name.to_owned(), value.to_owned())));
            trace.pace_first(steps);
            trace.pace().map(|pace| pace.step_us)
        };
        let expected =
            [(3, Some(300)), (4, Some(150)), (5, Some(150)), (u32::MAX, Some(150)), (1, Some(900)), (0, None)];
        for (steps, step_us) in expected {
            assert_eq!(pace(steps), step_us, "{steps} steps");
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
