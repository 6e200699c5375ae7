//! The events of a running program that no file holds yet.
//!
//! Two sources report them. The *tracker* is called by PyTorch's allocator at each event: exact, cheap, without call
//! stacks. PyTorch's own memory *history* has call stacks, but is slow to read. So the tracker says what happened,
//! and the history, while it is on, adds the stacks: its allocations are the same ones in the same order. Where
//! there is no tracker, the history is the only source.

use std::collections::BTreeMap;

use stalloc_trace::{Mark, RawEvent, StackId, Whose};

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// What happened.
    pub event: RawEvent,
    /// When, in microseconds since an arbitrary start.
    pub time_us: u64,
}

/// An allocation as the history knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOf {
    /// Where the allocation was put.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Where in the program it was asked for.
    pub stack: StackId,
}

/// The history and the tracker tell different stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement;

/// A peak that is this share higher than what was seen before is worth its call stacks: reading the history costs several
/// microseconds an event, and a job that grows sets a new peak in every step. 1 % is 460 readings from a hundredth of the
/// device to all of it.
const HIGHER: u64 = 100;
/// A job whose peak rises by this share is still growing: its stacks go on being kept.
const GROWS: u64 = 10_000;

/// The allocations since the history was last cleared, where it knows stacks that nobody waits for.
#[derive(Default)]
struct Recent {
    /// How many there were before.
    first: u64,
    /// Address and size of each.
    allocations: Vec<(u64, u64)>,
}

#[derive(Default)]
struct PendingEvents {
    events: Vec<Timed>,
    /// Events before this index wait for nothing.
    ready: usize,
    /// Allocations so far.
    allocations: u64,
    recent: Option<Recent>,
    live: u64,
    /// Most live bytes since they were last asked for.
    peak_since: u64,
    /// Most live bytes, and the most when stacks were last read.
    peak: u64,
    peak_read: u64,
    /// The peak when it was last seen to have grown.
    peak_grown: u64,
    /// Allocations and their bytes in this step and in the one before.
    asked: (u64, u64),
    asked_before: (u64, u64),
}

impl PendingEvents {
    /// Adds what waits for nothing itself, after whatever does.
    fn say(&mut self, event: RawEvent, time_us: u64) {
        let is_ready = self.ready == self.events.len();
        self.events.push(Timed { event, time_us });
        if is_ready {
            self.ready = self.events.len();
        }
    }

    /// Counts an event.
    fn count(&mut self, event: &RawEvent) {
        match *event {
            RawEvent::Alloc { address, size, .. } => {
                if let Some(recent) = &mut self.recent {
                    recent.allocations.push((address, size));
                }
                self.allocations += 1;
                self.asked = (self.asked.0 + 1, self.asked.1.saturating_add(size));
                self.live = self.live.saturating_add(size);
                self.peak = self.peak.max(self.live);
                self.peak_since = self.peak_since.max(self.live);
            }
            RawEvent::FreeRequested { size, .. } => self.live = self.live.saturating_sub(size),
            // What failed is part of the peak.
            RawEvent::OutOfMemory { size, .. } => self.peak = self.peak.max(self.live.saturating_add(size)),
            _ => {}
        }
    }
}

/// Events in memory, by device, and the marks between them.
#[derive(Default)]
pub struct Log {
    devices: BTreeMap<u32, PendingEvents>,
    /// Steps begun and ended so far, for devices that are used later than others.
    step_marks: Vec<(Mark, u64)>,
    /// The phase that the step is in, for the same.
    phase: Option<(Mark, u64)>,
    waits_for_stacks: bool,
    /// Whether allocations are remembered for [`Log::late_stacks`].
    keeps_recent: bool,
}

impl Log {
    /// Whether new events wait for their call stacks; what waits already is let go when they no longer do.
    pub fn wait_for_stacks(&mut self, wait: bool) {
        self.waits_for_stacks = wait;
        if !wait {
            for pending in self.devices.values_mut() {
                pending.ready = pending.events.len();
            }
        }
    }

    fn device(&mut self, device: u32) -> &mut PendingEvents {
        let marks = self.step_marks.iter().chain(&self.phase);
        self.devices.entry(device).or_insert_with(|| {
            let events: Vec<_> =
                marks.map(|(mark, time_us)| Timed { event: RawEvent::Mark(mark.clone()), time_us: *time_us }).collect();
            PendingEvents { ready: events.len(), events, ..PendingEvents::default() }
        })
    }

    /// Adds an event of `device`.
    pub fn event(&mut self, device: u32, event: RawEvent, time_us: u64) {
        let waits = self.waits_for_stacks;
        let listens = self.keeps_recent;
        let pending = self.device(device);
        if listens && pending.recent.is_none() {
            pending.recent = Some(Recent { first: pending.allocations, ..Recent::default() });
        }
        pending.count(&event);
        pending.events.push(Timed { event, time_us });
        if !waits {
            pending.ready = pending.events.len();
        }
    }

    /// Adds a mark to every device's events.
    pub fn mark(&mut self, mark: &Mark, time_us: u64) {
        match mark {
            Mark::StepBegin | Mark::StepEnd => {
                self.step_marks.push((mark.clone(), time_us));
                self.phase = None;
            }
            Mark::Phase { .. } => self.phase = Some((mark.clone(), time_us)),
            _ => {}
        }
        for pending in self.devices.values_mut() {
            let is_ready = pending.ready == pending.events.len();
            pending.events.push(Timed { event: RawEvent::Mark(mark.clone()), time_us });
            if is_ready {
                pending.ready = pending.events.len();
            }
        }
    }

    /// Compares what the tracker reported of `device` so far with the whole history, marks and snapshots aside.
    pub fn agrees(&self, device: u32, history: &[RawEvent]) -> bool {
        let tracked = self.devices.get(&device).map_or(&[][..], |pending| &pending.events[..]);
        let tracked = tracked.iter().map(|timed| &timed.event);
        let counts = |event: &&RawEvent| !matches!(event, RawEvent::Mark(_) | RawEvent::Snapshot);
        let mut history = history.iter().filter(counts);
        let mut tracked = tracked.filter(counts);
        loop {
            match (tracked.next(), history.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if same(a, b) => {}
                _ => return false,
            }
        }
    }

    /// Gives the waiting allocations of `device` their stacks, oldest first.
    ///
    /// # Errors
    /// If an allocation is not the one that the history has in its place.
    pub fn stacks(&mut self, device: u32, history: &[StackOf]) -> Result<(), Disagreement> {
        let Some(pending) = self.devices.get_mut(&device) else {
            return if history.is_empty() { Ok(()) } else { Err(Disagreement) };
        };
        let mut known = history.iter();
        for timed in &mut pending.events[pending.ready..] {
            if let RawEvent::Alloc { address, size, stack, .. } = &mut timed.event {
                let Some(of) = known.next() else { return Ok(()) };
                if (of.address, of.size) != (*address, *size) {
                    return Err(Disagreement);
                }
                *stack = of.stack;
            }
            pending.ready += 1;
        }
        if known.next().is_none() { Ok(()) } else { Err(Disagreement) }
    }

    /// From here on allocations wait for nothing, but are remembered until the history is read or cleared: the history has
    /// just been cleared.
    pub fn forget_recent(&mut self) {
        self.keeps_recent = true;
        for pending in self.devices.values_mut() {
            let recent = pending.recent.get_or_insert_default();
            recent.first = pending.allocations;
            recent.allocations.clear();
        }
    }

    /// How many allocations of a device are remembered.
    pub fn recent(&self, device: u32) -> usize {
        let recent = self.devices.get(&device).and_then(|pending| pending.recent.as_ref());
        recent.map_or(0, |recent| recent.allocations.len())
    }

    /// Whether live bytes have been higher than when this was last true.
    pub fn has_new_peak(&mut self) -> bool {
        let mut any = false;
        for pending in self.devices.values_mut() {
            if pending.peak > pending.peak_read.saturating_add(pending.peak_read / HIGHER) {
                pending.peak_read = pending.peak;
                any = true;
            }
        }
        any
    }

    /// Most live bytes since this was last asked, of the device that has most.
    pub fn peak_since(&mut self) -> u64 {
        let since = self.devices.values_mut().map(|pending| std::mem::replace(&mut pending.peak_since, pending.live));
        since.max().unwrap_or(0)
    }

    /// A step is over: whether it asked for something else than the one before, or took live bytes higher, if by less than a
    /// new peak.
    pub fn step_differs(&mut self) -> bool {
        let mut differs = false;
        for pending in self.devices.values_mut() {
            let asked = std::mem::take(&mut pending.asked);
            differs |= asked != std::mem::replace(&mut pending.asked_before, asked);
            if pending.peak > pending.peak_grown.saturating_add(pending.peak_grown / GROWS) {
                pending.peak_grown = pending.peak;
                differs = true;
            }
        }
        differs
    }

    /// Tells the stacks of allocations that were reported before: `history` is the last of what is remembered.
    ///
    /// # Errors
    /// If the history's allocations are not those that were remembered.
    pub fn late_stacks(&mut self, device: u32, history: &[StackOf], time_us: u64) -> Result<(), Disagreement> {
        let Some(pending) = self.devices.get_mut(&device) else {
            return if history.is_empty() { Ok(()) } else { Err(Disagreement) };
        };
        let Some(recent) = &pending.recent else { return Err(Disagreement) };
        let skipped = recent.allocations.len().checked_sub(history.len()).ok_or(Disagreement)?;
        let same =
            recent.allocations[skipped..].iter().zip(history).all(|(of, known)| *of == (known.address, known.size));
        if !same {
            return Err(Disagreement);
        }
        let first = recent.first + skipped as u64;
        for (index, known) in history.iter().enumerate().filter(|(_, known)| known.stack != StackId::NONE) {
            let event = RawEvent::Stack { whose: Whose::Nth(first + index as u64), stack: known.stack };
            pending.say(event, time_us);
        }
        Ok(())
    }

    /// Tells a stack that was learned after what it belongs to, of a device that something happened on.
    pub fn late_stack(&mut self, device: u32, whose: Whose, stack: StackId, time_us: u64) {
        if let Some(pending) = self.devices.get_mut(&device) {
            pending.say(RawEvent::Stack { whose, stack }, time_us);
        }
    }

    /// Forgets what waits of `device`, marks aside, in favour of `history`, which is older than those marks.
    pub fn replace(&mut self, device: u32, history: Vec<Timed>) {
        let pending = self.device(device);
        let marks = pending.events.split_off(pending.ready);
        pending.events.extend(history);
        pending.events.extend(marks.into_iter().filter(|timed| matches!(timed.event, RawEvent::Mark(_))));
        pending.ready = pending.events.len();
    }

    /// Takes the events that wait for nothing.
    pub fn take(&mut self) -> Vec<(u32, Vec<Timed>)> {
        let mut taken = Vec::new();
        for (device, pending) in &mut self.devices {
            if pending.ready > 0 {
                let rest = pending.events.split_off(pending.ready);
                taken.push((*device, std::mem::replace(&mut pending.events, rest)));
                pending.ready = 0;
            }
        }
        taken
    }
}

/// Whether two sources mean the same event; the stack is the history's alone.
fn same(a: &RawEvent, b: &RawEvent) -> bool {
    match (a, b) {
        (
            RawEvent::Alloc { address, size, stream, .. },
            RawEvent::Alloc { address: address_b, size: size_b, stream: stream_b, .. },
        ) => (address, size, stream) == (address_b, size_b, stream_b),
        (
            RawEvent::OutOfMemory { size, device_free, .. },
            RawEvent::OutOfMemory { size: size_b, device_free: free_b, .. },
        ) => (size, device_free) == (size_b, free_b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;
