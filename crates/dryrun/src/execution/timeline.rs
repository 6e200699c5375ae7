//! The clock of a dry run: a timeline for each stream and one for the host, in nanoseconds since the process began.
//!
//! A call of the program takes the host its price and puts work on a stream's line; the work begins when the host has asked for it and
//! what lies before it on that line is done. Events keep the moment at which their line gets there. So the host runs ahead of
//! the device as it does on a GPU: until it waits, or until a stream holds as much work as CUDA queues. Nothing depends on the machine
//! that the dry run is on: the same calls give the same times. `STALLOC_DRYRUN_CLOCK=real` lets the host's line follow a real clock.
//!
//! Simplified: threads of the host share one line; streams slow each other down on the link to the host alone.

use super::Handle;
use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

/// Commands that CUDA queues on a stream before the next one waits for the first of them: kernels, copies, records of events, waits.
pub const AHEAD: usize = 1024;
/// From a launch to the start of the kernel on an idle device, nanoseconds: common to measurements of CUDA's launch latency.
const LATENCY: u64 = 4_000;
/// Questions in a row that are answered "not yet" and cost nothing; from then on each costs twice what the one before did, so that a
/// loop that asks until something is done ends soon.
const FREE_QUESTIONS: u32 = 64;

/// A stream's line.
#[derive(Debug, Default)]
struct StreamLine {
    /// When all its work is done.
    done: u64,
    /// Ends of the commands that may be waiting, in order.
    queued: VecDeque<u64>,
    /// The device whose default stream it takes turns with.
    turns_with: Option<u32>,
}

/// The clock of a dry run: when the host, each stream and each link is done, nanoseconds since the process began.
#[derive(Debug, Default)]
pub struct Timelines {
    host: u64,
    waited: u64,
    lines: HashMap<Handle, StreamLine>,
    /// When each way of each device's link to the host is done with the copies that it was given.
    links: HashMap<u64, u64>,
    /// Lines that take turns with a default stream.
    taking_turns: usize,
    questions: u32,
    /// When a real clock began, if the host's line follows one.
    real: Option<Instant>,
}

impl Timelines {
    /// One whose host follows a real clock.
    pub fn real() -> Self {
        Self { real: Some(Instant::now()), ..Self::default() }
    }

    /// The host's time.
    pub fn now(&mut self) -> u64 {
        self.spend(0);
        self.host
    }

    /// Time that the host has waited for devices.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// The host works for so long.
    pub fn spend(&mut self, nanoseconds: u64) {
        self.host = match self.real {
            None => self.host.saturating_add(nanoseconds),
            Some(began) => self.host.max(self.waited.saturating_add(began.elapsed().as_nanos() as u64)),
        };
    }

    /// A stream that takes turns with the default stream of a device.
    pub fn take_turns(&mut self, line: Handle, device: u32) {
        self.lines.entry(line).or_default().turns_with = Some(device);
        self.taking_turns += 1;
    }

    /// A stream is no more; its work goes on.
    pub fn end(&mut self, line: Handle) {
        if self.lines.remove(&line).is_some_and(|line| line.turns_with.is_some()) {
            self.taking_turns -= 1;
        }
    }

    /// When work can begin that is put on a line now, as far as streams go; a device's default stream has the device's number.
    fn clear(&self, line: Handle) -> u64 {
        let own = self.lines.get(&line);
        let done = own.map_or(0, |own| own.done);
        if self.taking_turns == 0 {
            return done;
        }
        if let Some(device) = own.and_then(|own| own.turns_with) {
            return done.max(self.lines.get(&u64::from(device)).map_or(0, |default| default.done));
        }
        let others =
            self.lines.values().filter(|other| other.turns_with.is_some_and(|device| u64::from(device) == line));
        others.map(|other| other.done).fold(done, u64::max)
    }

    /// Puts work on a line.
    pub fn run(&mut self, line: Handle, nanoseconds: u64) {
        self.questions = 0;
        let begin = self.clear(line).max(self.host.saturating_add(LATENCY));
        let own = self.lines.entry(line).or_default();
        own.done = begin.saturating_add(nanoseconds);
        self.queue(line);
    }

    /// Puts a copy on a line, which begins once one way of a link has no copy of another line left.
    pub fn copy(&mut self, line: Handle, link: u64, nanoseconds: u64) {
        let own = self.lines.entry(line).or_default();
        own.done = own.done.max(self.links.get(&link).copied().unwrap_or(0));
        self.run(line, nanoseconds);
        self.links.insert(link, self.lines[&line].done);
    }

    /// A command is on a line that ends when all before it has.
    fn queue(&mut self, line: Handle) {
        let own = self.lines.entry(line).or_default();
        own.queued.push_back(own.done);
        if own.queued.len() > AHEAD
            && let Some(end) = own.queued.pop_front()
        {
            self.wait(end);
        }
    }

    /// The last work of a line takes so much longer.
    pub fn lengthen(&mut self, line: Handle, nanoseconds: u64) {
        let own = self.lines.entry(line).or_default();
        own.done = own.done.max(self.host).saturating_add(nanoseconds);
        if let Some(last) = own.queued.back_mut() {
            *last = own.done;
        }
    }

    /// The moment at which a line is done with all that it was given.
    pub fn moment(&mut self, line: Handle) -> u64 {
        self.questions = 0;
        self.clear(line).max(self.host)
    }

    /// The moment at which an event is complete that is recorded now.
    pub fn record(&mut self, line: Handle) -> u64 {
        self.queue(line);
        self.moment(line)
    }

    /// What a line is given from now on begins after a moment.
    pub fn wait_on(&mut self, line: Handle, moment: u64) {
        let own = self.lines.entry(line).or_default();
        own.done = own.done.max(moment);
        self.queue(line);
    }

    /// Whether a moment is past; asked often enough, the host's time passes.
    pub fn is_past(&mut self, moment: u64) -> bool {
        if moment <= self.now() {
            self.questions = 0;
            return true;
        }
        self.questions += 1;
        if let Some(more) = self.questions.checked_sub(FREE_QUESTIONS) {
            let step = 1_000_u64.checked_shl(more).unwrap_or(u64::MAX);
            self.wait(moment.min(self.host.saturating_add(step)));
        }
        false
    }

    /// The host waits for a moment.
    pub fn wait(&mut self, moment: u64) {
        let more = moment.saturating_sub(self.now());
        self.waited += more;
        self.host += more;
    }

    /// When a line, or every line, is done.
    pub fn done(&self, line: Option<Handle>) -> u64 {
        match line {
            Some(line) => self.clear(line),
            None => self.lines.values().map(|line| line.done).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a stream that takes no turns.
    const ONE: Handle = 100;
    const TWO: Handle = 200;

    #[test]
    fn the_host_runs_ahead_until_it_waits() {
        let mut timeline = Timelines::default();
        timeline.spend(1_000);
        timeline.run(ONE, 50_000);
        let early = timeline.moment(ONE);
        timeline.run(ONE, 50_000);
        let late = timeline.moment(ONE);
        assert_eq!((timeline.now(), early, late), (1_000, 1_000 + LATENCY + 50_000, 1_000 + LATENCY + 100_000));
        assert!(!timeline.is_past(early));
        timeline.wait(early);
        assert!(timeline.is_past(early) && !timeline.is_past(late));
        assert_eq!((timeline.now(), timeline.waited()), (early, early - 1_000));
        timeline.wait(early);
        assert_eq!(timeline.waited(), early - 1_000, "what is past is not waited for");
    }

    #[test]
    fn a_stream_waits_for_the_event_of_another_alone() {
        let mut timeline = Timelines::default();
        timeline.run(ONE, 90_000);
        let event = timeline.moment(ONE);
        timeline.run(TWO, 10_000);
        assert_eq!(timeline.done(Some(TWO)), LATENCY + 10_000);
        timeline.wait_on(TWO, event);
        timeline.run(TWO, 10_000);
        assert_eq!(timeline.done(Some(TWO)), event + 10_000);
        assert_eq!(timeline.done(None), event + 10_000);
    }

    #[test]
    fn copies_of_two_streams_share_a_way_of_the_link() {
        let mut timeline = Timelines::default();
        for (line, link) in [(ONE, 0), (TWO, 0), (ONE, 1)] {
            timeline.copy(line, link, 10_000);
        }
        assert_eq!([ONE, TWO].map(|line| timeline.done(Some(line)) - LATENCY), [20_000, 20_000]);
        timeline.copy(TWO, 1, 10_000);
        assert_eq!(timeline.done(Some(TWO)), LATENCY + 30_000);
    }

    #[test]
    fn work_is_lengthened_by_what_is_learned_of_it() {
        let mut timeline = Timelines::default();
        timeline.run(ONE, 2_000);
        timeline.lengthen(ONE, 5_000);
        assert_eq!(timeline.done(Some(ONE)), LATENCY + 7_000);
    }

    #[test]
    fn a_full_queue_holds_the_host_back() {
        let mut timeline = Timelines::default();
        (0..AHEAD).for_each(|_| timeline.run(ONE, 10_000));
        assert_eq!(timeline.now(), 0);
        let mut other = Timelines::default();
        other.run(ONE, 10_000);
        (1..AHEAD / 2).for_each(|_| _ = (other.record(ONE), other.wait_on(ONE, 0)));
        other.wait_on(ONE, 0);
        assert_eq!(other.now(), 0);
        other.record(ONE);
        assert_eq!(other.now(), LATENCY + 10_000, "events and waits take a place too");
        timeline.run(ONE, 10_000);
        assert_eq!(timeline.now(), LATENCY + 10_000, "until the first is done");
    }

    #[test]
    fn the_default_stream_takes_turns_with_those_that_do() {
        let mut timeline = Timelines::default();
        timeline.take_turns(ONE, 0);
        timeline.run(ONE, 10_000);
        timeline.run(0, 10_000);
        timeline.run(1, 10_000);
        timeline.run(TWO, 10_000);
        timeline.run(ONE, 10_000);
        let done = [ONE, 0, 1, TWO].map(|line| timeline.done(Some(line)) - LATENCY);
        assert_eq!(done, [30_000, 30_000, 10_000, 10_000], "a device's default stream is done with those of its turns");
        timeline.end(ONE);
        assert_eq!(timeline.done(Some(0)) - LATENCY, 20_000);
    }

    #[test]
    fn a_loop_that_asks_until_something_is_done_ends() {
        let mut timeline = Timelines::default();
        timeline.run(ONE, 3_600_000_000_000);
        let event = timeline.moment(ONE);
        let asked = (0..1_000).position(|_| timeline.is_past(event));
        assert!(asked.is_some_and(|asked| asked > FREE_QUESTIONS as usize), "{asked:?}");
        assert_eq!(timeline.now(), event);
    }
}
