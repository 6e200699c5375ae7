//! What the marks of a trace say.

use rustc_hash::FxHashMap;

use crate::ids::{StackId, StringId, Time};
use crate::model::{Event, Mark, Trace};

/// A site where the program read values back from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReads {
    /// Where.
    pub stack: StackId,
    /// How often.
    pub count: u64,
    /// Bytes read in all.
    pub bytes: u64,
    /// What gave the answers; `None`: the program saw zeros.
    pub answer: Option<StringId>,
    /// The most elements of which a dry run did not know how many a GPU chooses, and took all or none: a guess that decides a size.
    pub guessed: Option<u64>,
    /// Whether a small integer was read as zero.
    pub is_integer: bool,
}

/// What answers the read of an integer of two or four bytes that a dry run does not know.
const INTEGER: &str = "zero, of an integer";

/// How many elements an answer leaves open.
fn guessed(answer: &str) -> Option<u64> {
    ["every", "no"].iter().find_map(|how| answer.strip_prefix(how)?.strip_prefix(" element of ")?.parse().ok())
}

impl HostReads {
    /// Whether what was read may decide how much memory the program asks for, judging by its size: a yes or no (one byte), a
    /// length, a count or several numbers (eight bytes and more), or anything that an operation reads for itself, with no Python around it.
    /// Two or four bytes are one floating-point number as a rule, a loss or a norm, which programs show. What was answered is as on a GPU,
    /// but for a guess.
    pub fn may_change_memory(&self) -> bool {
        self.guessed.is_some()
            || self.is_integer
            || self.answer.is_none()
                && (self.stack == StackId::NONE || !matches!(self.bytes / self.count.max(1), 2 | 4))
    }
}

impl Trace {
    /// The marks, each with its time.
    pub fn marks(&self) -> impl Iterator<Item = (Time, &Mark)> {
        self.events.iter().enumerate().filter_map(|(time, event)| match event {
            Event::Mark(mark) => Some((time as Time, mark)),
            _ => None,
        })
    }

    /// When each step began.
    pub fn step_begins(&self) -> Vec<Time> {
        self.marks().filter(|(_, mark)| **mark == Mark::StepBegin).map(|(time, _)| time).collect()
    }

    /// Where the program read values back from the device: what was guessed first, then what was not answered, of that what may decide about memory
    /// first, then what was read most often.
    pub fn host_reads(&self) -> Vec<HostReads> {
        let mut sites: FxHashMap<_, HostReads> = FxHashMap::default();
        for (_, mark) in self.marks() {
            if let Mark::HostRead { stack, bytes, answer } = *mark {
                let guessed = answer.and_then(|answer| guessed(self.string(answer)));
                let key = (stack, answer.filter(|_| guessed.is_none()), guessed.is_some());
                let is_integer = answer.is_some_and(|answer| self.string(answer) == INTEGER);
                let new = HostReads { stack, count: 0, bytes: 0, answer, guessed, is_integer };
                let site = sites.entry(key).or_insert(new);
                site.guessed = site.guessed.max(guessed);
                site.count += 1;
                site.bytes = site.bytes.saturating_add(bytes);
            }
        }
        let mut sites: Vec<HostReads> = sites.into_values().collect();
        sites.sort_by_key(|site| {
            (
                site.guessed.is_none(),
                site.answer.is_some(),
                !site.may_change_memory(),
                std::cmp::Reverse(site.count),
                site.stack,
                site.answer,
            )
        });
        sites
    }
}
