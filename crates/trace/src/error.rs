//! What is wrong with a file: where, why, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePosition {
    /// The file as a whole.
    File,
    /// A byte, counted from 0 after decompression.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
    /// Somewhere in its structure, such as `device_traces[0][5].size`.
    Path(String),
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilePosition::File => Ok(()),
            FilePosition::Byte(at) => write!(f, "byte {at}: "),
            FilePosition::Line(line) => write!(f, "line {line}: "),
            FilePosition::Path(path) => write!(f, "{path}: "),
        }
    }
}

/// What is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{position}{problem}; {advice}")]
pub struct Fault {
    /// Where.
    pub position: FilePosition,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: &'static str,
    /// The error of the operating system or of a decompressor, if that is what stopped the reader.
    #[source]
    pub source: Option<io::Error>,
}

/// What readers return before the file's name is known.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

pub(crate) const RECORD_AGAIN: &str = "the file is damaged or incomplete, record or copy it again";
pub(crate) const TOO_BIG: &str = "record fewer steps into one file, or allow more with STALLOC_READ_GIB=16";

impl Fault {
    pub(crate) fn new(position: FilePosition, problem: impl Into<String>, advice: &'static str) -> Self {
        Fault { position, problem: problem.into(), advice, source: None }
    }

    /// Damage at a position.
    pub(crate) fn damaged(position: FilePosition, problem: impl Into<String>) -> Self {
        Fault::new(position, problem, RECORD_AGAIN)
    }

    /// Whether it is that the file ends too early, itself or what it decompresses to.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.source.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// An error of the operating system or of a decompressor after `at` bytes.
    pub(crate) fn io(at: u64, error: io::Error) -> Self {
        let (problem, advice) = match error.kind() {
            io::ErrorKind::NotFound => ("no such file".to_owned(), "check the path"),
            io::ErrorKind::PermissionDenied => ("may not be read".to_owned(), "check its permissions"),
            io::ErrorKind::IsADirectory => ("is a directory".to_owned(), "name a file in it"),
            io::ErrorKind::UnexpectedEof => ("ends too early".to_owned(), RECORD_AGAIN),
            _ => (format!("cannot be read further: {error}"), RECORD_AGAIN),
        };
        let position = if at == 0 { FilePosition::File } else { FilePosition::Byte(at) };
        Fault { position, problem, advice, source: Some(error) }
    }
}

/// Bounds the memory that a reader may take, whatever a file claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
    limit: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Budget { left: limit, limit }
    }

    /// The whole of it, bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `bytes` for good.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.exceeded(FilePosition::File)),
        }
    }

    /// What to say when it does not suffice.
    pub(crate) fn exceeded(&self, position: FilePosition) -> Fault {
        let problem = format!("needs more than {} MiB of memory to read", self.limit >> 20);
        Fault::new(position, problem, TOO_BIG)
    }
}
