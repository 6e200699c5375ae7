//! What the marks of a trace say.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::model::{Event, Mark, StackId, Time, Trace};

/// A place where the program read values back from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReads {
    /// Where.
    pub stack: StackId,
    /// How often.
    pub count: u64,
    /// Bytes read in all.
    pub bytes: u64,
}

impl Trace {
    /// The marks, each with its time.
    pub fn marks(&self) -> impl Iterator<Item = (Time, &Mark)> {
        self.events.iter().enumerate().filter_map(|(time, event)| match event {
            Event::Mark(mark) => Some((time as Time, mark)),
            _ => None,
        })
    }

    /// The steps that the program marked, in order; empty if it marked none. A step without an end goes on to the
    /// next one's begin.
    pub fn marked_steps(&self) -> Vec<Range<Time>> {
        let mut steps = Vec::new();
        let mut open = None;
        for (time, mark) in self.marks() {
            match mark {
                Mark::StepBegin => {
                    steps.extend(open.replace(time).map(|begin| begin..time));
                }
                Mark::StepEnd => steps.extend(open.take().map(|begin| begin..time)),
                _ => {}
            }
        }
        steps.extend(open.map(|begin| begin..self.end()));
        steps
    }

    /// When the optimizer was done, each time: the ends of PyTorch's `Optimizer.step#...` annotations. With several
    /// optimizers, those of the one that was done last; every step ends there.
    pub fn optimizer_steps(&self) -> Vec<Time> {
        let ends = || {
            self.marks().filter_map(|(time, mark)| match mark {
                Mark::AnnotationEnd(name) if self.string(*name).starts_with("Optimizer.step#") => Some((time, *name)),
                _ => None,
            })
        };
        let Some((_, last)) = ends().last() else { return Vec::new() };
        ends().filter(|&(_, name)| name == last).map(|(time, _)| time).collect()
    }

    /// Where the program read values back from the device, most often first.
    pub fn host_reads(&self) -> Vec<HostReads> {
        let mut places: FxHashMap<StackId, HostReads> = FxHashMap::default();
        for (_, mark) in self.marks() {
            if let Mark::HostRead { stack, bytes } = *mark {
                let place = places.entry(stack).or_insert(HostReads { stack, count: 0, bytes: 0 });
                place.count += 1;
                place.bytes = place.bytes.saturating_add(bytes);
            }
        }
        let mut places: Vec<HostReads> = places.into_values().collect();
        places.sort_by_key(|place| (std::cmp::Reverse(place.count), place.stack));
        places
    }
}
