//! What fits: a command is tried on the stand-in for one or several GPUs and values, with no GPU.
//!
//! A trial is a dry run of a few steps on memory that does not run out, so that a job that is too large is seen to its end. Its
//! recording is replayed by each allocator on what the card leaves outside PyTorch, and on less and less memory until it
//! fails. A dry run takes as long for a large batch as for a small one, so the cost is that of a few imports of PyTorch.

mod cache;
mod caught;
mod evaluate;
pub(crate) mod found;
mod json;
pub(crate) mod notes;
mod outside;
pub(crate) mod picture;
mod ranks;
pub(crate) mod report;
pub(crate) mod scheduler;
pub(crate) mod search;
pub(crate) mod trial;
pub(crate) mod values;
pub(crate) mod verdict;
mod world;

use std::sync::atomic::AtomicBool;

use stalloc_common::CommandLine;
use stalloc_dryrun_setup::{DryRun, Gpu};

pub use caught::{Caught, Refused};
pub use evaluate::{ALLOCATORS, FitsGpu, Need, RankDevice};
pub use found::Tried;
pub use json::json;
pub use outside::{Outside, Share};
pub use picture::page;
pub use report::{Candidate, FitAnswer, Frontier, Trouble};
pub use scheduler::FitEvent;
pub use trial::{FailureKind, Outcome, TrialFailure, TrialSetting};
pub use values::{Assignment, Values, Variable, substitute};
pub use verdict::CardVerdict;
pub use world::WorldSize;

/// What a `fit` searches: a command with variables, GPUs, ranks, the goal for memory, settings of trials.
#[derive(Clone, Debug)]
pub struct Question {
    /// The command, with `{NAME}` for each variable.
    pub command: CommandLine,
    /// The GPUs to stand in for.
    pub gpus: Vec<Gpu>,
    /// GPUs of each process.
    pub devices: u32,
    /// The variables.
    pub variables: Vec<Variable>,
    /// Ranks of the job; none for a program that is started as it is.
    pub world_size: Option<WorldSize>,
    /// The ranks to try; none: those that may differ.
    pub ranks: Vec<u32>,
    /// The memory to search for, bytes; none: the card's.
    pub goal: Option<u64>,
    /// The allocators whose largest value is searched, by their place in [`ALLOCATORS`].
    pub searched: Vec<usize>,
    /// What is the same in every trial.
    pub setting: TrialSetting,
    /// Trials at once; 0: as many as there are cores, and at most eight.
    pub at_once: usize,
    /// What was tried is kept for the next time.
    pub keeps: bool,
}

/// Why nothing can be tried. Each message is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--vary` is invalid.
    #[error("--vary {text}: {what}; write NAME=A..B to search the largest of a range, or NAME=A,B,C to try each")]
    Vary {
        /// What was given.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// A variable is not in the command.
    #[error(
        "{{{0}}} is nowhere in the command: write it where the value belongs, as in `python train.py --batch {{{0}}}`"
    )]
    NotInCommand(String),
    /// The command has a name that is no variable.
    #[error(
        "the command has {{{0}}}: say what to try with --vary {0}=1..64, or write {{{{{0}}}}} if the braces are meant"
    )]
    UnknownName(String),
    /// Two ranges.
    #[error("{0} and {1} are both ranges, of which one can be searched: give the other as a list, {1}=A,B,C")]
    TwoRanges(String, String),
    /// The world size is no number of ranks, or one that changes within a search.
    #[error("--world-size {text} {what}")]
    WorldSize {
        /// What was given.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// Too many combinations.
    #[error("the lists have more than {} combinations; shorten them", values::MOST_COMBINATIONS)]
    TooMany,
    /// A rank that the world does not have.
    #[error("rank {rank} of {world_size}: ranks are counted from 0 to {}", world_size - 1)]
    Rank {
        /// What was asked for.
        rank: u32,
        /// Of how many.
        world_size: u32,
    },
    /// A lever that there is none of.
    #[error("there is no lever {name}; there are {known}")]
    UnknownLever {
        /// What was asked for.
        name: String,
        /// All that there are.
        known: String,
    },
    /// No GPU.
    #[error("no GPU is named: --dry-run h100-80gb, or several with commas")]
    NoGpu,
    /// A folder for a trial cannot be made.
    #[error(transparent)]
    Scratch(stalloc_common::NotPrivate),
    /// The command cannot be run.
    #[error(transparent)]
    Launch(#[from] stalloc_launcher::Error),
}

impl From<stalloc_dryrun_setup::SetupError> for Error {
    fn from(error: stalloc_dryrun_setup::SetupError) -> Self {
        Error::Launch(error.into())
    }
}

/// Answers a question. `watch` is told of every trial; when `stop` is set, what was found so far is the answer.
pub fn fit(question: &Question, watch: &mut dyn FnMut(FitEvent<'_>), stop: &AtomicBool) -> Result<FitAnswer, Error> {
    values::check(&question.variables, question.command.words(), question.world_size.as_ref())?;
    if question.gpus.is_empty() {
        return Err(Error::NoGpu);
    }
    let lines = scheduler::lines(question)?;
    for world_size in lines.iter().map(|line| line.world_size.unwrap_or(1)) {
        if let Some(&rank) = question.ranks.iter().find(|&&rank| rank >= world_size) {
            return Err(Error::Rank { rank, world_size });
        }
    }
    let stand_ins = question
        .gpus
        .iter()
        .map(|gpu| Ok(DryRun::new(gpu.name, question.devices)?.with_ample_memory()))
        .collect::<Result<Vec<DryRun>, Error>>()?;
    for stand_in in &stand_ins {
        // Makes the links once, before several trials want to.
        stand_in.environment()?;
    }
    let found = scheduler::run(question, &stand_ins, &lines, watch, stop)?;
    Ok(report::answer(question, &lines, &found, stop))
}
