//! How a command ends.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// How a command that worked ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Done: exit 0.
    Done,
    /// The answer is no (verification failed, does not fit, differs): exit 1.
    No,
    /// The exit status of a program that was run.
    Exit(u8),
}

/// Why a command did not work: exit 2. Each message says what was wrong, where, and what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[source] io::Error),
    /// What was asked for cannot be done.
    #[error(transparent)]
    Job(#[from] stalloc_jobs::Error),
    /// Anything else, in a sentence.
    #[error("{0}")]
    Message(String),
}

impl Error {
    /// An error in a sentence.
    pub fn message(text: impl Into<String>) -> Self {
        Error::Message(text.into())
    }

    /// A failure to write `path`.
    pub fn write(path: &Path, source: io::Error) -> Self {
        Error::Write { path: path.to_owned(), source }
    }

    /// Whether the reader of our output went away, as `head` does: not worth a word.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Error::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
