//! The figures of a report: what `--json` prints, and what the page shows from the same object.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stalloc_trace::Time;

use crate::facts::HolderBytes;
use crate::holes::Holes;

/// Everything that a report says in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Version of stalloc.
    pub version: &'static str,
    /// The answer, as a terminal of 100 columns shows it.
    pub text: String,
    /// What was looked at.
    pub inputs: Vec<InputFigures>,
    /// The devices of the first input against those of each other input.
    pub comparisons: Vec<InputComparison>,
}

/// A file in the report's JSON: name, format, warnings, and the figures of each device.
#[derive(Clone, Debug, Serialize)]
pub struct InputFigures {
    /// Its name, as given.
    pub name: String,
    /// Its format.
    pub format: String,
    /// What was odd about it.
    pub warnings: Vec<String>,
    /// Its devices.
    pub devices: Vec<DeviceFigures>,
}

/// One device of an input. Bytes and event times throughout.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceFigures {
    /// Device number.
    pub device: u32,
    /// Its name among the devices of the input: `device 1`, `rank 3, device 0`.
    pub name: String,
    /// Its name, where the recorder said so.
    pub device_name: Option<String>,
    /// Events of its trace.
    pub events: usize,
    /// Requests.
    pub requests: usize,
    /// Steps found.
    pub steps: usize,
    /// Whether the input holds the state of one moment and no history.
    pub state_only: bool,
    /// Whether call stacks were recorded.
    pub has_stacks: bool,
    /// Whether times were recorded.
    pub has_times: bool,
    /// Most live bytes at once.
    pub peak_allocated: u64,
    /// What is wrong, if anything is.
    pub verdict: Verdict,
    /// Why, where it is known.
    pub cause: Option<&'static str>,
    /// What the verdict rests on, in sentences.
    pub facts: Vec<String>,
    /// All that its sentences are made from, by name: bytes, counts, words; `null` is unknown.
    pub known: serde_json::Map<String, serde_json::Value>,
    /// The verdict in a sentence, with the figures that prove it.
    pub headline: String,
    /// What to do, the best first.
    pub advice: Vec<Advice>,
    /// When live bytes are at their peak, event time.
    pub peak_time: Time,
    /// Who holds the memory at the peak, by call site, most bytes first.
    pub peak_by_site: Vec<SiteBytes>,
    /// The same by module, where the recording has marks of modules.
    pub peak_by_module: Vec<ModuleBytes>,
    /// The Python objects that hold what lived when memory ran out, most bytes first; empty where nobody looked.
    pub holders: Vec<HolderBytes>,
    /// What climbs from step to step, if anything does.
    pub growth: Option<Growth>,
    /// What to keep in mind.
    pub notes: Vec<String>,
    /// The last request that failed for lack of memory, if one did.
    pub out_of_memory: Option<OutOfMemory>,
    /// What happened, and what each allocator makes of the trace.
    pub allocators: Vec<AllocatorFigures>,
    /// Live bytes by what they seem to hold; empty where nothing can be told.
    pub categories: Vec<CategoryFigures>,
    /// Where the categories come from.
    pub categories_from: &'static str,
    /// Peaks by kind of step; empty where no steps were found.
    pub step_kinds: Vec<StepKind>,
    /// The plan, if one was made.
    pub plan: Option<PlanFigures>,
    /// What keeps the plan from 100 %, most bytes first.
    pub causes: Vec<Cause>,
}

/// What is wrong with a job's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Reserved memory lies empty in pieces that are too small.
    Fragmentation,
    /// Live bytes climb from step to step.
    Growth,
    /// The job needs more at once than the device has.
    TooLarge,
    /// Nothing.
    Healthy,
    /// The recording does not say how it ended, or ends before a step; `null` for programs.
    #[default]
    #[serde(serialize_with = "nothing")]
    Unknown,
}

fn nothing<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_none()
}

/// One advice: a sentence with its gain, and a command to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What, and what it would give.
    pub text: String,
    /// A line to copy; `COMMAND` stands for the job where the recording does not know it.
    pub command: Option<String>,
}

/// Bytes that a line of the program holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteBytes {
    /// `FILE:LINE FUNCTION` of the user's innermost frame; `unknown` where no call stack was recorded.
    pub site: Rc<str>,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: usize,
}

/// Bytes that were allocated while a module ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleBytes {
    /// The innermost module that was entered; `none` outside of all.
    pub module: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: usize,
}

/// Live bytes that climb from step to step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Mean of the steps over which they climb.
    pub bytes_per_step: u64,
    /// How many steps those are.
    pub steps: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// Steps of the recording until then.
    pub number: u64,
    /// The line of the loop whose turns they are, where they are no steps.
    pub turns_of: Option<String>,
    /// Where what stays was allocated, most bytes first.
    pub sites: Vec<SiteBytes>,
}

/// Whether a run fits a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// With nothing given back.
    Yes,
    /// Only by giving cached memory back to the device and asking again.
    Tight,
    /// No.
    No,
    /// Nobody tried.
    Unknown,
}

/// What one allocator makes of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct AllocatorFigures {
    /// Its name on the command line; `actual` for what really happened.
    pub allocator: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Most live bytes at once.
    pub peak_allocated: u64,
    /// Most device memory held at once.
    pub peak_reserved: u64,
    /// Peak allocated over peak reserved.
    pub efficiency: f64,
    /// Peak reserved less peak allocated.
    pub wasted: u64,
    /// Whether it fits a card of 40, 80, 141 GB, with what failed counted in.
    pub fits: BTreeMap<&'static str, Fit>,
    /// Where memory grows: the step in which it no longer fits a card of 40, 80, 141 GB.
    pub dies_at_step: BTreeMap<&'static str, u64>,
    /// Whether it gets past the request that failed, on the device that it failed on.
    pub same_device: Option<Fit>,
    /// Whether it ran out of memory.
    pub oom: bool,
    /// Its holes at the moment of most reserved memory.
    #[serde(flatten)]
    pub holes: Holes,
}

/// A request that failed for lack of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutOfMemory {
    /// How many requests failed in all.
    pub times: usize,
    /// When the last of them did, event time.
    pub time: Time,
    /// The line that asked.
    pub site: Option<String>,
    /// Bytes that it asked for.
    pub size: u64,
    /// Bytes that the device had free.
    pub device_free: u64,
    /// Bytes that were allocated then, without it.
    pub allocated: u64,
    /// Bytes that were reserved and not allocated, where the recording says so.
    pub empty: Option<u64>,
    /// Bytes that the process had or could have had: what was reserved and what was free.
    pub capacity: Option<u64>,
    /// All of it in a sentence.
    pub sentence: String,
}

/// Live bytes of a category.
#[derive(Clone, Debug, Serialize)]
pub struct CategoryFigures {
    /// Its name.
    pub category: &'static str,
    /// Its live bytes when all live bytes are at their peak.
    pub bytes_at_peak: u64,
    /// Its own peak.
    pub peak: u64,
    /// Its requests.
    pub requests: usize,
}

/// Peaks of the steps of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct StepKind {
    /// Its name.
    pub kind: String,
    /// How many there are.
    pub steps: usize,
    /// Requests in each, the median.
    pub requests: usize,
    /// Most live bytes in any of them.
    pub peak_allocated: u64,
    /// Most reserved bytes in any of them, by allocator.
    pub reserved: Vec<StepReserved>,
}

/// Most reserved bytes of one allocator in steps of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct StepReserved {
    /// The allocator.
    pub allocator: &'static str,
    /// Bytes.
    pub peak_reserved: u64,
}

/// The plan in figures.
#[derive(Clone, Debug, Serialize)]
pub struct PlanFigures {
    /// Bytes of its arena.
    pub arena: u64,
    /// No plan of the same requests needs less.
    pub lower_bound: u64,
    /// Requests of the trace that it serves.
    pub planned_requests: usize,
    /// Requests that it does not.
    pub dynamic_requests: usize,
}

/// A reason for waste.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// Bytes that it accounts for.
    pub bytes: u64,
    /// The reason in a sentence.
    pub text: String,
}

/// Name of an allocator for people.
pub fn label(allocator: &str) -> &'static str {
    match allocator {
        "actual" => "Recorded",
        "pytorch" => "PyTorch",
        "pytorch-expandable" => "Expandable segments",
        "gmlake" => "GMLake",
        "stalloc" => "stalloc, planned",
        "stalloc-open" => "stalloc, no plan",
        "stalloc-auto" => "stalloc run",
        _ => "Other",
    }
}

/// Which device of which input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceOfInput {
    /// Index of the input.
    pub input: usize,
    /// Index of the device in it.
    pub device: usize,
}

/// A figure before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FigureChange {
    /// What is counted.
    pub what: String,
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
}

/// What differs between two inputs.
#[derive(Clone, Debug, Serialize)]
pub struct InputComparison {
    /// The first input.
    pub before: DeviceOfInput,
    /// The other one.
    pub after: DeviceOfInput,
    /// The difference in a sentence.
    pub sentence: String,
    /// Peaks.
    pub figures: Vec<FigureChange>,
    /// Live bytes at the peak by category.
    pub categories: Vec<FigureChange>,
    /// Live bytes at the peak by call site.
    pub sites: Vec<FigureChange>,
    /// Live bytes at the peak by size class.
    pub sizes: Vec<FigureChange>,
}

impl FigureChange {
    /// How much the two differ.
    pub(crate) fn size(&self) -> u64 {
        self.before.abs_diff(self.after)
    }
}
