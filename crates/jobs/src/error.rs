//! Why something could not be done.

use std::path::PathBuf;

use thiserror::Error;

/// Why files could not be read, planned or replayed: what was wrong, where, and what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] stalloc_trace::ReadError),
    /// A plan cannot be read or written.
    #[error(transparent)]
    Plan(#[from] stalloc_plan::Error),
    /// A trace cannot be planned.
    #[error(transparent)]
    Synthesizer(#[from] stalloc_synthesizer::Error),
    /// A trace cannot be replayed.
    #[error(transparent)]
    Simulator(#[from] stalloc_simulator::Error),
    /// A folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An instance cannot be planned.
    #[error("{}: {source}", path.display())]
    Instance {
        /// The instance's file.
        path: PathBuf,
        /// Why.
        source: stalloc_planner::Error,
    },
    /// A plan stands where a recording is wanted.
    #[error(
        "{path} is a plan, not a recording: `stalloc info {path}` describes it, `stalloc verify {path}` checks it, \
         `stalloc simulate INPUT --plan {path}` replays a recording on it", path = .0.display()
    )]
    IsPlan(PathBuf),
    /// An instance stands where a recording is wanted.
    #[error("{}: a CSV instance, not a recording: it has no allocators to look at; plan it with `stalloc plan`", .0.display())]
    IsInstance(PathBuf),
    /// A recording stands where a plan or a solved instance is wanted.
    #[error("{} is a recording: verify takes a plan, or a CSV with offsets", .0.display())]
    IsRecording(PathBuf),
    /// Only a plan can be checked against a recording.
    #[error("{} is no plan; only a plan is checked against an INPUT", .0.display())]
    NotAPlan(PathBuf),
    /// The recording does not hold the device that was asked for.
    #[error("{} has no device {wanted}: it holds {} (--device N)", path.display(), list(held))]
    NoSuchDevice {
        /// The recording.
        path: PathBuf,
        /// The device that was asked for.
        wanted: u32,
        /// Those that there are.
        held: Vec<u32>,
    },
    /// The folder does not hold the rank that was asked for.
    #[error("{} has no rank {wanted}: it holds {} (--rank R)", path.display(), list(held))]
    NoSuchRank {
        /// The folder.
        path: PathBuf,
        /// The rank that was asked for.
        wanted: u32,
        /// Those that there are.
        held: Vec<u32>,
    },
    /// The folder holds no trace.
    #[error("{} holds no trace (rank<R>_dev<N>.trace): `stalloc trace -o DIR` leaves one for each process and device", .0.display())]
    NoTraces(PathBuf),
    /// The recording holds nothing to work on.
    #[error(
        "{} holds no request to work on; record one with `stalloc trace`, or a snapshot with \
         torch.cuda.memory._record_memory_history() switched on before the work begins", .0.display()
    )]
    NoRequests(PathBuf),
    /// An instance has rows without an offset.
    #[error(
        "{path} {}; `stalloc plan {path} -o OUT.csv` adds them",
        if missing == rows { "has no offsets".to_owned() } else { format!("has no offset in {missing} of its {rows} rows") },
        path = path.display()
    )]
    NoOffsets {
        /// The instance's file.
        path: PathBuf,
        /// Rows without an offset.
        missing: usize,
        /// All rows.
        rows: usize,
    },
    /// The folder whose plans are to be followed is not there.
    #[error("{}: no such directory; without --frozen, what is learned is kept there", .0.display())]
    NoFolder(PathBuf),
    /// The folder whose plans are to be followed holds none.
    #[error("{} holds neither plans nor traces; without --frozen, what is learned is kept there", .0.display())]
    NothingToFollow(PathBuf),
}

/// Numbers, separated by commas.
pub(crate) fn list(devices: &[u32]) -> String {
    devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
