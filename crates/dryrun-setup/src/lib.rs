//! What a launcher and the stand-in CUDA libraries (`stalloc-dryrun`) agree on.
//!
//! The stand-in is a shared library that is preloaded, so nothing can link to it; this crate is the part that can be linked.
//! It holds the presets of the GPUs ([`Gpu`]) and makes the environment that a command needs to run without one ([`DryRun`]).
//! `docs/dry-run.md` tells the whole contract.

#![forbid(unsafe_code)]

mod description;
mod find;
mod gpu;
pub mod identity;
mod launch;
pub mod nvidia_smi;
mod presets;
#[cfg(test)]
mod tests;

pub use find::{find, find_all};
pub use gpu::{Gpu, MIB};
pub use launch::{DryRun, MAX_DEVICES};
pub use presets::GPUS;

/// Why a dry run cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Nothing was named.
    #[error("name the GPU to stand in for: {known}; or describe it: sm=132,memory=80GiB,capability=9.0,name=mine")]
    NoGpu {
        /// All preset names, separated by commas.
        known: String,
    },
    /// No preset has this name.
    #[error("unknown GPU \"{name}\"; known: {known}; or describe it: sm=132,memory=80GiB,capability=9.0,name=mine")]
    UnknownGpu {
        /// What was asked for.
        name: String,
        /// All preset names, separated by commas.
        known: String,
    },
    /// A description of a GPU is invalid.
    #[error(
        "the GPU \"{text}\": {what}; write for example sm=132,memory=80GiB,capability=9.0,name=mine, or like=h100-80gb,memory=94GiB"
    )]
    Description {
        /// The description.
        text: String,
        /// What is wrong in it.
        what: String,
    },
    /// The number of devices is zero or too large.
    #[error("{0} devices asked for; a dry run has 1 to {MAX_DEVICES}")]
    Devices(u32),
    /// The shared library was found nowhere.
    #[error(
        "the stand-in CUDA library libstalloc_dryrun.so was not found (looked at {looked_at}); build it with `cargo build -p stalloc-dryrun` or set {} to its path",
        stalloc_common::settings::DRYRUN_LIB
    )]
    LibraryMissing {
        /// The places that were tried, separated by commas.
        looked_at: String,
    },
    /// There is no folder for the links. Their path must not have a space or a colon, which LD_PRELOAD cannot hold.
    #[error(transparent)]
    Folder(#[from] stalloc_common::NotPrivate),
    /// A link could not be made.
    #[error("cannot prepare {path}: {source}")]
    Links {
        /// The link.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
