//! What the trials of a question said, and where one GPU's stand for another's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stalloc_dryrun_setup::Gpu;

use crate::fit::caught::Caught;
use crate::fit::evaluate::{FitsGpu, RankDevice};
use crate::fit::notes::LeverNotes;
use crate::fit::ranks::{Class, classes};
use crate::fit::search::Point;
use crate::fit::trial::TrialFailure;
use crate::fit::verdict::verdict;

/// What one trial of a line said.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What each device of each rank needs, of each class one rank.
    pub devices: Vec<RankDevice>,
    /// Why the command did not run, of the first rank that did not.
    pub failure: Option<(u32, TrialFailure)>,
    /// What the program said of levers, where it was asked.
    pub levers: Option<LeverNotes>,
}

impl Tried {
    /// The same on another GPU, where all of it is known there.
    pub fn on(&self, gpu: &Gpu) -> Option<Tried> {
        let devices = self.devices.iter().map(|device| device.on(gpu)).collect::<Option<_>>()?;
        Some(Tried { devices, ..self.clone() })
    }

    /// What was recorded, if the command ran.
    fn contents(&self) -> Option<Vec<(u32, u64)>> {
        let contents = self.devices.iter().map(|device| (device.rank, device.content)).collect();
        self.failure.is_none().then_some(contents)
    }
}

/// The outcomes of all trials so far, by line and value, and which ranks and GPUs recorded the same.
#[derive(Debug, Default)]
pub struct Found {
    /// The trials of each line, by place.
    pub tried: HashMap<(usize, u64), Arc<Tried>>,
    /// The ranks that are alike, by line.
    pub classes: HashMap<usize, Vec<Class>>,
    /// Of two GPUs, whether all that both were tried with recorded the same.
    alike: HashMap<[usize; 2], bool>,
    /// By line, what runs on the card although it does not fit.
    pub caught: HashMap<usize, Caught>,
}

impl Found {
    /// Notes whether two lines on two GPUs recorded the same with a value that both were tried with.
    pub fn compare(&mut self, gpus: [usize; 2], lines: [usize; 2], place: u64) {
        let contents = |line| self.tried.get(&(line, place)).and_then(|tried| tried.contents());
        if let [Some(one), Some(two)] = lines.map(contents) {
            *self.alike.entry(gpus).or_insert(true) &= one == two;
        }
    }

    /// Whether the same was recorded on two GPUs each time.
    pub fn are_alike(&self, one: usize, two: usize) -> bool {
        self.alike.get(&[one.min(two), one.max(two)]) == Some(&true)
    }
}

/// The ranks of a first trial, those together that recorded the same.
pub fn alike(tried: &Tried) -> Vec<Class> {
    let mut recorded: Vec<(u32, Vec<u64>)> = Vec::new();
    for device in &tried.devices {
        match recorded.last_mut() {
            Some((rank, contents)) if *rank == device.rank => contents.push(device.content),
            _ => recorded.push((device.rank, vec![device.content])),
        }
    }
    classes(&recorded)
}

/// What the trials of a line said about one allocator, with so much memory in place of the card's.
pub fn points(found: &Found, line: usize, allocator: usize, gpu: &Gpu, goal: Option<u64>) -> BTreeMap<u64, Point> {
    let of_line = found.tried.iter().filter(|((other, _), _)| *other == line);
    let point = |tried: &Tried| match &tried.failure {
        Some(_) => Point::Refused,
        None => {
            let verdict = verdict(&tried.devices, allocator, gpu);
            match goal {
                Some(goal) => {
                    let left =
                        verdict.left.map(|left| left.saturating_sub_unsigned(gpu.total).saturating_add_unsigned(goal));
                    Point::Ran { fits: left.is_some_and(|left| left >= 0), left }
                }
                None => Point::Ran { fits: verdict.fits == FitsGpu::Yes, left: verdict.left },
            }
        }
    };
    of_line.map(|(&(_, place), tried)| (place, point(tried))).collect()
}
